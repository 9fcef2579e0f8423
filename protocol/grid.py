"""The grid on which everything that is noised lives: whole multiples of 2^-bits of one count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

MAX_GRID_BITS = 10
"""Finer than 1/1024 of a count buys nothing: only clipped users are rounded at all."""

MAX_BOUND_STEPS = 2**31 - 1
"""Bounds stay below 2^31 steps, so that a product of a total and a bound fits in 64 bits."""


@dataclass(frozen=True, order=True)
class Threshold:
    """A contribution bound: a whole number of steps of 2^-bits of one count."""

    steps: int
    bits: int

    @property
    def value(self) -> float:
        """The bound in counts."""
        return math.ldexp(self.steps, -self.bits)

    @property
    def square_floor(self) -> int:
        """The largest whole number that is at most the bound squared: |N|_2 > C exactly when |N|_2^2 exceeds it."""
        return (self.steps * self.steps) >> (2 * self.bits)

    @property
    def floor(self) -> int:
        """The largest whole number of counts that is at most the bound."""
        return self.steps >> self.bits


def to_steps(value: float, bits: int) -> int:
    """The number of steps that is nearest to the value."""
    return round(Fraction(value) * (1 << bits))
