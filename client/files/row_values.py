"""What is counted of a row: whether it is of a window of time, its bin, and users and items of plain types.

A time is a date or a date with a time of day: a column of that type, or text as ISO 8601 has it (`2026-11-18`,
`2026-11-18T09:30`, `2026-11-18 09:30:00.5`, `...Z`, `...+01:00`). Without a zone it is UTC. Whole numbers are refused:
nothing says whether they are seconds, milliseconds or years.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from fedhist.client.files.columns import Columns, Where
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.plan.window import Window

if TYPE_CHECKING:
    import polars as pl

INSIDE = "inside"
"""The column that says whether a row is of the window; missing where its time can't be read."""

_TEXT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,][0-9]+)?)? ?(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2})?)?)?$"
)
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_ALLOWED = "dates, or dates with a time of day, as in 2026-11-18 or 2026-11-18T09:30:00+01:00"


def with_inside(
    table: pl.DataFrame, window: Window, columns: Columns, where: Where, *, lenient: bool = False
) -> pl.DataFrame:
    """The table with the column INSIDE in place of the time.

    Args:
        table: with a column time.
        window: which rows are wanted.
        columns: what the columns are called.
        where: names a row of this table, for errors.
        lenient: a time that can't be read is missing instead of an error.
    """
    import polars as pl

    seconds = _seconds(table["time"], columns)
    if seconds.null_count() and not lenient:
        raise InvalidPopulation(
            f"the time in {where(int(seconds.is_null().arg_max() or 0), 'time')} is missing or no time",
            allowed=_ALLOWED,
            advice="correct or remove the row",
            code="bad-time",
        )
    inside = (seconds >= window.start) & (seconds < window.end)
    return table.drop("time").with_columns(pl.Series(INSIDE, inside, dtype=pl.Boolean))


def _seconds(times: pl.Series, columns: Columns) -> pl.Series:
    """Whole seconds since 1970 in UTC, rounded down: windows begin and end with a second."""
    import polars as pl

    kind = times.dtype
    if isinstance(kind, pl.Date):
        return times.to_physical().cast(pl.Int64) * _DAY
    if isinstance(kind, pl.Datetime):
        # Times with a zone are held in UTC, too.
        return times.to_physical() // {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.time_unit]
    if not isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null):
        raise InvalidPopulation(
            f"column {columns.time} has the type {kind.base_type()}",
            allowed=_ALLOWED,
            advice="convert it to dates or to text; whole numbers may be seconds or milliseconds, and are not guessed",
            code="times-of-wrong-type",
        )
    return _seconds_of_text(times.cast(pl.String))


def _seconds_of_text(texts: pl.Series) -> pl.Series:
    import polars as pl

    parts = texts.str.strip_chars().str.extract_groups(_TEXT).struct.unnest()
    day, hour, minute, second, sign, zone_hour, zone_minute = (pl.col(name) for name in parts.columns)
    whole = [one.cast(pl.Int64).fill_null(0) for one in (hour, minute, second, zone_hour, zone_minute)]
    of_day = whole[0] * _HOUR + whole[1] * _MINUTE + whole[2]
    of_zone = (whole[3] * _HOUR + whole[4] * _MINUTE) * pl.when(sign == "-").then(-1).otherwise(1)
    in_range = pl.all_horizontal(
        *(one < limit for one, limit in zip(whole, (24, 60, 60, 24, 60), strict=True))
    )
    days = day.str.to_date("%Y-%m-%d", strict=False).to_physical().cast(pl.Int64)
    return parts.select(pl.when(in_range).then(days * _DAY + of_day - of_zone).alias("time"))["time"]


def binned(
    table: pl.DataFrame, edges: Collection[float], where: Where, *, lenient: bool = False
) -> pl.DataFrame:
    """The table with the number of its bin, from 0, in place of each item; -1 for a value outside the edges.

    Args:
        table: with a column item of numbers, or of text that reads as numbers.
        edges: rising.
        where: names a row, for errors.
        lenient: a value that is no finite number becomes a missing one instead of an error.
    """
    import polars as pl

    items = table["item"]
    if items.null_count() and not lenient:
        return table  # refused by `Tabulation`, which has the words
    if not items.dtype.is_numeric():
        items = items.cast(pl.String).str.strip_chars()
    numbers = items.cast(pl.Float64, strict=False)
    values = numbers.fill_null(float("nan")).to_numpy()
    wrong = ~np.isfinite(values)
    if wrong.any() and not lenient:
        raise InvalidPopulation(
            f"the item in {where(int(np.argmax(wrong)), 'item')} is no finite number",
            allowed="numbers in the column of the items when there are bins",
            advice="correct or remove the row",
            code="item-not-a-number",
        )
    places = np.searchsorted(np.fromiter(edges, dtype=np.float64), values, side="right") - 1
    places[places == len(edges) - 1] = -1
    bins = pl.Series("item", places.astype(np.int32))
    return table.with_columns(bins.set(pl.Series(wrong), None) if wrong.any() else bins)


def with_plain_types(
    table: pl.DataFrame, source: str, columns: Columns, error: type[InvalidInput]
) -> pl.DataFrame:
    """The table with users and items as text or integers: categories, dates and users' truth values become text.

    With bins the items may be any numbers.
    """
    import polars as pl

    for role in ("user", "item"):
        kind = table.schema[role]
        if kind == pl.Boolean and role == "item":
            continue
        if kind in (pl.Boolean, pl.Date) or isinstance(kind, pl.Categorical | pl.Enum):
            # Categories have other numbers in every file.
            table = table.with_columns(pl.col(role).cast(pl.String))
        elif kind.is_integer() or isinstance(kind, pl.String | pl.Null):
            continue
        elif not (role == "item" and columns.bins is not None and kind.is_numeric()):
            raise error(
                f"column {columns.name_of(role)} of {source} has the type {type_name(kind)}",
                allowed="strings, integers, categories, truth values or dates"
                + (", and any numbers with bins" if role == "item" else ""),
                advice=_advice_for(kind, role),
                code="column-type",
            )
    return table


def with_named_truths(table: pl.DataFrame, names: dict[str, str]) -> pl.DataFrame:
    """The table with items that are truth values as text: true and false, or what these are called here."""
    import polars as pl

    if table.schema["item"] != pl.Boolean:
        return table
    return table.with_columns(table["item"].cast(pl.String).replace(names))


def type_name(kind: pl.DataType) -> str:
    """The name of a type without the names of fields and categories in it: these may be somebody's data."""
    return str(kind.base_type()) if kind.is_nested() or hasattr(kind, "categories") else str(kind)


def _advice_for(kind: pl.DataType, role: str) -> str:
    import polars as pl

    if kind.is_numeric() and role == "item":
        return "give the edges of bins, or convert the column to integers or text"
    if isinstance(kind, pl.Datetime):
        return "convert the column to dates, or to text as fine as you want it"
    return "convert the column to text or integers"


def decoded(column: pl.Series, encoding: str = "UTF-8") -> pl.Series:
    """Bytes as text; what is none is missing."""
    import polars as pl

    if encoding == "UTF-8":
        try:
            return column.cast(pl.String)
        except pl.exceptions.ComputeError:
            pass
    return pl.Series(column.name, [_text(value, encoding) for value in column], dtype=pl.String)


def _text(value: bytes | None, encoding: str) -> str | None:
    try:
        return None if value is None else value.decode(encoding)
    except UnicodeDecodeError:
        return None
