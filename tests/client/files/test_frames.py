"""Data frames of any library end as the population that a file with the same rows gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedhist import Columns, InvalidInput, SparsePopulation, read_frame, read_population
from tests.support.api import InvalidPopulation, item_totals, labels_of, read_node_data
from tests.support.refusals import refused

ROWS = pl.DataFrame(
    {"user": ["b", "a", "b", "c"], "item": ["007", "tea", "tea", "é"], "count": [2, 1, 3, 0]},
    schema={"user": pl.String, "item": pl.String, "count": pl.Int64},
)
NUMBERS = pl.DataFrame({"user": [7, 3, 7, -1], "item": [10, 9, 9, 10], "count": [2, 1, 3, 0]})

KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "pandas": lambda rows: rows.to_pandas(),
    "pandas with an index": lambda rows: rows.to_pandas().set_index(pd.Index([9, 9, 1, 5], name="count")),
    "pandas objects": lambda rows: rows.to_pandas().astype(object),
    "pandas arrow": lambda rows: rows.to_pandas(use_pyarrow_extension_array=True),
    "pandas nullable": lambda rows: rows.to_pandas().convert_dtypes(),
    "pandas python strings": lambda rows: rows.to_pandas().astype(
        {name: "string[python]" for name, kind in rows.schema.items() if kind == pl.String}
    ),
    "pandas categories": lambda rows: rows.to_pandas().astype({"user": "category", "item": "category"}),
    "polars": lambda rows: rows,
    "polars lazy": lambda rows: rows.lazy(),
    "polars categories": lambda rows: rows.with_columns(pl.col(pl.String).cast(pl.Categorical)),
    "pyarrow": lambda rows: rows.to_arrow(),
    "pyarrow reader": lambda rows: rows.to_arrow().to_reader(),
    "pyarrow batch": lambda rows: rows.to_arrow().to_batches()[0],
    "an Arrow stream": lambda rows: OnlyAStream(rows),  # noqa: PLW0108 - defined below
}


class OnlyAStream:
    """What a database hands out."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


def same(one: SparsePopulation, other: SparsePopulation) -> bool:
    parts = ("offsets", "items", "counts")
    return one.labels == other.labels and all(
        np.array_equal(getattr(one.histograms, part), getattr(other.histograms, part)) for part in parts
    )


