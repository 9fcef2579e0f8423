"""The order of whole numbers that are not negative, by their digits: several times faster than comparing them."""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import AnyIntegers, Integers

_DIGIT_BITS = 16
# numpy sorts 16-bit numbers by counting. A pass over each digit beats a sort by comparison up to this number of them.
_MOST_DIGITS = 3


def rising_order(keys: AnyIntegers, largest: int) -> Integers:
    """The places of the keys in rising order; equal keys keep theirs.

    Args:
        keys: from 0 to `largest`.
        largest: a bound of the keys.
    """
    bits = largest.bit_length()
    if bits > _MOST_DIGITS * _DIGIT_BITS:
        return np.argsort(keys, kind="stable")
    order: Integers = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(_DIGIT_BITS, bits, _DIGIT_BITS):
        digits = (keys >> shift).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order
