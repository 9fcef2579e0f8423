"""A participant's own item numbers as those of a list that all participants share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

import numpy as np

from fedhist.protocol.clips.clipping import entry_counts, entry_items
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.keyed import coalesce

# Python refuses to read numbers of more digits than this; those stay texts.
_MOST_DIGITS = 4300


def numbers_in(listed: Labels, own: Labels) -> Integers:
    """The place in the list of each of a participant's items, -1 for one that is not listed.

    Items are equal when they are written alike: the number 5 and the text "5" are one item.
    """
    places: dict[str | int, int] = {}
    for place, name in enumerate(listed):
        places[str(name)] = place
        if (number := _as_number(name)) is not None:
            places[number] = place
    if isinstance(own, range):
        found = np.full(len(own), -1, dtype=np.int64)
        for name, place in places.items():
            if isinstance(name, int) and name in own:
                found[own.index(name)] = place
        return found
    return np.fromiter(map(places.get, own, repeat(-1)), dtype=np.int64, count=len(own))


def distinct_names(own: Labels, *, without: Iterable[str | int] = ()) -> Integers | None:
    """A number for each of a participant's items, the same where two are written alike and -1 for those left out.

    None if all stay as they are. A loader that names an item twice is not trusted to be none: a user's weights must not
    meet on one name.
    """
    left_out = set(map(str, without))
    plain = isinstance(own, range) or (len(set(map(type, own))) <= 1 and len(set(own)) == len(own))
    if not left_out and plain:
        return None
    first: dict[str, int] = {}
    return np.fromiter(
        (
            -1 if (name := str(label)) in left_out else first.setdefault(name, number)
            for number, label in enumerate(own)
        ),
        dtype=np.int64,
        count=len(own),
    )


@dataclass(frozen=True, eq=False)
class Renumbering:
    """A number in a list of `size` items for each of a participant's own; -1 leaves the item out."""

    numbers: Integers = field(repr=False)
    size: int

    @cached_property
    def _meet(self) -> bool:
        """Whether two items have the same number."""
        used = np.sort(self.numbers[self.numbers >= 0])
        return bool((used[1:] == used[:-1]).any())

    def of(self, histograms: Histograms) -> Histograms:
        """The users by these numbers. Items of one number are added up."""
        items, counts = self.numbers[entry_items(histograms)], entry_counts(histograms)
        offsets = histograms.offsets - histograms.offsets[0]
        kept = items >= 0
        if not kept.all():
            offsets = np.concatenate([[0], np.cumsum(kept)])[offsets]
            items, counts = items[kept], counts[kept]
        if self._meet:
            owners = np.repeat(np.arange(histograms.users), np.diff(offsets))
            summed = coalesce(owners * self.size + items, counts[:, np.newaxis])
            owners, items = np.divmod(summed.keys, self.size)
            counts = summed.values[:, 0]
            offsets = np.searchsorted(owners, np.arange(histograms.users + 1))
        return Histograms(
            offsets=offsets,
            items=items,
            counts=counts,
            domain_size=self.size,
            first_user=histograms.first_user,
        )


def _as_number(name: str | int) -> int | None:
    """The number that this name is in decimal; None if it is none."""
    if isinstance(name, int):
        return name
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        return None
    return int(name) if str(int(name)) == name else None
