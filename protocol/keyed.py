"""Sums over a domain that nobody can enumerate: sorted keys with a row of values each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.histograms import Integers

_PENDING_ROWS = 1_000_000


@dataclass(frozen=True, eq=False)
class Keyed:
    """Rising, distinct keys, each with a row of whole values."""

    keys: Integers = field(repr=False)
    values: Integers = field(repr=False)

    @property
    def length(self) -> int:
        """The number of keys."""
        return len(self.keys)


def coalesce(keys: Integers, values: Integers) -> Keyed:
    """The rows of equal keys added up; rows that sum to zero stay."""
    if len(keys) == 0:
        return Keyed(keys=keys, values=values)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return Keyed(keys=ordered[starts], values=np.add.reduceat(values[order], starts, axis=0))


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
        keys = np.concatenate([part.keys for part in parts])
        values = np.concatenate([part.values for part in parts])
        del parts
        space = int(keys.max()) + 1
        dense = space <= len(keys)
        self._total = coalesce_dense(keys, values, space) if dense else coalesce(keys, values)