@pytest.mark.parametrize("rows", [ROWS, NUMBERS], ids=["text", "integers"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_the_population_of_the_same_file(tmp_path: Path, kind: str, rows: pl.DataFrame) -> None:
    path = tmp_path / "rows.parquet"
    rows.write_parquet(path)
    assert same(read_frame(KINDS[kind](rows), seed=5), read_population(path, seed=5))


def test_pandas_needs_no_pyarrow() -> None:
    tables = [ROWS, NUMBERS]
    script = f"""
import sys
class Without:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *others):
        return None if name.partition(".")[0] == "pyarrow" else self.finder.find_spec(name, *others)
sys.meta_path[:] = map(Without, sys.meta_path)
import pandas as pd
from fedhist.client.files.read import read_frame
for rows in {[rows.to_dict(as_series=False) for rows in tables]!r}:
    for kinds in ({{}}, {{"item": object}}, {{"item": "category"}}, {{"count": "Int64"}}, {{"count": float}}):
        found = read_frame(pd.DataFrame(rows).astype(kinds))
        print(found.labels, found.totals().tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [f"{read.labels} {read.totals().tolist()}" for read in map(read_frame, tables)]
    assert done.stdout.splitlines() == [line for line in expected for _ in range(5)]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([True, False, True], ("true", "false")),
        (pd.to_datetime(["2026-01-02"] * 3).date, ("2026-01-02",)),
        (pd.Series([5, 6, 5], dtype="category"), (5, 6)),
        (np.array([1, 2, 1], dtype=np.uint8), (1, 2)),
        (["", "x", ""], ("", "x")),
    ],
)
def test_items_of_other_types(values: Any, labels: tuple[object, ...]) -> None:
    assert read_frame(pd.DataFrame({"user": ["a", "b", "c"], "item": values})).labels == labels


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.5, 2.5], ("column-type", "edges")),
        (pd.to_datetime(["2026-01-02"] * 2), ("column-type",)),
        (["secret", None], ("missing-value", "row 1")),
        (["secret", 3], ("mixed-column", "row 1", "row 0")),
        ([3, "secret"], ("mixed-column", "row 1", "row 0")),
        ([None, "secret"], ("missing-value", "row 0")),
        ([["secret"], []], ("column-type",)),
        ([{"secret": 1}, {}], ("column-type",)),
        ([b"secret", b""], ("column-type",)),
        (["secret", "\ud800"], ("mixed-column",)),
        (np.array([1j, 2]), ("mixed-column",)),
        ([[1], ["secret"]], ("mixed-column",)),
        (["secret", np.zeros(2)], ("mixed-column",)),
    ],
)
def test_items_that_are_refused(values: Any, told: tuple[str, ...]) -> None:
    column = pd.Series(values, dtype=object) if isinstance(values, list) else values
    frame = pd.DataFrame({"user": ["a", "b"], "item": column})
    if isinstance(values, list) and isinstance(values[0], float):
        frame = frame.astype({"item": float})
    with refused(InvalidPopulation, *told) as caught:
        read_frame(frame, columns=Columns(strict=True))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            pd.DataFrame({"who": [1], "what": [2]}),
            ("missing-column", "user", "who", "what"),
        ),
        (
            pd.DataFrame({"item": ["x"]}, index=pd.Index(["a"], name="user")),
            ("missing-column", "reset_index"),
        ),
        (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), ("repeated-column",)),
        (
            pl.DataFrame({"user": [1], "User": [2], "item": [3]}),
            ("missing-column", "user"),
        ),
        (pl.LazyFrame({"who": [1]}), ("missing-column", "user", "who")),
        (pd.DataFrame([[1, 2]]), ("missing-column",)),
        (pl.DataFrame(), ("missing-column",)),
        (pd.Series([1]), ("not-a-data-frame",)),
        (pa.array([1]), ("not-a-data-frame",)),
        (np.ones((2, 2)), ("not-a-data-frame", "csr_array")),
        ([("a", "x")], ("not-a-data-frame",)),
        (5, ("not-a-data-frame",)),
    ],
    ids=str,
)
def test_what_is_no_table_of_users_and_items_is_refused(data: Any, told: tuple[str, ...]) -> None:
    with refused(InvalidInput, *told):
        read_frame(data)


def _failing(column: pl.Expr) -> pl.LazyFrame:
    return pl.LazyFrame({"user": ["a"], "item": ["secret"]}).with_columns(item=column)


class FailingStream:
    """What a database hands out that has lost its rows."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (_failing(pl.col("item").cast(pl.Int64)), ("unreadable-frame", "InvalidOperationError")),
        (pl.scan_csv("secret.csv"), ("unreadable-frame", "FileNotFoundError")),
        (FailingStream(), ("not-a-data-frame",)),
        (
            pa.table({"user": ["a"], "item": pa.RunEndEncodedArray.from_arrays([1], pa.array(["secret"]))}),
            ("unreadable-frame",),
        ),
        (
            pa.table({"user": ["a"], "item": pa.array([77]).cast(pa.decimal256(50, 2))}),
            ("unreadable-frame",),
        ),
        (
            pl.DataFrame({"user": ["a"], "item": ["b"]}).with_columns(
                count=pl.lit("secret", pl.Enum(["secret"]))
            ),
            ("column-type",),
        ),
    ],
    ids=["a cast", "a scan", "a stream", "run ends", "wide decimals", "counts"],
)
def test_what_other_libraries_say_of_a_value_is_not_repeated(
    data: Any, told: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with refused(InvalidInput, *told) as caught:
        read_frame(data)
    assert "secret" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("items", [["True", "False"], [True, False], ["true", "false"]])
def test_a_column_of_truth_values_counts_however_a_list_spells_them(tmp_path: Path, items: list[Any]) -> None:
    rows = pl.DataFrame({"user": [1, 2, 3], "item": [True, False, True]})
    rows.write_parquet(tmp_path / "t.parquet")
    for found in (
        read_frame(rows, items=items),
        read_frame(rows.to_pandas(), items=items),
        read_population(tmp_path / "t.parquet", items=items),
        read_node_data(rows, items=items)[0],
    ):
        assert (labels_of(found), item_totals(found).tolist()) == (tuple(items), [2, 1])


def test_wrong_counts_and_totals_are_named_by_their_row() -> None:
    frame = pd.DataFrame({"who": ["a", "b"], "what": ["x", "y"], "n": [1.0, 2.5]})
    with refused(InvalidPopulation, "bad-count", "row 1", "n"):
        read_frame(frame, columns=Columns("who", "what", "n"))
    with refused(InvalidInput, "option-of-text-files"):
        read_frame(frame, columns=Columns("who", "what", separator=";"))


@pytest.mark.parametrize("kind", ["table", "stream", "dictionary"])
def test_text_of_arrow_that_is_not_utf8_is_a_sentence_and_a_row_that_a_node_leaves_out(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"ab\xff\xfe")])
    if kind == "dictionary":
        text = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), text)
    table = pa.table({"user": [1, 2], "item": text})

    class Stream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table.__arrow_c_stream__(requested_schema)

    data = Stream() if kind == "stream" else table
    with refused(InvalidPopulation, "not-utf8", "row 1"):
        read_frame(data)
    found, left_out = read_node_data(data)
    assert (labels_of(found), found.users, left_out) == (("ab",), 2, 1)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "odd", ["\ud800", 7, None, b"a", object()], ids=["surrogate", "number", "none", "bytes", "object"]
)
def test_one_odd_object_leaves_out_its_row_and_not_the_node(odd: object) -> None:
    values = pd.Series(["tea", odd, "tea", "cake"], dtype=object)
    frame = pd.DataFrame({"user": ["ana", "ben", "ben", "carla"], "item": values})
    population = read_node_data(frame, items=["tea", "cake"])[0]
    assert (population.users, item_totals(population).tolist()) == (3, [2, 1])


