"""Names in the order of their bytes, sixteen bytes at a time: what is in memory of a name is two words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhist.protocol.histograms import Flags, Integers, Labels, Words
from fedhist.protocol.labels.name_bytes import in_bytes, names_at

_WORDS = 2
_WINDOW = 8 * _WORDS


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
