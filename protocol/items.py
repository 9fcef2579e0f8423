"""The names of an open domain read in pieces, and their bytes as arrays. They may be on disk, and are never all here.

What takes names takes any sequence: its length, one name, a slice, and all of them in order.

Names in the order of their bytes are sorted by sixteen bytes at a time: what is in memory of a name is two words. A
participant's own item numbers become those of a list that all participants share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, repeat

import numpy as np
import numpy.typing as npt

from fedhist.protocol.clipping import entry_counts, entry_items
from fedhist.protocol.histograms import AnyIntegers, Flags, Histograms, Integers, Labels, Words
from fedhist.protocol.keyed import coalesce

PIECE = 1 << 13
"""The number of names that are in memory at once."""

# A slice is read at once, and a name alone with a read of its own. With fewer than this share of a piece, one by one.
_FEW = 1 / 64

_WORDS = 2
_WINDOW = 8 * _WORDS

# Python refuses to read numbers of more digits than this; those stay texts.
_MOST_DIGITS = 4300


def item_bytes(label: str | int) -> bytes:
    """An item as it is hashed and compared: UTF-8, integers in decimal. No normalisation.

    A lone surrogate, half a character that JSON may hold, is encoded like any other, as on the wire.
    """
    return str(label).encode("utf-8", errors="surrogatepass")


def in_pieces(names: Labels) -> Iterator[Sequence[str | int]]:
    """All names in order, a piece of them at a time, in one pass."""
    if isinstance(names, range):
        yield from (names[start : start + PIECE] for start in range(0, len(names), PIECE))
        return
    rest = iter(names)
    while piece := list(islice(rest, PIECE)):
        yield piece


def names_at(names: Labels, numbers: Integers) -> Iterator[Sequence[str | int]]:
    """The names of these numbers, which rise, a piece of them at a time."""
    start = 0
    while start < len(numbers):
        first = int(numbers[start])
        stop = start + int(np.searchsorted(numbers[start:], first + PIECE))
        chosen = numbers[start:stop]
        if isinstance(names, range) or len(chosen) < _FEW * PIECE:
            yield [names[number] for number in chosen.tolist()]
        else:
            piece = names[first : int(chosen[-1]) + 1]
            yield [piece[place] for place in (chosen - first).tolist()]
        start = stop


def in_bytes(names: Sequence[str | int]) -> tuple[npt.NDArray[np.uint8], Integers]:
    """The bytes of these names one after the other, as in `item_bytes`, and how many each has."""
    texts = list(map(str, names))
    whole = "".join(texts)
    encoded = whole.encode("utf-8", errors="surrogatepass")
    # As many bytes as characters: each has one.
    sizes = map(len, texts if len(encoded) == len(whole) else map(item_bytes, texts))
    return np.frombuffer(encoded, dtype=np.uint8), np.fromiter(sizes, dtype=np.int64, count=len(texts))


def byte_lengths(names: Labels, numbers: Integers) -> Integers:
    """How many bytes the names of these numbers have, which rise."""
    lengths = [in_bytes(piece)[1] for piece in names_at(names, numbers)]
    return np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.int64)


def byte_order(names: Labels, numbers: Integers) -> tuple[Integers, Flags]:
    """The places of these numbers in the order of their names' bytes, and which name is the one before it.

    Equal names keep the order of their places. Names that agree in their first bytes are read again for the next ones.

    Args:
        names: what items are called.
        numbers: rising numbers of items.
    """
    order = np.arange(len(numbers))
    again = np.zeros(len(numbers), dtype=bool)
    # The ranks that are not settled, and which of them are for names that are equal so far.
    ranks, group = np.arange(len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    start = 0
    while len(ranks):
        places = order[ranks]
        words = _read_words(names, numbers[places], start)
        if not _in_order(words, group):
            # The last key is the first to sort by.
            sorted_by = np.lexsort((*words[::-1], group))
            order[ranks], words = places[sorted_by], words[:, sorted_by]
        tied = (group[1:] == group[:-1]) & (words[:, 1:] == words[:, :-1]).all(axis=0)
        ended = (words[-1, 1:] & np.uint64(0xFF)) == 0
        again[ranks[1:][tied & ended]] = True
        tied &= ~ended
        open_ = np.concatenate([tied, [False]]) | np.concatenate([[False], tied])
        group = np.cumsum(np.concatenate([[True], ~tied]))[open_]
        ranks = ranks[open_]
        start += _WINDOW
    return order, again


def _in_order(words: Words, group: Integers) -> bool:
    """Whether words rise within their groups, as in a list that was sorted before."""
    first, second = words
    rise = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] >= second[:-1]))
    return bool((rise | (group[1:] > group[:-1])).all())


def _read_words(names: Labels, numbers: Integers, start: int) -> Words:
    """The words of the names of these numbers, which need not rise: names are read in the order that they have."""
    words = np.empty((_WORDS, len(numbers)), dtype=np.uint64)
    rising = None if (numbers[1:] > numbers[:-1]).all() else np.argsort(numbers, kind="stable")
    filled = 0
    for piece in names_at(names, numbers if rising is None else numbers[rising]):
        places = slice(filled, filled + len(piece))
        words[:, places if rising is None else rising[places]] = _words(piece, start)
        filled += len(piece)
    return words


def _words(names: Sequence[str | int], start: int) -> Words:
    """The bytes of each name from this one on as words that compare like them.

    UTF-8 has no byte 255, so every byte is raised by one, and 0 stands for the end: a name comes before those that it
    begins.
    """
    data, lengths = in_bytes(names)
    first = np.cumsum(lengths) - lengths + start
    window = np.arange(_WINDOW)
    padded = np.concatenate([data + np.uint8(1), np.zeros(_WINDOW + start, dtype=np.uint8)])
    letters = padded[first[:, np.newaxis] + window]
    letters[window >= (lengths - start)[:, np.newaxis]] = 0
    words: Words = letters.view(">u8").T.astype(np.uint64)
    return words


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
