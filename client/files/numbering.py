"""Numbers for keys, by first appearance: a hash table in numpy, for millions of rows at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedhist.protocol.histograms import Integers, Words

Numbers = npt.NDArray[np.int32]

_EMPTY = -1
_FIRST_BITS = 12
# A small table fits in a core's cache, so it may be spread thin: keys then rarely meet.
_SPACIOUS = 1 << 17
_SPREAD = 16


class Numbering:
    """Numbers 0, 1, 2, ... for keys of 64 bits, as they first appear.

    Open addressing with linear probing, at most half full, and far less while the table is small. A slot is the first
    bits of a key, so keys have to be mixed well. All rows look up at once, and those that met another key look again.
    """

    def __init__(self) -> None:
        self.length = 0
        self._bits = _FIRST_BITS
        self._keys = np.zeros(1 << self._bits, dtype=np.uint64)
        self._numbers = np.full(1 << self._bits, _EMPTY, dtype=np.int32)

    def of(self, keys: Words) -> tuple[Numbers, Integers]:
        """The number of each key, and the places at which new ones appear first, in the order of their numbers."""
        numbers = self._find(keys)
        missing = np.flatnonzero(numbers == _EMPTY)
        if len(missing) == 0:
            return numbers, missing
        _, first = np.unique(keys[missing], return_index=True)
        first = missing[np.sort(first)]
        self._add(keys[first])
        numbers[missing] = self._find(keys[missing])
        return numbers, first

    def _find(self, keys: Words) -> Numbers:
        """The number of each key, -1 for those that are not there."""
        slots = (keys >> np.uint64(64 - self._bits)).astype(np.intp)
        numbers = self._numbers[slots]
        astray = np.flatnonzero((self._keys[slots] != keys) & (numbers != _EMPTY))
        slots = slots[astray]
        while len(astray):
            slots = (slots + 1) & (len(self._keys) - 1)
            numbers[astray] = self._numbers[slots]
            on = (self._keys[slots] != keys[astray]) & (numbers[astray] != _EMPTY)
            astray, slots = astray[on], slots[on]
        return numbers

    def _add(self, keys: Words) -> None:
        """Give new, distinct keys the next numbers."""
        numbers = np.arange(self.length, self.length + len(keys), dtype=np.int32)
        self.length += len(keys)
        spread = _SPREAD if len(self._keys) < _SPACIOUS else 2
        if spread * self.length > len(self._keys):
            there = np.flatnonzero(self._numbers != _EMPTY)
            keys = np.concatenate([self._keys[there], keys])
            numbers = np.concatenate([self._numbers[there], numbers])
            self._bits = (spread * self.length - 1).bit_length() + 1
            self._keys = np.zeros(1 << self._bits, dtype=np.uint64)
            self._numbers = np.full(1 << self._bits, _EMPTY, dtype=np.int32)
        slots = (keys >> np.uint64(64 - self._bits)).astype(np.intp)
        while len(keys):
            free = self._numbers[slots] == _EMPTY
            # Of several keys for one slot the last stays, and the others go on.
            self._keys[slots[free]] = keys[free]
            self._numbers[slots[free]] = numbers[free]
            left = self._numbers[slots] != numbers
            keys, numbers, slots = keys[left], numbers[left], (slots[left] + 1) & (len(self._keys) - 1)
