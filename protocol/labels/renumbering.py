"""A participant's own item numbers as those of a list that all participants share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat

import numpy as np

from fedhist.protocol.clips.clipping import entry_counts, entry_items
from fedhist.protocol.histograms import AnyIntegers, Histograms, Labels
from fedhist.protocol.keyed import coalesce
from fedhist.protocol.labels.name_bytes import names_at

# Python refuses to read numbers of more digits than this; those stay texts.
_MOST_DIGITS = 4300


def numbers_in(listed: Labels, own: Labels) -> AnyIntegers:
    """The place in the list of each of a participant's items, -1 for one that is not listed.

    Items are equal when they are written alike: the number 5 and the text "5" are one item.
    """
    places: dict[str | int, int] = {}
    for place, name in enumerate(listed):
        places[str(name)] = place
        if (number := _as_number(name)) is not None:
            places[number] = place
    if isinstance(own, range):
        found = np.full(len(own), -1, dtype=np.int32)
        for name, place in places.items():
            if isinstance(name, int) and name in own:
                found[own.index(name)] = place
        return found
    # One pass over names that may be on disk.
    return np.fromiter(map(places.get, own, repeat(-1)), dtype=np.int32, count=len(own))


def distinct_names(own: Labels, *, without: Iterable[str | int] = ()) -> AnyIntegers | None:
    """A number for each of a participant's items, the same where two are written alike and -1 for those left out.

    None if all stay as they are. A loader that names an item twice is not trusted to be none: a user's weights must not
    meet on one name.
    """
    left_out = set(map(str, without))
    if isinstance(own, range) and not left_out:
        return None
    # Names may be on disk, so a pass leaves a hash of each, and only those of equal hashes are compared.
    hashes = np.fromiter(map(hash, map(str, own)), dtype=np.int64, count=len(own))
    doubtful = np.flatnonzero(np.isin(hashes, [*_repeated(hashes).tolist(), *map(hash, left_out)]))
    if not len(doubtful):
        return None
    numbers = np.arange(len(own), dtype=np.int32)
    first: dict[str, int] = {}
    texts = chain.from_iterable(map(str, piece) for piece in names_at(own, doubtful))
    for number, name in zip(doubtful.tolist(), texts, strict=True):
        numbers[number] = -1 if name in left_out else first.setdefault(name, number)
    return numbers


def _repeated(values: AnyIntegers) -> AnyIntegers:
    """The values that are there more than once."""
    ordered = np.sort(values)
    repeated: AnyIntegers = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeated


@dataclass(frozen=True, eq=False)
class Renumbering:
    """A number in a list of `size` items for each of a participant's own; -1 leaves the item out."""

    numbers: AnyIntegers = field(repr=False)
    size: int

    @cached_property
    def _meet(self) -> bool:
        """Whether two items have the same number."""
        return len(_repeated(self.numbers[self.numbers >= 0])) > 0

    def of(self, histograms: Histograms) -> Histograms:
        """The users by these numbers. Items of one number are added up."""
        items, counts = self.numbers[entry_items(histograms)], entry_counts(histograms)
        offsets = histograms.offsets - histograms.offsets[0]
        kept = np.flatnonzero(items >= 0)
        if len(kept) < len(items):
            offsets, items, counts = np.searchsorted(kept, offsets), items[kept], counts[kept]
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


def only_held(users: Histograms, names: Labels) -> tuple[Histograms, list[str | int]]:
    """The same users over the items that they hold, in the same order, and what those are called.

    A few users need a few names, and what they send over an open domain is the same.
    """
    held, numbers = np.unique(entry_items(users), return_inverse=True)
    narrowed = Histograms(
        offsets=users.offsets - users.offsets[0],
        items=numbers,
        counts=entry_counts(users),
        domain_size=len(held),
        first_user=users.first_user,
    )
    return narrowed, [names[number] for number in held.tolist()]


def _as_number(name: str | int) -> int | None:
    """The number that this name is in decimal; None if it is none."""
    if isinstance(name, int):
        return name
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        return None
    return int(name) if str(int(name)) == name else None
