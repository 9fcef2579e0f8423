"""Sums over a domain that nobody can enumerate: sorted keys with a row of values each.

The order of whole numbers that are not negative, by digits of 16 bits: several times faster than comparing them.

numpy sorts numbers of 16 bits by counting, at the same speed on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.histograms import AnyIntegers, Integers

_DIGIT = 16
# A pass over each digit beats a sort by comparison up to this number of them.
_MOST_DIGITS = 3

_PENDING_ROWS = 1_000_000
_RANGE_ROWS = 1 << 16
# One row of this number is looked at to find where to cut.
_SAMPLED = 64
# With up to this number of keys for each row, counting is faster than sorting.
_DENSE = 4


def rising_order(keys: AnyIntegers, largest: int) -> Integers:
    """The places of the keys in rising order; equal keys keep theirs.

    Args:
        keys: from 0 to `largest`.
        largest: a bound of the keys.
    """
    if largest.bit_length() > _MOST_DIGITS * _DIGIT:
        return np.argsort(keys, kind="stable")
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for low in range(_DIGIT, largest.bit_length(), _DIGIT):
        digits = (keys >> keys.dtype.type(low)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


@dataclass(frozen=True, eq=False)
class Keyed:
    """Rising, distinct keys, each with a row of whole values."""

    keys: Integers = field(repr=False)
    values: Integers = field(repr=False)

    @property
    def length(self) -> int:
        """The number of keys."""
        return len(self.keys)


def coalesce(keys: AnyIntegers, values: Integers) -> Keyed:
    """The rows of equal keys added up; rows that sum to zero stay. No key is negative."""
    if len(keys) == 0:
        return Keyed(keys=keys.astype(np.int64), values=values)
    order = rising_order(keys, int(keys.max()))
    ordered = keys[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    sums = np.empty((len(last), values.shape[1]), dtype=np.int64)
    for column, summed in zip(values.T, sums.T, strict=True):
        # Whole numbers, so the differences of a running sum are exact, also where it wraps around.
        summed[:] = np.cumsum(column[order])[last]
        summed[1:] -= summed[:-1].copy()
    return Keyed(keys=ordered[last].astype(np.int64), values=sums)


def coalesce_dense(keys: Integers, values: Integers, key_space: int) -> Keyed:
    """The same for keys below `key_space`, without a sort: for a space not much larger than the number of keys.

    Exact in doubles: a plan keeps all sums below 2^53.
    """
    present = np.flatnonzero(np.bincount(keys, minlength=key_space))
    sums = [np.bincount(keys, weights=column, minlength=key_space)[present] for column in values.T]
    return Keyed(keys=present, values=np.stack(sums, axis=1).astype(np.int64))


class KeyedSum:
    """Adds up keyed contributions, holding little more than the distinct keys."""

    def __init__(self, columns: int) -> None:
        self._total = Keyed(keys=np.empty(0, dtype=np.int64), values=np.empty((0, columns), dtype=np.int64))
        self._pending: list[Keyed] = []
        self._rows = 0

    def add(self, keyed: Keyed) -> None:
        """Add one contribution."""
        self._pending.append(keyed)
        self._rows += keyed.length
        if self._rows > max(_PENDING_ROWS, self._total.length):
            self._merge()

    def total(self) -> Keyed:
        """The sum so far."""
        self._merge()
        return self._total

    def _merge(self) -> None:
        parts = [part for part in (self._total, *self._pending) if part.length]
        self._pending, self._rows = [], 0
        if len(parts) <= 1:
            self._total = parts[0] if parts else self._total
            return
        # Room for all rows: what is not filled takes no memory.
        rows = sum(part.length for part in parts)
        keys, filled = np.empty(rows, dtype=np.int64), 0
        values = np.empty((rows, self._total.values.shape[1]), dtype=np.int64)
        for cut in _ranges(parts):
            piece = _summed(cut)
            end = filled + piece.length
            keys[filled:end], values[filled:end], filled = piece.keys, piece.values, end
        self._total = Keyed(keys=keys[:filled], values=values[:filled])


def _ranges(parts: Sequence[Keyed]) -> Iterator[list[Keyed]]:
    """The parts cut at the same keys, range by range, so that the rows of a range fit in a cache."""
    rows = sum(part.length for part in parts)
    sample = np.sort(np.concatenate([part.keys[::_SAMPLED] for part in parts]))
    edges = np.unique(sample[:: max(1, _RANGE_ROWS // _SAMPLED)][1:]) if rows > _RANGE_ROWS else sample[:0]
    cuts = [np.concatenate([[0], np.searchsorted(part.keys, edges), [part.length]]) for part in parts]
    for low, high in itertools.pairwise(np.stack(cuts, axis=1).tolist()):
        yield [
            Keyed(keys=part.keys[start:stop], values=part.values[start:stop])
            for part, start, stop in zip(parts, low, high, strict=True)
            if stop > start
        ]


def _summed(parts: Sequence[Keyed]) -> Keyed:
    """The sum of these parts, of which there is one with a key."""
    first = min(int(part.keys[0]) for part in parts)
    keys = np.concatenate([part.keys for part in parts]) - first
    values = np.concatenate([part.values for part in parts])
    space = int(keys.max()) + 1
    summed = coalesce_dense(keys, values, space) if space <= _DENSE * len(keys) else coalesce(keys, values)
    return Keyed(keys=summed.keys + first, values=summed.values)
