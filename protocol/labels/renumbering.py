"""A participant's own item numbers as those of a list that all participants share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedhist.protocol.clips.clipping import entry_counts, entry_items, row_sums
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.sketch.buckets import item_bytes


def numbers_in(listed: Labels, own: Labels) -> Integers:
    """The place in the list of each of a participant's items, -1 for one that is not listed.

    Items are equal when they are written alike: the number 5 and the text "5" are one item.
    """
    if isinstance(own, range) and own == range(len(own)):
        found = np.full(len(own), -1, dtype=np.int64)
        for place, name in enumerate(listed):
            number = _as_number(name)
            if 0 <= number < len(own):
                found[number] = place
        return found
    places = {item_bytes(name): place for place, name in enumerate(listed)}
    return np.fromiter((places.get(item_bytes(name), -1) for name in own), dtype=np.int64, count=len(own))


def distinct_names(own: Labels, *, without: Iterable[str | int] = ()) -> Integers | None:
    """A number for each of a participant's items, the same where two are written alike and -1 for those left out.

    None if all stay as they are. A loader that names an item twice is not trusted to be none: a user's weights must not
    meet on one name.
    """
    left_out = {item_bytes(name) for name in without}
    plain = isinstance(own, range) or (len(set(map(type, own))) <= 1 and len(set(own)) == len(own))
    if not left_out and plain:
        return None
    first: dict[bytes, int] = {}
    return np.fromiter(
        (
            -1 if (name := item_bytes(label)) in left_out else first.setdefault(name, number)
            for number, label in enumerate(own)
        ),
        dtype=np.int64,
        count=len(own),
    )


def renumbered(histograms: Histograms, numbers: Integers, size: int) -> Histograms:
    """The users over `size` items by these numbers, without items of number -1; items of one number are added up."""
    items = numbers[entry_items(histograms)]
    kept = items >= 0
    lengths = row_sums(kept.astype(np.int64), histograms.offsets)
    items, counts = items[kept], entry_counts(histograms)[kept]
    used = np.sort(numbers[numbers >= 0])
    if (used[1:] == used[:-1]).any():
        places = np.repeat(np.arange(histograms.users), lengths) * size + items
        order = np.argsort(places, kind="stable")
        places = places[order]
        starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]])[: len(places)])
        counts = np.add.reduceat(counts[order], starts) if len(starts) else counts
        users, items = np.divmod(places[starts], size)
        lengths = np.bincount(users, minlength=histograms.users)
    return Histograms(
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        items=items,
        counts=counts,
        domain_size=size,
        first_user=histograms.first_user,
    )


def _as_number(name: str | int) -> int:
    """The number that this name is in decimal; -1 if it is none."""
    if isinstance(name, int):
        return name
    return int(name) if name.isascii() and name.isdecimal() and str(int(name)) == name else -1