@pytest.mark.parametrize(
    "odd", [7, 2**70, 1.5, b"a", object(), True, "x"], ids=lambda odd: type(odd).__name__
)
@pytest.mark.parametrize("role", ["user", "item", "count"])
@pytest.mark.parametrize("usual", [str, int])
def test_what_one_user_has_in_many_rows_leaves_the_rows_of_others_as_they_are(
    usual: type, role: str, odd: object
) -> None:
    kinds = {"user": usual, "item": usual, "count": int} | {role: usual}
    rows = [(kinds["user"](user), kinds["item"](1), kinds["count"](1)) for user in range(4)]
    own = {"user": usual(9), "item": usual(2), "count": 1} | {role: odd}
    frame = pd.DataFrame(rows + [tuple(own.values())] * 20, columns=list(own), dtype=object)
    population = read_node_data(frame, items=["1", "2"], columns=Columns(count="count"))[0]
    assert item_totals(population)[0] - 4 in ((0, 1, 20) if role == "item" else (0,))


@pytest.mark.parametrize("values", [[["a"]], [{"a": 1}], [b"a"]], ids=["list", "struct", "bytes"])
def test_a_column_that_can_t_be_counts_is_a_sentence_on_a_node_too(values: list[Any]) -> None:
    frame = pl.DataFrame({"user": ["ana"], "item": ["tea"], "count": values})
    for read in (read_frame, read_node_data):
        with refused(InvalidPopulation, "column-type"):
            read(frame, items=["tea"])


@pytest.mark.parametrize("name", ["*", "^.*$", "^wh.$"])
def test_a_column_s_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({name: ["tea", "cake"], "who": ["ana", "ben"], "whx": ["cake", "cake"]})
    frame.write_parquet(tmp_path / "x.parquet")
    columns = Columns(user="who", item=name)
    for data in (frame, frame.lazy()):
        assert item_totals(read_frame(data, columns=columns, items=["tea", "cake"])).tolist() == [1, 1]
    of_file = read_population(tmp_path / "x.parquet", columns=columns, items=["tea", "cake"])
    assert item_totals(of_file).tolist() == [1, 1]
