"""The order of whole numbers that are not negative, by digits of 16 bits: several times faster than comparing them.

numpy sorts numbers of 16 bits by counting, at the same speed on every machine. Its sort of 64-bit numbers is five times
as slow on some processors as on others (`docs/decisions/0019-files-larger-than-memory.md`).
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import AnyIntegers, Integers, Words

_DIGIT = 16
# A pass over each digit beats a sort by comparison up to this number of them.
_MOST_DIGITS = 3


def rising_order(keys: AnyIntegers, largest: int) -> Integers:
    """The places of the keys in rising order; equal keys keep theirs.

    Args:
        keys: from 0 to `largest`.
        largest: a bound of the keys.
    """
    bits = max(largest.bit_length(), 1)
    return np.argsort(keys, kind="stable") if bits > _MOST_DIGITS * _DIGIT else order_by((keys, bits))


def order_by(*columns: tuple[AnyIntegers, int]) -> Integers:
    """The stable order of rows by these columns, the last one first in rank. None is negative.

    Args:
        columns: the values, and the number of their low bits that matter.
    """
    order: Integers | None = None
    for values, bits in columns:
        for low in range(0, bits, _DIGIT):
            digits = (values >> values.dtype.type(low) if low else values).astype(np.uint16)
            if order is None:
                order = np.argsort(digits, kind="stable")
            else:
                order = order[np.argsort(digits[order], kind="stable")]
    if order is None:
        return np.arange(len(columns[0][0]))
    return order


def grouped_order(keys: Words, *, known_bits: int = 0) -> tuple[Integers, Integers]:
    """A stable order in which equal keys stand together, and where each group begins.

    Keys are well mixed as a rule: then 32 bits tell nearly all of them apart, in two passes, and those that share these
    bits are sorted once more.

    Args:
        keys: of 64 bits.
        known_bits: the number of first bits that all keys share.
    """
    runs = _starts(keys)
    if 0 < 2 * len(runs) <= len(keys):
        # Files are often sorted by user, and then one row of each run tells all.
        order, starts = grouped_order(keys[runs], known_bits=known_bits)
        sizes = np.diff(runs, append=len(keys))[order]
        begins = np.cumsum(sizes) - sizes
        return np.repeat(runs[order] - begins, sizes) + np.arange(len(keys)), begins[starts]
    known = min(known_bits, 32)
    prefix = (keys >> np.uint64(32 - known)).astype(np.uint32)
    order = order_by((prefix, 32))
    ordered, known_apart = keys[order], prefix[order]
    hidden = np.flatnonzero((ordered[1:] != ordered[:-1]) & (known_apart[1:] == known_apart[:-1]))
    starts = _starts(ordered)
    if len(hidden):
        shared = _starts(known_apart)
        groups = np.unique(np.searchsorted(shared, hidden, side="right") - 1)
        sizes = np.diff(shared, append=len(keys))[groups]
        rows = np.repeat(shared[groups] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        among = order[rows]
        order[rows] = among[np.lexsort((keys[among], prefix[among]))]
        starts = _starts(keys[order])
    return order, starts


def _starts(ordered: AnyIntegers) -> Integers:
    """Where each run of equal values begins."""
    if len(ordered) == 0:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
