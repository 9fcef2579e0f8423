"""Privacy losses of single mechanisms as distributions, which compositions are made of.

Each answers with its delta at an epsilon and the other way round, rounded so that it never promises too much. What has
no closed form is put on a grid, where dots are connected (Doroshenko et al. 2022), which never lowers a delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from fedhist.protocol.histograms import Floats
from fedhist.protocol.privacy.calibration import gaussian_epsilon

# Ten times the relative error of a tail that is e to the power of at least -700, known to 2^-52 of that power.
_TAIL_ERROR = 2e-12
# How near the smallest sufficient epsilon one is that is given in its place.
_CLOSE_EPSILON = 1e-10

Profile = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise alone, which needs no grid: its delta has a closed form (Balle & Wang 2018, theorem 8).

    With the methods of a distribution on a grid, so that what follows need not tell them apart.

    Args:
        shift: 1/z, by how many standard deviations one user moves the mean.
    """

    shift: float

    def get_epsilon_for_delta(self, delta: float) -> float:
        """Rounded up, and from 1/2 on that at 0.49, which is no smaller."""
        return gaussian_epsilon(1 / self.shift, min(delta, 0.49))

    def get_delta_for_epsilon(self, epsilon: Floats) -> Floats:
        """Rounded up by a multiple of what the two tails, whose difference it is, may be wrong by."""
        upper = special.ndtr(self.shift / 2 - epsilon / self.shift)
        lower = np.exp(epsilon + special.log_ndtr(-self.shift / 2 - epsilon / self.shift))
        result: Floats = np.minimum(np.maximum(upper - lower, 0) + _TAIL_ERROR * upper, 1)
        return result


@dataclass(frozen=True, eq=False)
class GaussianBeside:
    """Gaussian noise after mechanisms of few losses: delta(e) is the mean of the Gaussian's at e less each of them."""

    gaussian: Gaussian
    losses: Floats
    chances: Floats

    def get_epsilon_for_delta(self, delta: float) -> float:
        """Rounded up."""
        start = self.gaussian.get_epsilon_for_delta(delta)
        low, high = start + float(self.losses.min()) - 1e-3, start + float(self.losses.max())
        if not math.isfinite(high):
            return high
        at_low, at_high = self.get_delta_for_epsilon(np.array([low, high]))
        if at_low <= delta or at_high >= delta:
            # No digits left to tell the two from delta. The larger one is sure to suffice.
            return high
        while high - low > _CLOSE_EPSILON * max(high, 1):
            middle = (low + high) / 2
            if self.get_delta_for_epsilon(np.array([middle]))[0] > delta:
                low = middle
            else:
                high = middle
        return high

    def get_delta_for_epsilon(self, epsilon: Floats) -> Floats:
        """Rounded up as the Gaussian's is."""
        deltas: Floats = self.gaussian.get_delta_for_epsilon(epsilon[:, None] - self.losses) @ self.chances
        return deltas


@dataclass(frozen=True)
class Shifted:
    """A distribution whose epsilons are counted from `start`."""

    rest: Any
    start: float

    def get_delta_for_epsilon(self, epsilon: Floats) -> Floats:
        """As the distribution has it, further on."""
        return np.asarray(self.rest.get_delta_for_epsilon(self.start + epsilon))


def on_grid(profile: Profile, epsilon: float, interval: float) -> Any:
    """The distribution on the grid whose delta agrees with `profile` there and is no smaller between."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    last = math.ceil(epsilon / interval)
    deltas = profile(np.arange(-last, last + 1, dtype=np.float64) * interval)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -last, last, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def pure_profile(epsilon: float, at: Floats) -> Floats:
    """delta(at) of randomised response: loss +epsilon with probability 1/(1 + e^-epsilon), else -epsilon."""
    upper = -np.expm1(np.minimum(at - epsilon, 0)) / (1 + math.exp(-epsilon))
    result: Floats = np.maximum(upper, -np.expm1(np.minimum(at, 0)))
    return result


def range_profile(epsilon: float, at: Floats) -> Floats:
    """delta(at) of the pair that dominates all mechanisms of bounded range (see the top of `composition`)."""
    inside = np.expm1(np.minimum(at - epsilon, 0) / 2) ** 2 / -math.expm1(-epsilon)
    result: Floats = np.where(at < -epsilon, -np.expm1(np.minimum(at, 0)), inside)
    return result


def crossing(deltas: Floats, most: float, step: float) -> float:
    """Where deltas at 0, 1, 2, ... steps fall to `most`, along chords; the last is there.

    A delta is convex in e^epsilon, so that the chord which we follow lies above it.
    """
    enough = int(np.argmax(deltas <= most))
    if enough == 0:
        return 0.0
    above, below = deltas[enough - 1], deltas[enough]
    share = (above - most) / (above - below) if below < most < above else 1.0
    return float(step * (enough - 1) + math.log1p(math.expm1(step) * share))
