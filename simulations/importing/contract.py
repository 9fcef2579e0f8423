"""The contract of a format: it recognises its files by their first lines, and reads many lines at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from fedhist.protocol.histograms import MAX_USER_TOTAL
from fedhist.simulations.importing.text_lines import Encoding


@dataclass(frozen=True, eq=False)
class Parsed:
    """The records in some lines.

    Args:
        records: the columns user, item (null for a user without items) and count.
        good: a flag for each line; False marks a malformed one.
    """

    records: pl.DataFrame
    good: pl.Series


@dataclass(frozen=True)
class LineReader:
    """How to read one file.

    Args:
        parse: reads lines of text, none of them blank or null.
        header: True when the first line names the columns.
    """

    parse: Callable[[pl.Series], Parsed]
    header: bool = False


class Format(Protocol):
    """A published file format: one module here and one line in the registry."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def shape(self) -> str:
        """What a line looks like, in words."""

    @property
    def encoding(self) -> Encoding:
        """The encoding of the text, unless the user names another."""

    def reader(self, beginning: pl.Series) -> LineReader | None:
        """How to read a file that begins with these lines; None for a file of another format."""


def observations(fields: pl.DataFrame, *, user: str, item: str, right: pl.Expr) -> Parsed:
    """One observation per line for which `right` holds; `user` and `item` are columns."""
    good = fields.select(right.fill_null(value=False)).to_series()
    one = pl.lit(1, dtype=pl.Int64).alias("count")
    return Parsed(
        fields.filter(good).select(pl.col(user).alias("user"), pl.col(item).alias("item"), one), good
    )


def counted(users: pl.Series, items: pl.Series, counts: pl.Series) -> Parsed:
    """Records with counts; a line without a user, an item or a whole count is malformed."""
    table = pl.DataFrame({"user": users, "item": items, "count": counts})
    whole = pl.col("count").is_between(0, MAX_USER_TOTAL) & (pl.col("count") == pl.col("count").floor())
    filled = (pl.col("user").str.len_bytes() > 0) & (pl.col("item").str.len_bytes() > 0)
    good = table.select((whole & filled).fill_null(value=False).alias("good")).to_series()
    return Parsed(records=table.filter(good).with_columns(pl.col("count").cast(pl.Int64)), good=good)
