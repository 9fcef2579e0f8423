"""Which columns of a table hold the user, the item and the count, and how the values of items are binned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.labels.intervals import checked_edges

ROLES = ("user", "item", "count")

Where = Callable[[int, str], str]
"""Words for the value of a role in a row of a table, by the row's index from 0."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and how a text file separates them.

    Args:
        user, item: the names of these columns. The defaults are found in any case (User, ITEM), other names exactly.
        count: the name of the column that says how many observations a row stands for. Without it that is the column
            count, in any case, or one observation a row if there is none.
        separator: the character between the fields of a text file; without it a comma, or a tab in .tsv files.
        bins: rising edges. Each value of the item column, a number, becomes the bin from one edge up to but without
            the next. The bins are the items, empty ones too. Values outside all edges are left out, as in
            `numpy.histogram`; with -inf or inf as an end edge there are none on that side.
    """

    user: str = "user"
    item: str = "item"
    count: str | None = None
    separator: str | None = None
    bins: Collection[float] | None = None

    def __post_init__(self) -> None:
        named = self.names
        if not all(isinstance(name, str) and name for name in named):
            raise InvalidInput(
                "the name of a column is empty or no text", allowed="the names of columns as text"
            )
        if len(set(named)) < len(named):
            raise InvalidInput(
                "one column is named for two things", allowed="different columns for the user, item and count"
            )
        if self.separator is not None:
            object.__setattr__(self, "separator", _checked_separator(self.separator))
        if self.bins is not None:
            object.__setattr__(self, "bins", checked_edges(self.bins))

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the columns of the user, the item and the count."""
        return self.user, self.item, self.count or "count"

    def name_of(self, role: str) -> str:
        """The name of the column of the user, item or count."""
        return self.names[ROLES.index(role)]

    @property
    def given(self) -> tuple[str, ...]:
        """The fields that differ from their defaults."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) != one.default)

    def in_words(self) -> str:
        """The fields that differ from their defaults, for a sentence."""
        return ", ".join(name if name in ("separator", "bins") else f"a {name} column" for name in self.given)

    def found_in(self, names: Sequence[object]) -> dict[str, list[str]]:
        """The names of a table's columns that fit each of user, item and count."""
        wanted = dict(zip(ROLES, self.names, strict=True))
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
        """From a table's own names of the columns that are read to user, item and count.

        None if one is missing or there twice.
        """
        found = self.found_in(names)
        count_fits = len(found["count"]) == 1 or (self.count is None and not found["count"])
        if len(found["user"]) == len(found["item"]) == 1 and count_fits:
            return {one: role for role, fitting in found.items() for one in fitting}
        return None

    def missing_in(self, names: Sequence[object]) -> list[str]:
        """The names of wanted columns that a table does not have."""
        found = self.found_in(names)
        wanted = {"user": self.user, "item": self.item} | (
            {} if self.count is None else {"count": self.count}
        )
        return [name for role, name in wanted.items() if not found[role]]


USUAL_COLUMNS = Columns()
"""user, item and maybe count."""


def _checked_separator(text: str) -> str:
    separator = "\t" if text in ("tab", "\\t") else text
    # polars splits bytes, and quotes and line ends have a meaning of their own.
    if not (isinstance(text, str) and len(separator) == 1 and separator.isascii()) or separator in '"\r\n\0':
        raise InvalidInput(
            "the separator is no single character",
            allowed="one ASCII character that is no quote and no line end; tab or \\t for a tab",
        )
    return separator
