"""Intervals for clipped counts, from the exact law of the noise.

**Closed domains.** With P(|Z| <= k) >= level, the interval value -+ k holds the clipped count with at least that
chance, whatever the count. It needs no correction for the choice of the threshold: that choice is made in an earlier
round with draws of its own, and the noise of the release is drawn afterwards, from a law that the threshold fixes. So
given the threshold, whatever led to it, the clipped counts are fixed numbers and the noise has just this law: the
chance holds given the choice, and therefore on the whole. The same after the keys of an open domain were discovered:
their noise and their bar belong to an earlier round. An end below 0 becomes 0, which no count is below.

**Above a bar.** Where the value itself had to pass the bar, values near it are there because their noise was large.
What holds then is the law of the noise *given that the value passed*. By how its tails grow with the count x,

    low   the smallest x with P(Y >= value | Y > bar, x) >= (1 - level)/2
    high  the largest x with P(Y <= value | Y > bar, x) >= (1 - level)/2

so that of the keys that are shown, at least the level is covered, whatever their counts. Both chances are monotone in
x because the noise has a log-concave law. A count is at least 1: other keys are not noised.

An interval says nothing of what clipping took away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.histograms import Flags, Floats, Integers
from fedhist.server.estimates.noise_law import NoiseLaw

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for each item, in counts; each holds its clipped count with at least the chance `level`."""

    low: Floats = field(repr=False)
    high: Floats = field(repr=False)
    level: float = LEVEL


def around(values: Integers, law: NoiseLaw, *, bits: int, level: float = LEVEL) -> Interval:
    """Around values in steps of 2^-bits of a count."""
    radius = law.radius(level)
    low, high = (
        np.ldexp(np.maximum(values + move, 0).astype(np.float64), -bits) for move in (-radius, radius)
    )
    return Interval(low, high, level)


def above_bar(values: Integers, law: NoiseLaw, bar: int, *, level: float = LEVEL) -> Interval:
    """Around whole counts that are shown because they exceed the bar."""
    distinct, places = np.unique(values, return_inverse=True)
    tail = (1 - level) / 2
    reach = 2 * law.radius(1 - tail / 2**20) + 1

    def shown(count: Integers) -> Floats:
        return law.reaching(bar + 1 - count)

    def low_enough(count: Integers) -> Flags:
        return np.asarray(law.reaching(distinct - count) >= tail * shown(count))

    def too_high(count: Integers) -> Flags:
        passed = shown(count)
        return np.asarray(np.subtract(passed, law.reaching(distinct + 1 - count)) < tail * passed)

    least = np.ones_like(distinct)
    low = _first(low_enough, np.maximum(distinct - reach, least), distinct)
    high = _first(too_high, low, distinct + reach) - 1
    low, high = low[places], np.maximum(low, high)[places]
    return Interval(low.astype(np.float64), high.astype(np.float64), level)


def _first(holds: Callable[[Integers], Flags], low: Integers, high: Integers) -> Integers:
    """The smallest count from `low` on where a condition holds that holds from there on, at the latest at `high`."""
    while (low < high).any():
        middle = (low + high) // 2
        found = holds(middle)
        low, high = np.where(found, low, np.minimum(middle + 1, high)), np.where(found, middle, high)
    return high
