"""Any kind of data becomes the same population, and the same release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array

from fedhist import Columns, InvalidInput, Plan, SparsePopulation, simulate
from tests.support.api import InvalidPopulation, ItemOrigin, Wanted, ZipfPopulation, check_not_empty, load
from tests.support.refusals import refused

NAMES = Columns("who", "what", "n")


def rows() -> pl.DataFrame:
    draw = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "who": [f"u{number}" for number in draw.integers(40, size=300)],
            "what": [f"i{number}" for number in draw.integers(12, size=300)],
            "n": draw.integers(5, size=300),
        }
    )


def test_frames_and_files_with_the_same_rows_give_the_same_release(tmp_path: Path) -> None:
    table, listed = rows(), [f"i{number}" for number in range(15)]
    table.write_csv(tmp_path / "rows.csv")
    table.write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "items.txt").write_text("\n".join(listed))
    kinds = {
        "pandas": table.to_pandas(),
        "polars": table,
        "pyarrow": table.to_arrow(),
        None: tmp_path / "rows.parquet",
    }
    wanted = [Wanted(data=data, columns=NAMES, item_names=listed) for data in kinds.values()]
    wanted.append(Wanted(data=str(tmp_path / "rows.csv"), columns=NAMES, items_file=tmp_path / "items.txt"))
    loaded = [load(one, 0) for one in wanted]
    assert [one.frame_kind for one in loaded] == [*kinds, None]
    plan = Plan(users=loaded[0].population.users, items=len(listed))
    releases = [simulate(one.population, plan, seed=5).release for one in loaded]
    assert {release.histogram.tobytes() for release in releases} == {releases[0].histogram.tobytes()}
    assert {tuple(one.labels or ()) for one in loaded} == {tuple(listed)}
    assert {one.item_origin for one in wanted} == {ItemOrigin.PUBLIC}


@pytest.mark.parametrize(
    ("data", "choice", "origin"),
    [
        (rows().to_pandas(), {}, ItemOrigin.DATA),
        (rows(), {"top_items": 3}, ItemOrigin.TOP),
        (rows(), {"item_names": ["i1", "other"]}, ItemOrigin.PUBLIC),
        (rows(), {"columns": Columns("who", "n", bins=[0, 2, 9])}, ItemOrigin.PUBLIC),
        (csr_array([[1, 2], [0, 3]]), {}, ItemOrigin.PUBLIC),
        (csr_array([[1, 2], [0, 3]]), {"item_names": ["tea", "milk"]}, ItemOrigin.PUBLIC),
        (csr_array([[1, 2], [0, 3]]), {"top_items": 1}, ItemOrigin.TOP),
        (ZipfPopulation(users=9, items=5, seed=1), {}, ItemOrigin.SYNTHETIC),
        (ZipfPopulation(users=9, items=5, seed=1), {"top_items": 2}, ItemOrigin.TOP),
    ],
    ids=str,
)
def test_the_origin_of_the_items_is_known_before_the_data_is_read(
    data: Any, choice: dict[str, Any], origin: ItemOrigin
) -> None:
    wanted = Wanted(
        data=data, **({"columns": NAMES} if isinstance(data, pl.DataFrame | pd.DataFrame) else {}) | choice
    )
    loaded = load(wanted, 0)
    assert wanted.item_origin is origin
    assert getattr(loaded.population, "item_origin", ItemOrigin.PUBLIC) is origin
    assert any("not private" in note for note in loaded.notes) == origin.tells("closed")


def test_the_names_of_a_matrix_are_those_of_its_columns_and_a_list_chooses_from_a_population() -> None:
    named = load(Wanted(data=csr_array([[1, 2], [0, 3]]), item_names=["tea", "milk"]), 0)
    assert (named.name, named.labels) == ("matrix", ("tea", "milk"))
    assert isinstance(named.population, SparsePopulation)
    again = load(Wanted(data=named.population, item_names=["milk", "other"]), 0)
    assert isinstance(again.population, SparsePopulation)
    assert again.population.totals().tolist() == [5, 0]
    assert load(Wanted(data=named.population, item_names=["TEA"], normalise="casefold"), 0).labels == ("tea",)
    with refused(InvalidPopulation, "wrong-number-of-labels"):
        load(Wanted(data=csr_array([[1, 2]]), item_names=["a", "b", "c"]), 0)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted(columns=Columns(user="who")), "columns-without-table"),
        (Wanted(data="synthetic:zipf", columns=Columns(bins=[0, 1])), "columns-without-table"),
        (Wanted(data=csr_array([[1]]), columns=Columns(separator=";")), "columns-without-table"),
        (Wanted(data=rows(), item_names=["a"], items_file=Path("items.txt")), "two-choices-of-items"),
        (Wanted(data={"user": [1]}), "not-a-data-frame"),
    ],
    ids=str,
)
def test_settings_that_the_data_has_no_use_for_are_refused(wanted: Wanted, code: str) -> None:
    with refused(InvalidInput, code):
        load(wanted, 0)


def test_a_list_that_matches_nothing_is_told_where_the_truth_may_be_looked_at() -> None:
    for choice in ({"columns": NAMES, "item_names": ["I1"]}, {"columns": Columns("who", "n", bins=[7, 9])}):
        loaded = load(Wanted(data=rows(), **choice), 0)  # type: ignore[arg-type]
        with refused(InvalidPopulation, "no-listed-item"):
            check_not_empty(loaded.population)
        # A run that is to be shared must not tell it.
        simulate(loaded.population, Plan(users=loaded.population.users, items=1), seed=1, evaluate=False)


def test_libraries_of_frames_are_loaded_for_frames_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user,item\na,x\n")
    script = (
        "import sys; from fedhist.simulations.datasets.loading import Wanted, load\n"
        f"load(Wanted(data={str(path)!r}), 0)\n"
        "print([name for name in ('narwhals', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
