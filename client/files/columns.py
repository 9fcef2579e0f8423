"""Which columns of a table hold the user, the item, the count and the time, and what is counted of their values.

A time is a date or a date with a time of day: a column of that type, or text as ISO 8601 has it (`2026-11-18`,
`2026-11-18T09:30`, `2026-11-18 09:30:00.5`, `...Z`, `...+01:00`). Without a zone it is UTC. Whole numbers are refused:
nothing says whether they are seconds, milliseconds or years.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidFile, InvalidInput, InvalidPopulation
from fedhist.protocol.item_lists import checked_edges
from fedhist.protocol.plan.window import Window

if TYPE_CHECKING:
    import polars as pl

ROLES = ("user", "item", "count")

# The same words reach people at a command line and the operator of a node, in its log.
_ON_NODES = "a node's configuration has the same keys without --"

Where = Callable[[int, str], str]
"""Words for the value of a role in a row of a table, by the row's index from 0."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and how a text file separates them.

    Args:
        user, item: the names of these columns. The defaults are found in any case (User, ITEM), other names exactly. In
            a text file without a line of names, the numbers of its columns, from 1.
        count: the name of the column that says how many observations a row stands for. Without it that is the column
            count, in any case, or one observation a row if there is none.
        separator: the character between the fields of a text file; without it a comma, or a tab in .tsv files.
        bins: rising edges. Each value of the item column, a number, becomes the bin from one edge up to but without
            the next. The bins are the items, empty ones too. Values outside all edges are left out, as in
            `numpy.histogram`; with -inf or inf as an end edge there are none on that side.
        time: the name of the column that says when; read with a window only.
        window: rows of other times are left out, as in 2026-W47 (see `Window`). Their users stay: how many there are
            does not depend on the window.
        strict: the first row without a user, an item or a count is an error instead of being left out. Never on a node.
    """

    user: str | int = "user"
    item: str | int = "item"
    count: str | int | None = None
    separator: str | None = None
    bins: Collection[float] | None = None
    time: str | int | None = None
    window: Window | str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        named = (self.user, self.item, self.count or "count", *(() if self.time is None else (self.time,)))
        given = [name for name in (self.user, self.item, self.count, self.time) if name is not None]
        numbers = [
            name for name in given if isinstance(name, int) and not isinstance(name, bool) and name > 0
        ]
        if not all(isinstance(name, str) and name for name in given) and len(numbers) < len(given):
            raise InvalidInput(
                "the name of a column is empty or no text, or only some columns are given by number",
                allowed="the names of columns as text; in a text file without a line of names, the numbers from 1 of "
                "the user's, the item's and all other columns that are read",
                code="bad-column-name",
            )
        if len(set(named)) < len(named):
            raise InvalidInput(
                "one column is named for two things",
                allowed="different columns for the user, item, count and time",
                code="column-used-twice",
            )
        if self.separator is not None:
            object.__setattr__(self, "separator", _checked_separator(self.separator))
        if self.bins is not None:
            object.__setattr__(self, "bins", checked_edges(self.bins))
        if isinstance(self.window, str):
            object.__setattr__(self, "window", Window.parse(self.window))
        if self.window is not None and self.time is None:
            raise InvalidInput(
                f"the window {self.window} without a time column",
                allowed="a window for tables with a column of times",
                advice="name it with --time-column",
                code="window-without-times",
            )

    @property
    def numbered(self) -> bool:
        """Whether they are given by number, for a text file without a line of names."""
        return not isinstance(self.user, str)

    @property
    def roles(self) -> dict[str, str]:
        """The names of the columns of the user, the item and the count, and with a window of the time."""
        names = {"user": str(self.user), "item": str(self.item), "count": str(self.count or "count")}
        return names if self.window is None or self.time is None else names | {"time": str(self.time)}

    @property
    def names(self) -> tuple[str, ...]:
        """These names alone."""
        return tuple(self.roles.values())

    def name_of(self, role: str) -> str:
        """The name of the column of the user, item, count or time."""
        return self.roles[role]

    @property
    def given(self) -> tuple[str, ...]:
        """The fields that differ from their defaults."""
        compared = (one for one in fields(self) if one.compare)
        return tuple(one.name for one in compared if getattr(self, one.name) != one.default)

    def in_words(self) -> str:
        """The fields that differ from their defaults, for a sentence."""
        words = {"separator": "separator", "bins": "bins", "window": "a window", "strict": "strict"}
        return ", ".join(words.get(name, f"a {name} column") for name in self.given)

    def found_in(self, names: Sequence[object]) -> dict[str, list[str]]:
        """The names of a table's columns that fit each role."""
        wanted = self.roles
        exact = {name for role, name in wanted.items() if name != role}
        texts = [name for name in names if isinstance(name, str)]
        return {
            role: [
                text
                for text in texts
                if (text == name if name in exact else text.lower() == role and text not in exact)
            ]
            for role, name in wanted.items()
        }

    def named_in(self, names: Sequence[object]) -> dict[str, str] | None:
        """From a table's own names of the columns that are read to user, item, count and time.

        None if one is missing or there twice.
        """
        found = self.found_in(names)
        count_fits = len(found["count"]) == 1 or (self.count is None and not found["count"])
        if count_fits and all(len(fitting) == 1 for role, fitting in found.items() if role != "count"):
            return {one: role for role, fitting in found.items() for one in fitting}
        return None

    def missing_in(self, names: Sequence[object]) -> list[str]:
        """The names of wanted columns that a table does not have."""
        found = self.found_in(names)
        wanted = {
            role: name for role, name in self.roles.items() if role != "count" or self.count is not None
        }
        return [name for role, name in wanted.items() if not found[role]]


