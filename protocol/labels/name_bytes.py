"""The names of an open domain read in pieces, and their bytes as arrays. They may be on disk, and are never all here.

What takes names takes any sequence: its length, one name, a slice, and all of them in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from fedhist.protocol.histograms import Integers, Labels

PIECE = 1 << 13
"""The number of names that are in memory at once."""

# A slice is read at once, and a name alone with a read of its own. With fewer than this share of a piece, one by one.
_FEW = 1 / 64


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
