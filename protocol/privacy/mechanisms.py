"""How much integer noise a sensitivity and a budget ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from fedhist.protocol.histograms import Integers
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.noise import (
    discrete_gaussian,
    discrete_laplace,
    gaussian_variance,
    laplace_scale,
)
from fedhist.protocol.privacy.randomness import Source

_SMALLEST_SPREAD = Fraction(1, 10**300)
_SMOOTHING_VARIANCE = 9
"""tau^2 of `gaussian_noise`'s proof: e^(-2 pi^2 tau^2) is below 10^-77."""


@dataclass(frozen=True)
class Noise:
    """A calibrated discrete distribution: `spread` is sigma^2 (gaussian) or the scale b (laplace), in grid units."""

    kind: Literal["discrete-gaussian", "discrete-laplace"]
    spread: Fraction

    @property
    def standard_deviation(self) -> float:
        """In grid units. A discrete Laplace of scale b has variance 2 e^(-1/b) / (1 - e^(-1/b))^2."""
        if self.kind == "discrete-gaussian":
            return math.sqrt(self.spread)
        rate = float(1 / self.spread) if self.spread > _SMALLEST_SPREAD else math.inf
        return math.sqrt(2) * math.exp(-rate / 2) / -math.expm1(-rate)

    def draw(self, size: int, *, source: Source) -> Integers:
        """Independent draws."""
        if self.kind == "discrete-gaussian":
            return discrete_gaussian(size, self.spread, source=source)
        return discrete_laplace(size, self.spread, source=source)  # audited: laplace drawn


def gaussian_noise(sensitivity: Sensitivity, multiplier: float) -> Noise:
    """Discrete Gaussian noise that is as private as a continuous one of `multiplier` times the l2 sensitivity.

    The variance is (multiplier * sensitivity)^2 + 9 in grid units. Proof sketch (Peikert 2010, theorem 3.1): take
    y from the continuous N(x, s^2) around an integer vector x and round it at random to an integer vector z with
    weights exp(-|y - z|^2 / (2 tau^2)). The weights around any y have the same sum, up to factors
    1 +- 2 e^(-2 pi^2 tau^2) an item, so z has the discrete Gaussian distribution of variance s^2 + tau^2 around x up
    to such factors. The discrete one is therefore a post-processing of the continuous one, and every guarantee of
    that one, composed or not, holds in any number of dimensions; with tau^2 = 9 the factors change epsilon by less than
    10^-60 for a million items.
    """
    variance = Fraction(multiplier) ** 2 * sensitivity.square  # audited: gaussian variance
    variance += _SMOOTHING_VARIANCE
    return Noise("discrete-gaussian", gaussian_variance(variance))


def laplace_noise(sensitivity: Sensitivity, epsilon: float) -> Noise:
    """Discrete Laplace noise of scale b = sensitivity/epsilon: epsilon-private for whole changes up to it in l1.

    Proof sketch: the probability of an integer vector x is proportional to exp(-|x|_1 / b), and moving the centre by
    v changes |x - v|_1 by at most |v|_1 <= sensitivity = b epsilon.
    """
    scale = Fraction(sensitivity.whole) / Fraction(epsilon)  # audited: laplace scale
    return Noise("discrete-laplace", laplace_scale(scale))
