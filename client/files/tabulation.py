"""From a table with a row for each observation to users' histograms.

Rows of the same user and item are added up. Users are numbered as they first appear. Items are numbered by falling
total; equal totals by the length of the label in UTF-8, then by its code points, so 9 comes before 10 and text and
integers agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedhist.client.files.columns import Where
from fedhist.client.files.record_tables import type_name
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import MAX_USER_TOTAL, Integers
from fedhist.protocol.labels.item_origin import ItemOrigin
from fedhist.protocol.validation import whole_counts

if TYPE_CHECKING:
    import polars as pl


def table_row(index: int, role: str) -> str:
    """The words for a row of a table in errors."""
    return f"row {index + 1} of the table (the first below the header is row 1)"


def tabulated(table: pl.DataFrame, where: Where = table_row) -> SparsePopulation:
    """The population of a table with a column for the user, one for the item and maybe one for the count.

    Args:
        table: the rows.
        where: names a row, for errors.
    """
    from scipy.sparse import coo_array

    if table.height == 0:
        raise InvalidPopulation(
            "the table has no rows", allowed="at least one row", advice="check that it is complete"
        )
    _refuse_missing(table, where)
    counts = _counts(table, where)
    user_numbers, user_rows = _numbered(table["user"])
    item_numbers, item_rows = _numbered(table["item"])
    _check_user_totals(user_numbers, user_rows, counts, where)
    labels = _plain(table["item"][item_rows])
    order = _item_order(labels, _sums(item_numbers, counts, len(labels)))
    new_numbers = np.empty(len(order), dtype=np.int32)
    new_numbers[order] = np.arange(len(order), dtype=np.int32)
    rows = coo_array(
        (counts, (user_numbers, new_numbers[item_numbers])), shape=(len(user_rows), len(labels))
    ).tocsr()
    return SparsePopulation.from_arrays(
        rows.indptr,
        rows.indices,
        rows.data,
        domain_size=len(labels),
        labels=labels[order].to_list(),
        item_origin=ItemOrigin.DATA,
    )


def _plain(labels: pl.Series) -> pl.Series:
    """Names of categories as text; other labels as they are."""
    import polars as pl

    return labels.cast(pl.String) if isinstance(labels.dtype, pl.Categorical | pl.Enum) else labels


def usable_rows(table: pl.DataFrame) -> pl.DataFrame:
    """The rows that `tabulated` takes. Which ones of a user's rows stay depends on that user's rows alone."""
    import polars as pl

    there = table.drop_nulls(["user", "item"])
    if "count" not in table.columns:
        return there
    count = pl.col("count")
    if table.schema["count"] == pl.String:
        count = count.str.strip_chars()
    number = count.cast(pl.Float64, strict=False)
    whole = there.filter(number.is_between(0, MAX_USER_TOTAL) & (number == number.floor()))
    return whole.filter(number.sum().over("user") <= MAX_USER_TOTAL)


def _refuse_missing(table: pl.DataFrame, where: Where) -> None:
    for name in table.columns:
        if table[name].null_count():
            raise InvalidPopulation(
                f"the {name} in {where(int(table[name].is_null().arg_max() or 0), name)} is missing",
                allowed="a value in every row",
                advice="complete or remove the row; in a CSV file an empty text is written as two double quotes",
            )


def _counts(table: pl.DataFrame, where: Where) -> npt.NDArray[np.int32]:
    """The observations that each row stands for: its count, or one when there is no such column."""
    import polars as pl

    if "count" not in table.columns:
        return np.ones(table.height, dtype=np.int32)
    column = table["count"]
    if column.dtype == pl.String:
        column = column.str.strip_chars().cast(pl.Float64, strict=False)
        if column.null_count():
            place = where(int(column.is_null().arg_max() or 0), "count")
            raise InvalidPopulation(
                f"the count in {place} is not a number",
                allowed=f"whole numbers from 0 to {MAX_USER_TOTAL:,}",
                advice="correct or remove the row",
            )
    elif not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise InvalidPopulation(
            f"the counts have the type {type_name(column.dtype)}",
            allowed="numbers",
            advice="convert the column to integers",
        )
    elif column.dtype.is_decimal() or str(column.dtype).endswith("128"):
        # numpy has no type for these; whole numbers up to the limit are exact in the one they get.
        column = column.cast(pl.Float64)
    return whole_counts(column.to_numpy(), lambda row: where(row, "count"))


def _numbered(column: pl.Series) -> tuple[Integers, Integers]:
    """Each row's value as a number, by first appearance; and the row where each value appears first."""
    import polars as pl

    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        column = column.to_physical()
    changes = (column != column.shift(1)).fill_null(value=True).to_numpy()
    run_starts = np.flatnonzero(changes)
    if 2 * len(run_starts) > len(column):
        return _numbered_one_by_one(column)
    # Files are often sorted by user, and then one row of each run tells all.
    numbers, first_runs = _numbered_one_by_one(column[run_starts])
    return np.repeat(numbers, np.diff(run_starts, append=len(column))), run_starts[first_runs]


def _numbered_one_by_one(column: pl.Series) -> tuple[Integers, Integers]:
    first = _first_rows(column)
    first_rows = np.flatnonzero(first == np.arange(len(first), dtype=first.dtype))
    # Only the rows where a value appears first are ever looked up.
    numbers = np.empty(len(first), dtype=np.int64)
    numbers[first_rows] = np.arange(len(first_rows))
    return numbers[first], first_rows


def _first_rows(column: pl.Series) -> npt.NDArray[np.integer]:
    """For each row the first row that has the same value."""
    import polars as pl

    if column.dtype in (pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < 2 * len(values):
            # Integers that lie close together need no hash table.
            places: Integers = values.astype(np.int64, copy=False) - low
            first = np.full(high - low + 1, len(values), dtype=np.int64)
            np.minimum.at(first, places, np.arange(len(values)))
            return first[places]
    rows = column.to_frame("value").with_row_index("row")
    return rows.select(pl.col("row").first().over("value")).to_series().to_numpy()


def _check_user_totals(
    users: Integers, first_rows: Integers, counts: npt.NDArray[np.int32], where: Where
) -> None:
    if counts.sum(dtype=np.int64) <= MAX_USER_TOTAL:
        return
    too_large = _sums(users, counts, len(first_rows)) > MAX_USER_TOTAL
    if too_large.any():
        place = where(int(first_rows[np.argmax(too_large)]), "user")
        raise InvalidPopulation(
            f"the counts of the user in {place} add up to too much",
            allowed=f"a total of at most {MAX_USER_TOTAL:,} for each user",
            advice="count in larger units",
        )


def _sums(groups: Integers, counts: npt.NDArray[np.int32], length: int) -> Integers:
    sums = np.zeros(length, dtype=np.int64)
    np.add.at(sums, groups, counts.astype(np.int64))
    return sums


def _item_order(labels: pl.Series, totals: Integers) -> Integers:
    import polars as pl

    items = pl.DataFrame({"total": totals, "text": labels.cast(pl.String)}).with_row_index("number")
    ordered = items.sort(
        pl.col("total"), pl.col("text").str.len_bytes(), "text", descending=[True, False, False]
    )
    return ordered["number"].cast(pl.Int64).to_numpy()
