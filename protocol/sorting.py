"""The order of whole numbers that are not negative, by digits of 16 bits: several times faster than comparing them.

numpy sorts numbers of 16 bits by counting, at the same speed on every machine.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import AnyIntegers, Integers

_DIGIT = 16
# A pass over each digit beats a sort by comparison up to this number of them.
_MOST_DIGITS = 3


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
