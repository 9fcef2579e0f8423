"""Columns with names of one's own, separators, and bins."""

from __future__ import annotations

import gzip
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedhist
from fedhist import Columns, InvalidInput, read_frame, read_population
from tests.builders import rows_in_any_order
from tests.support.api import InvalidPopulation, ItemOrigin, bin_labels
from tests.support.refusals import refused

ROWS = pl.DataFrame(
    {"who": ["a", "b", "a"], "user": ["x", "y", "z"], "what": ["p", "q", "p"], "n": [1, 2, 3]}
)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_named_columns_are_read_whatever_else_is_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        ROWS.write_parquet(path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_dicts()))
    else:
        ROWS.write_csv(path, separator="\t" if suffix == ".tsv" else ",")
    found = read_population(path, columns=Columns("who", "what", "n"))
    assert (found.users, found.labels, found.totals().tolist()) == (2, ("p", "q"), [4, 2])
    # user stands for a user here unless another column is named, and roles may swap names.
    swapped = read_population(path, columns=Columns(item="who"))
    assert (swapped.users, swapped.labels) == (3, ("a", "b"))
    assert read_population(path, columns=Columns("what", "user")).labels == ("x", "y", "z")


@pytest.mark.parametrize(("separator", "character"), [(";", ";"), ("|", "|"), ("tab", "\t"), ("\\t", "\t")])
def test_separators(tmp_path: Path, separator: str, character: str) -> None:
    path = tmp_path / "rows.csv"
    ROWS.write_csv(path, separator=character)
    found = read_population(path, columns=Columns("who", "what", "n", separator=separator))
    assert found.totals().tolist() == [4, 2]


def test_a_name_may_hold_a_quote_or_stand_twice(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('user,"it""em",x,x\na,b,1,2\n"c",d,1,2\n')
    assert read_population(path, columns=Columns(item='it"em')).labels == ("b", "d")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"user": ""}, "bad-column-name"),
        ({"user": 0}, "bad-column-name"),
        ({"user": 1}, "bad-column-name"),
        ({"user": 1, "item": 2, "count": "n"}, "bad-column-name"),
        ({"user": True, "item": 2}, "bad-column-name"),
        ({"user": 1, "item": 1}, "column-used-twice"),
        ({"user": "a", "item": "a"}, "column-used-twice"),
        ({"item": "count"}, "column-used-twice"),
        ({"separator": ";;"}, "bad-separator"),
        ({"separator": '"'}, "bad-separator"),
        ({"separator": "é"}, "bad-separator"),
        ({"bins": [1]}, "too-few-edges"),
        ({"bins": [0, 2, 1]}, "edges-not-rising"),
        ({"bins": [0, 0]}, "edges-not-rising"),
        ({"bins": [0, math.nan]}, "edges-not-rising"),
        ({"bins": ["a", "b"]}, "edge-not-a-number"),
        ({"bins": 10}, "not-a-list-of-edges"),
        ({"bins": "0,10"}, "not-a-list-of-edges"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], code: str) -> None:
    with refused(InvalidInput, code):
        Columns(**settings)


def test_a_matrix_has_no_columns_of_users_and_a_table_that_is_no_text_no_separator(tmp_path: Path) -> None:
    for name, columns in {"a.npz": Columns(user="who"), "b.npz": Columns(bins=[0, 1])}.items():
        with refused(InvalidInput, "columns-of-a-matrix"):
            read_population(tmp_path / name, columns=columns)
    with refused(InvalidInput, "option-of-text-files"):
        read_population(tmp_path / "a.parquet", columns=Columns(separator=";"))
    for read in (partial(read_population, tmp_path / "a.jsonl"), partial(read_frame, ROWS)):
        with refused(InvalidInput, "option-of-text-files"):
            read(columns=Columns(1, 2))


VECTORS = Path(__file__).resolve().parents[2] / "vectors"
RATINGS = (3, {"31": 2, "50": 1, "1029": 1})
PLACES = (2, {"22847": 2, "420315": 1, "0" * 32: 1, "ee8b88dea22411": 1})


