"""Which rows of a table are of a window of time.

A time is a date or a date with a time of day: a column of that type, or text as ISO 8601 has it (`2026-11-18`,
`2026-11-18T09:30`, `2026-11-18 09:30:00.5`, `...Z`, `...+01:00`). Without a zone it is UTC. Whole numbers are refused:
nothing says whether they are seconds, milliseconds or years.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhist.client.files.columns import Columns, Where
from fedhist.protocol.errors import InvalidPopulation
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