USUAL_COLUMNS = Columns()
"""user, item and maybe count."""


def placed_columns(path: str, found: list[str], columns: Columns) -> dict[int, str]:
    """From the places of the columns that are read in a text file, from 0, to user, item, count and time."""
    if not columns.numbered:
        return {found.index(name): role for name, role in named_columns(path, found, columns).items()}
    places = {int(name) - 1: role for role, name in columns.roles.items() if name.isdecimal()}
    if max(places) >= len(found):
        raise InvalidFile(
            f"the first line of {path} has {len(found)} columns, and one with a higher number was asked for",
            allowed="the numbers of columns, from 1",
            advice=f"check --user-column, --item-column and the --separator; {_ON_NODES}",
            code="too-few-columns",
        )
    return places


def named_columns(path: str, found: list[str], columns: Columns) -> dict[str, str]:
    """From the file's own names of the columns we read to user, item and count."""
    names = columns.named_in(found)
    if names is not None:
        return names
    # Not the names that were found: in a file without a line of names these are somebody's data.
    if {"user", "item", "count", "window"} & set(columns.given):
        missing = ", ".join(map(repr, columns.missing_in(found)))
        problem = f"and none of them is called {missing}" if missing else "and two of them have the same name"
        if {name.lower() for name in columns.missing_in(found)} & {name.lower() for name in found}:
            problem += ", but one differs only in upper and lower case"
        raise InvalidFile(
            f"{path} has {len(found)} columns, {problem}",
            allowed="the names of columns as the first line has them, each once",
            advice="check --user-column, --item-column, --count-column and --time-column, and the --separator; "
            f"{_ON_NODES}",
            code="missing-column",
        )
    matches = [name.lower() for name in found if name.lower() in ROLES]
    known = ", ".join(matches) or "none of user, item and count"
    columns_named = "name them with --user-column, --item-column and --count-column"
    separated = "name the character between the fields with --separator"
    raise InvalidFile(
        f"{path} has {len(found)} columns, and {known} among their names",
        allowed="one column user, one column item and at most one column count, in any case, among others",
        advice=f"{separated if len(found) == 1 else columns_named}, or add a first line with their names; {_ON_NODES}",
        code="unknown-columns",
    )


def column_number(text: str) -> int:
    """The number of a column of a table without a line of names."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidInput(
            f"a column of a table without a line of names is called {text!r}",
            allowed="the numbers of columns, from 1: --no-header --user-column 1 --item-column 2",
        )
    return int(text)


def _checked_separator(text: str) -> str:
    separator = "\t" if text in ("tab", "\\t") else text
    # polars splits bytes, and quotes and line ends have a meaning of their own.
    if not (isinstance(text, str) and len(separator) == 1 and separator.isascii()) or separator in '"\r\n\0':
        raise InvalidInput(
            "the separator is no single character",
            allowed="one ASCII character that is no quote and no line end; tab or \\t for a tab",
            code="bad-separator",
        )
    return separator


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
    wrong = seconds.is_null() & table["time"].is_not_null()
    if wrong.any() and not lenient:
        raise InvalidPopulation(
            f"the time in {where(int(wrong.arg_max() or 0), 'time')} is no time",
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
    import numpy as np
    import polars as pl

    items = table["item"]
    if not items.dtype.is_numeric():
        items = items.cast(pl.String).str.strip_chars()
    numbers = items.cast(pl.Float64, strict=False)
    values = numbers.fill_null(float("nan")).to_numpy()
    wrong = ~np.isfinite(values)
    odd = wrong & items.is_not_null().to_numpy()
    if odd.any() and not lenient:
        raise InvalidPopulation(
            f"the item in {where(int(np.argmax(odd)), 'item')} is no finite number",
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
