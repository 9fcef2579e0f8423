"""Which items of a table or population are counted, under which numbers, and their names: one Arrow column."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.item_lists import ItemOrigin, first_repeat

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


Numbers = npt.NDArray[np.int32]

NORMALISATIONS: dict[str, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "casefold": lambda text: unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()),
}
"""Ways to write names alike."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The items that are counted.

    Args:
        ranks: the rank of each old number among the chosen items, -1 for an item that is left out. A user's items stand
            in the order of their ranks, which are those without a choice: what a device draws for each of them depends
            on their order, and a list that is sorted otherwise must not change it.
        numbers: the new number of each rank.
        labels: what they are called, by their new numbers.
        dropped_items: how many are left out.
        dropped_count: the sum of their totals.
        origin: what decided which items there are.
    """

    ranks: Numbers = field(repr=False)
    numbers: Numbers = field(repr=False)
    labels: Labels = field(repr=False)
    dropped_items: int
    dropped_count: int
    origin: ItemOrigin


@dataclass(frozen=True)
class ItemChoice:
    """What the user asks for: all items, the most frequent ones, or a public list.

    Args:
        top: keep this many of the most frequent items. It looks at the data, so the choice itself is not private.
        listed: the public list of the closed domain. Labels are compared as text.
        rename: writes names alike; items that are then written the same are one.
    """

    top: int | None = None
    listed: Sequence[str | int] | None = field(default=None, repr=False)
    rename: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        if self.top is not None and self.listed is not None:
            raise InvalidInput(
                "both top_items and items were given",
                allowed="one of the two",
                advice="leave one out",
                code="two-choices-of-items",
            )
        if self.top is not None and self.top < 1:
            raise InvalidInput(
                f"top_items is {self.top}",
                allowed="1 or more",
                advice="leave it out to keep all items",
                code="bad-top-items",
            )
        if self.listed is not None:
            _check_list(self.listed)

    @property
    def given(self) -> bool:
        """Whether there is a choice."""
        return self.top is not None or self.listed is not None or self.rename is not None

    @property
    def truths(self) -> dict[str, str]:
        """What the values of a column of truths are called: as the list calls them, else true and false."""
        titled = self.listed is not None and not {"True", "False"}.isdisjoint(map(str, self.listed))
        return {"true": "True", "false": "False"} if titled else {}

    def of(self, names: Labels, totals: Integers, order_of: Callable[[Integers], Integers]) -> Chosen:
        """The choice from items with these names and totals; `order_of` has the order that these have without one."""
        if self.rename is not None:
            return self._renamed(names, totals, order_of(totals), self.rename)
        if self.listed is not None:
            wanted = {str(label): number for number, label in enumerate(self.listed)}
            found = map(wanted.get, map(str, names), repeat(-1))
            places = np.fromiter(found, dtype=np.int32, count=len(totals))
            order = _order_of_list(self.listed, places, totals)
            return _chosen(places, order, self.listed, totals, ItemOrigin.PUBLIC)
        order = order_of(totals)[: self.top]
        places = np.full(len(totals), -1, dtype=np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        origin = ItemOrigin.DATA if self.top is None else ItemOrigin.TOP
        return _chosen(places, np.arange(len(order)), chosen_names(names, order), totals, origin)

    def _renamed(
        self, names: Labels, totals: Integers, order: Integers, rename: Callable[[str], str]
    ) -> Chosen:
        """Items are merged in the order that they have without a choice, then chosen."""
        renamed = (rename(name) if isinstance(name, str) else name for name in chosen_names(names, order))
        numbers: dict[str | int, int] = {}
        merged = np.empty(len(totals), dtype=np.int32)
        merged[order] = [numbers.setdefault(name, len(numbers)) for name in renamed]
        sums = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(sums, merged, totals)
        labels: Labels = list(numbers)
        if self.listed is not None:
            wanted = list(dict.fromkeys(rename(str(item)) for item in self.listed))
            places = {name: place for place, name in enumerate(wanted)}
            found = np.array([places.get(str(name), -1) for name in numbers], dtype=np.int32)
            labels, origin = wanted, ItemOrigin.PUBLIC
        elif self.top is not None:
            top = np.argsort(-sums, kind="stable")[: self.top]
            found = np.full(len(sums), -1, dtype=np.int32)
            found[top] = np.arange(len(top), dtype=np.int32)
            labels, origin = [labels[number] for number in top.tolist()], ItemOrigin.TOP
        else:
            found, origin = np.arange(len(sums), dtype=np.int32), ItemOrigin.DATA
        kept = found[found >= 0]
        order = np.concatenate([kept, np.setdiff1d(np.arange(len(labels)), kept)])
        chosen = _chosen(found, order, labels, sums, origin)
        return replace(chosen, ranks=chosen.ranks[merged])


ALL_ITEMS = ItemChoice()


def _chosen(places: Numbers, order: Integers, labels: Labels, totals: Integers, origin: ItemOrigin) -> Chosen:
    """The choice of labels.

    Args:
        places: where each old number is among the labels, -1 for nowhere.
        order: the labels' places by rank.
        labels: of the chosen items.
        totals: by old number.
        origin: what decided.
    """
    left_out = places < 0
    # Its last place is for what is left out.
    ranks = np.full(len(labels) + 1, -1, dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return Chosen(
        ranks[places],
        order.astype(np.int32),
        labels,
        dropped_items=int(left_out.sum()),
        dropped_count=int(totals[left_out].sum()),
        origin=origin,
    )


def _order_of_list(listed: Sequence[str | int], places: Numbers, totals: Integers) -> Integers:
    """The places of a list in the order that its items have without a list."""
    import polars as pl

    sums = np.zeros(len(listed), dtype=np.int64)
    there = places >= 0
    sums[places[there]] = totals[there]
    return order_of_texts(pl.Series(map(str, listed), dtype=pl.String), sums)


def _check_list(listed: Sequence[str | int]) -> None:
    wanted = [str(label) for label in listed]
    if isinstance(listed, str) or not wanted:
        problem = "is empty" if not wanted else "is a single text"
        raise InvalidInput(
            f"the list of items {problem}",
            allowed="a list of one or more different labels",
            code="empty-item-list",
        )
    again = first_repeat(wanted)
    if again is not None:
        raise InvalidInput(
            f"item {again[1]:,} of the list of items repeats item {again[0]:,} (the first is item 0)",
            allowed="different labels, as text: 7 and '7' are the same item",
            advice="pass each item of the domain once",
            code="repeated-item",
        )
