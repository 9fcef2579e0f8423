"""Whole numbers that are known modulo 2^width only, as every sum under masks is.

A server that unmasks a sum can't check what the participants put in. One of them may have added anything, so that the
sum has wrapped around, or is about to: then one honest unit more or less turns the largest number into the smallest.
Reading such a number before it is noised is therefore an exact comparison of users' data. So there are two ways to use
one, and no third:

- **Noise first.** (x + noise) mod 2^width, then `signed`. It is a function of x + noise alone, and so a
  post-processing of the mechanism on whole numbers, whatever the others added.
- **Distances.** `nearness` and `size` are distances on the circle of the 2^width residues. Adding u to x moves them by
  at most |u|, wherever x lies: they are 1-Lipschitz, and a score made of them has the sensitivity that its proof says.

Proof of the second: let d(x, c) be the least |k| with x = c + k modulo 2^width. If x = c + k then x + u = c + (k +
u), so d(x + u, c) <= d(x, c) + |u|, and the same from x + u back to x.

Where nothing wrapped around, the numbers come out as they are: both are plain arithmetic then. Sums without masks have
width 64, as int64 has.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import Integers

WIDEST = 64


def signed(values: Integers, width: int) -> Integers:
    """The numbers from -2^(width-1) to 2^(width-1) - 1 that these are modulo 2^width. For exact sums: noise first."""
    if width == WIDEST:
        return values
    spare = WIDEST - width
    read: Integers = (values << spare) >> spare
    return read


def nearness(values: Integers, target: int, width: int) -> Integers:
    """Minus the distance of each value to the target on the circle: 0 is best. 1-Lipschitz in each value."""
    apart = signed(values - target, width)
    # The smaller of x and -x is -|x| also for -2^63, whose absolute value int64 does not have.
    return np.minimum(apart, -apart)
