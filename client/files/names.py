"""The names of items: one Arrow column, in an order that depends on nothing but the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from fedhist.protocol.histograms import Integers, Labels

if TYPE_CHECKING:
    import polars as pl

_BLOCK = 1 << 14
# More names than these stay in their column. As Python's texts they take several times as much.
_MOST_TEXTS = 1 << 16


@dataclass(frozen=True, eq=False)
class StoredNames(Sequence[str | int]):
    """Names in a column, each made Python's own when it is needed."""

    column: pl.Series = field(repr=False)

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, number: int) -> str | int: ...

    @overload
    def __getitem__(self, number: slice) -> list[str | int]: ...

    def __getitem__(self, number: int | slice) -> str | int | list[str | int]:
        """One name, or a list of them for a slice."""
        if isinstance(number, slice):
            return self.column[number].to_list()
        name: str | int = self.column[number]
        return name

    def __iter__(self) -> Iterator[str | int]:
        """All of them, in order."""
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK]


def chosen_names(names: Labels, numbers: Integers) -> Labels:
    """The names with these numbers, in this order."""
    if not isinstance(names, StoredNames):
        return [names[number] for number in numbers.tolist()]
    chosen = StoredNames(names.column.gather(numbers))
    return chosen if len(chosen) > _MOST_TEXTS else list(chosen)


def order_of_texts(texts: pl.Series, totals: Integers) -> Integers:
    """The places of texts by falling total, equal totals by the length in UTF-8, then by code points."""
    import polars as pl

    items = pl.DataFrame({"total": totals, "text": texts})
    keys = pl.col("total"), pl.col("text").str.len_bytes(), "text"
    order = items.select(pl.arg_sort_by(*keys, descending=[True, False, False]))
    return order.to_series().cast(pl.Int64).to_numpy()
