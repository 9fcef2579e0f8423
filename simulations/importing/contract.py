"""What a format is: it knows its own files by their first lines, and reads users and items off many lines at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedhist.protocol.histograms import MAX_USER_TOTAL
from fedhist.simulations.importing.text_lines import Encoding

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class Parsed:
    """What lines say.

    Args:
        records: the columns user, item (null for a user who is there and has nothing) and count.
        good: which of the lines follow the format; the others are malformed.
    """

    records: pl.DataFrame
    good: pl.Series


@dataclass(frozen=True)
class LineReader:
    """How one file is read.

    Args:
        parse: reads lines of text, none of them blank or null.
        header: whether the first line is none of them, but names the columns.
    """

    parse: Callable[[pl.Series], Parsed]
    header: bool = False


class Format(Protocol):
    """One way in which data is published. One file here, one line in the registry."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def shape(self) -> str:
        """What a line looks like, in words."""

    @property
    def encoding(self) -> Encoding:
        """How its text is encoded."""

    def reader(self, path: Path, beginning: Sequence[str]) -> LineReader | None:
        """How to read a file that begins with these lines, the first of them first; None if it is of another format."""


def observations(users: pl.Series, items: pl.Series, good: pl.Series) -> Parsed:
    """One observation for each good line."""
    import polars as pl  # noqa: PLC0415 - loads when a file is imported

    table = pl.DataFrame({"user": users, "item": items}).filter(good)
    return Parsed(records=table.with_columns(pl.lit(1, dtype=pl.Int64).alias("count")), good=good)


def counted(users: pl.Series, items: pl.Series, counts: pl.Series) -> Parsed:
    """As many observations as a count says, for lines that have a user, an item and a whole count."""
    import polars as pl  # noqa: PLC0415 - loads when a file is imported

    table = pl.DataFrame({"user": users, "item": items, "count": counts})
    whole = pl.col("count").is_between(0, MAX_USER_TOTAL) & (pl.col("count") == pl.col("count").floor())
    filled = (pl.col("user").str.len_bytes() > 0) & (pl.col("item").str.len_bytes() > 0)
    good = table.select((whole & filled).fill_null(value=False).alias("good")).to_series()
    return Parsed(records=table.filter(good).with_columns(pl.col("count").cast(pl.Int64)), good=good)
