"""Which columns of a table hold the user, the item, the count and the time, and which of their values are counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields

from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.item_lists import checked_edges
from fedhist.protocol.plan.window import Window

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
    """

    user: str | int = "user"
    item: str | int = "item"
    count: str | int | None = None
    separator: str | None = None
    bins: Collection[float] | None = None
    time: str | int | None = None
    window: Window | str | None = None

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
        words = {"separator": "separator", "bins": "bins", "window": "a window"}
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
