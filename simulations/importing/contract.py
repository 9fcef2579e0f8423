"""The contract of a format: it recognises its files by their first lines, and reads many lines at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

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


class Format(ABC):
    """A published file format: one module here and one line in the registry.

    Args:
        name: on the command line.
        shape: what a line looks like, in words.
        encoding: of the text, unless the user names another.
    """

    name: str
    shape: str
    encoding: Encoding = "utf-8"

    @abstractmethod
    def reader(self, beginning: pl.Series) -> LineReader | None:
        """How to read a file that begins with these lines; None for a file of another format."""


def observations(fields: pl.DataFrame, *, user: str, item: str, right: pl.Expr) -> Parsed:
    """One observation per line for which `right` holds; `user` and `item` are columns."""
    good = fields.select(right.fill_null(value=False)).to_series()
    one = pl.lit(1, dtype=pl.Int64).alias("count")
    return Parsed(
        fields.filter(good).select(pl.col(user).alias("user"), pl.col(item).alias("item"), one), good
    )


def counted(table: pl.DataFrame) -> Parsed:
    """Records with counts; a line without a user, an item or a whole count is malformed."""
    whole = pl.col("count").is_between(0, MAX_USER_TOTAL) & (pl.col("count") == pl.col("count").floor())
    filled = (pl.col("user").str.len_bytes() > 0) & (pl.col("item").str.len_bytes() > 0)
    good = table.select((whole & filled).fill_null(value=False).alias("good")).to_series()
    return Parsed(records=table.filter(good).with_columns(pl.col("count").cast(pl.Int64)), good=good)
