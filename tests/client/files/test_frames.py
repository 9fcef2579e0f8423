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
from tests.support.api import InvalidPopulation

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
from fedhist.client.files.records import read_frame
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
    ("values", "words"),
    [
        ([1.5, 2.5], "has the type Float64.*give the edges of bins"),
        (pd.to_datetime(["2026-01-02"] * 2), "has the type Datetime.*convert the column to dates"),
        (["secret", None], "the item in row 1, column 'item', of the data frame .* is missing"),
        (["secret", 3], r"row 1 \(the first is row 0\) holds a int, the rows before a str"),
        ([3, "secret"], r"row 1 \(the first is row 0\) holds a str, the rows before a int"),
        ([None, "secret"], "the item in row 0, column 'item', .* is missing"),
        ([["secret"], []], "has the type List"),
        ([{"secret": 1}, {}], "has the type Struct;"),
        ([b"secret", b""], "has the type Binary"),
        (["secret", "\ud800"], "can't be read"),
        (np.array([1j, 2]), "can't be read"),
    ],
)
def test_items_that_are_refused(values: Any, words: str) -> None:
    column = pd.Series(values, dtype=object) if isinstance(values, list) else values
    frame = pd.DataFrame({"user": ["a", "b"], "item": column})
    if isinstance(values, list) and isinstance(values[0], float):
        frame = frame.astype({"item": float})
    with pytest.raises(InvalidPopulation, match=words) as caught:
        read_frame(frame)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            pd.DataFrame({"who": [1], "what": [2]}),
            "has no column 'user'; allowed: one of its columns: 'who', 'what'",
        ),
        (pd.DataFrame({"item": ["x"]}, index=pd.Index(["a"], name="user")), r"reset_index\(\)"),
        (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), "two columns .* have the same name"),
        (
            pl.DataFrame({"user": [1], "User": [2], "item": [3]}),
            "has two columns for one of 'user'.*rename one",
        ),
        (pl.LazyFrame({"who": [1]}), "has no column 'user'; allowed: one of its columns: 'who'"),
        (pd.DataFrame([[1, 2]]), r"one of its columns: 0, 1; .*frame\.columns = "),
        (pl.DataFrame(), "a data frame with columns"),
        (pd.Series([1]), "the data is a pandas"),
        (pa.array([1]), "the data is a pyarrow"),
        (np.ones((2, 2)), "the data is a numpy.ndarray.*csr_array"),
        ([("a", "x")], "the data is a builtins.list"),
        (5, "the data is a builtins.int"),
    ],
    ids=str,
)
def test_what_is_no_table_of_users_and_items_is_refused(data: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_frame(data)


def _failing(column: pl.Expr) -> pl.LazyFrame:
    return pl.LazyFrame({"user": ["a"], "item": ["secret"]}).with_columns(item=column)


class FailingStream:
    """What a database hands out that has lost its rows."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (_failing(pl.col("item").cast(pl.Int64)), r"can't be read \(InvalidOperationError\).*collect a lazy"),
        (pl.scan_csv("secret.csv"), r"can't be read \(FileNotFoundError\)"),
        (FailingStream(), "the data is a .*FailingStream"),
        (
            pa.table({"user": ["a"], "item": pa.RunEndEncodedArray.from_arrays([1], pa.array(["secret"]))}),
            "can't be read .*convert the columns",
        ),
        (
            pa.table({"user": ["a"], "item": pa.array([77]).cast(pa.decimal256(50, 2))}),
            "can't be read .*convert the columns",
        ),
        (
            pl.DataFrame({"user": ["a"], "item": ["b"]}).with_columns(
                count=pl.lit("secret", pl.Enum(["secret"]))
            ),
            "the counts have the type Enum;",
        ),
    ],
    ids=["a cast", "a scan", "a stream", "run ends", "wide decimals", "counts"],
)
def test_what_other_libraries_say_of_a_value_is_not_repeated(
    data: Any, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        read_frame(data)
    assert "secret" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_wrong_counts_and_totals_are_named_by_their_row() -> None:
    frame = pd.DataFrame({"who": ["a", "b"], "what": ["x", "y"], "n": [1.0, 2.5]})
    with pytest.raises(
        InvalidPopulation, match=r"count at row 1, column 'n', of the data frame .* not a whole"
    ):
        read_frame(frame, columns=Columns("who", "what", "n"))
    with pytest.raises(InvalidInput, match="a separator for a data frame"):
        read_frame(frame, columns=Columns("who", "what", separator=";"))