class TestTablesWithoutALineOfNames:
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize(
        ("name", "columns", "expected"),
        [
            ("u.data", Columns(1, 2, separator="tab"), RATINGS),
            # Between two colons is a column without anything in it.
            ("ratings.dat", Columns(1, 3, separator=":"), RATINGS),
            ("checkins.txt", Columns(1, 5, separator="tab"), PLACES),
            ("ratings.csv", Columns("userId", "movieId"), RATINGS),
        ],
    )
    def test_published_files(
        self, tmp_path: Path, name: str, columns: Columns, expected: tuple[int, dict[str, int]], packed: bool
    ) -> None:
        path = VECTORS / name
        if packed:
            path = tmp_path / f"{name}.gz"
            path.write_bytes(gzip.compress((VECTORS / name).read_bytes()))
        found = read_population(path, columns=columns)
        assert (found.users, dict(zip(found.labels or (), found.totals().tolist(), strict=True))) == expected

    def test_are_the_tables_with_one(self, tmp_path: Path) -> None:
        ROWS.write_csv(tmp_path / "named.csv")
        ROWS.write_csv(tmp_path / "bare.csv", include_header=False)
        marked = b"\xef\xbb\xbf" + (tmp_path / "bare.csv").read_bytes()
        (tmp_path / "marked.csv").write_bytes(marked)
        named = read_population(tmp_path / "named.csv", columns=Columns("who", "what", "n"))
        for name in ("bare", "marked"):
            bare = read_population(tmp_path / f"{name}.csv", columns=Columns(1, 3, 4))
            assert (bare.users, bare.labels) == (named.users, named.labels)
            assert rows_in_any_order(bare) == rows_in_any_order(named)

    def test_with_a_window_and_bins(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("a,5,2026-11-18\nb,7,2026-11-19\na,15,2026-11-18\n")
        columns = Columns(1, 2, time=3, window="2026-11-18", bins=[0, 10, 20])
        assert read_population(tmp_path / "t.csv", columns=columns).totals().tolist() == [1, 1]

    @pytest.mark.parametrize(
        ("text", "columns", "told"),
        [
            ("a,b\nc,\n", Columns(1, 2, strict=True), ("missing-value", "line 2", "2")),
            ("a,b,x\nc,d,2\n", Columns(1, 2, 3), ("count-not-a-number", "line 1", "3")),
            ("a,b\nc,d,e\n", Columns(1, 2), ("too-many-fields", "line 2")),
            ("secret,b\n", Columns(1, 3), ("too-few-columns",)),
        ],
    )
    def test_mistakes_name_the_line(
        self, tmp_path: Path, text: str, columns: Columns, told: tuple[str, ...]
    ) -> None:
        (tmp_path / "t.csv").write_text(text)
        with refused(InvalidInput, *told) as caught:
            read_population(tmp_path / "t.csv", columns=columns)
        assert "secret" not in str(caught.value)

    def test_python_takes_the_numbers(self, tmp_path: Path) -> None:
        result = fedhist.histogram(
            VECTORS / "u.data", user=1, item=2, separator="tab", items=["31", "50"], seed=1
        )
        assert result.release.plan.items == 2

    def test_a_file_of_another_name_needs_a_separator(self) -> None:
        with refused(InvalidInput, "unknown-suffix"):
            read_population(VECTORS / "u.data", columns=Columns(1, 2))


class TestBins:
    @pytest.mark.parametrize(
        ("edges", "labels"),
        [
            ([0, 10, 20], ["[0, 10)", "[10, 20)"]),
            ([-math.inf, 0.5, math.inf], ["(-inf, 0.5)", "[0.5, inf)"]),
            ([1234567, 1234567.5, 1e300], ["[1234567, 1234567.5)", "[1234567.5, 1e+300)"]),
        ],
    )
    def test_labels(self, edges: list[float], labels: list[str]) -> None:
        assert bin_labels(edges) == labels

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.floats(-50, 50) | st.integers(-5, 25), min_size=1, max_size=30),
        st.lists(st.integers(-5, 25), min_size=2, max_size=6, unique=True).map(sorted),
    )
    def test_counts_are_those_of_numpy(self, values: list[float], edges: list[int]) -> None:
        frame = pl.DataFrame({"user": range(len(values)), "item": np.array(values, dtype=float)})
        found = read_frame(frame, columns=Columns(bins=edges))
        # The last bin of numpy has its right edge, which ours has not.
        below = [value for value in values if value < edges[-1]]
        assert found.totals().tolist() == np.histogram(below, edges)[0].tolist()
        assert found.users == len(values)
        assert found.dropped_count == len(values) - found.totals().sum()

    def test_all_bins_are_there_and_public_in_every_kind_of_file(self, tmp_path: Path) -> None:
        rows = pl.DataFrame({"user": ["a", "b", "a"], "item": [7.5, 30.0, -1.0], "count": [2, 1, 1]})
        rows.write_csv(tmp_path / "rows.csv")
        rows.write_parquet(tmp_path / "rows.parquet")
        for name in ("rows.csv", "rows.parquet"):
            found = read_population(tmp_path / name, columns=Columns(bins=[0, 5, 10]))
            assert found.labels == ("[0, 5)", "[5, 10)")
            assert found.totals().tolist() == [0, 2]
            assert (found.users, found.item_origin) == (2, ItemOrigin.PUBLIC)

    def test_a_value_that_is_no_number_is_named_by_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        for value in ("secret", "nan", "inf"):
            path.write_text(f"user,item\na,1\nb,{value}\n")
            with refused(InvalidPopulation, "item-not-a-number", "line 3") as caught:
                read_population(path, columns=Columns(bins=[0, 1]))
            assert "secret" not in str(caught.value)

    def test_another_choice_of_items_is_refused(self) -> None:
        for choice in ({"items": ["[0, 1)"]}, {"top_items": 1}):
            with refused(InvalidInput, "bins-with-other-items"):
                read_frame(ROWS, columns=Columns(bins=[0, 1]), **choice)  # type: ignore[arg-type]
