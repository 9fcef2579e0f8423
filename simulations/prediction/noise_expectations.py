"""Expected errors under the noise that releases have: E|Z - g|, and the same for keys that must pass a bar.

A release's error in one item is |noise + bias|, and bias hides part of the noise and noise part of the bias: its mean
is less than the sum of their means. All functions take arrays that broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.protocol.histograms import Floats


def folded_normal(gap: Floats, deviation: Floats) -> Floats:
    """E|Z - gap| for a normal Z of mean 0: s sqrt(2/pi) exp(-g^2/(2 s^2)) + g erf(g/(s sqrt(2))).

    The discrete Gaussian has the same mean up to a relative 1/(12 s^2), with s in steps of its grid: a release's is at
    least 3 steps, and usually thousands.
    """
    from scipy.special import erf

    scaled = gap / (deviation * np.sqrt(2))
    result: Floats = deviation * np.sqrt(2 / np.pi) * np.exp(-(scaled**2)) + gap * erf(scaled)
    return result


@dataclass(frozen=True)
class LaplaceTails:
    """A discrete Laplace, P(z) proportional to exp(-|z|/b) on the whole numbers, cut to [-limit, limit] if asked.

    With q = e^(-1/b), P(Z >= r) = q^r/(1 + q) for r >= 1 and E max(Z - r, 0) = q^(r+1)/(1 - q^2) for r >= 0; both turn
    round at 0 by symmetry. Exact for whole r; between whole numbers they run smoothly through them.

    Args:
        scale: b.
        limit: the largest value; None for all whole numbers.
    """

    scale: Floats
    limit: Floats | None = None

    def reaching(self, least: Floats) -> Floats:
        """P(Z >= least)."""
        free = self._free_reaching(least)
        if self.limit is None:
            return free
        beyond = self._free_reaching(self.limit + 1)
        inside = np.clip((free - beyond) / (1 - 2 * beyond), 0.0, 1.0)
        return np.where(least <= -self.limit, 1.0, inside)

    def excess(self, over: Floats) -> Floats:
        """E max(Z - over, 0)."""
        free = self._free_excess(over)
        if self.limit is None:
            return free
        beyond = self._free_reaching(self.limit + 1)
        # What lies above the limit is its part over the limit, and the way from `over` to there.
        cut = free - self._free_excess(self.limit) - (self.limit - over) * beyond
        inside = np.maximum(cut, 0.0) / (1 - 2 * beyond)
        return np.where(over >= self.limit, 0.0, np.where(over <= -self.limit, -over, inside))

    def distance(self, gap: Floats) -> Floats:
        """E|Z - gap|."""
        return gap + 2 * self.excess(gap)

    def distance_from(self, least: Floats, gap: Floats) -> Floats:
        """E[|Z - gap|; Z >= least].

        With gap <= least: E max(Z - least, 0) + (least - gap) P(Z >= least). Else all of E|Z - gap| less its part below
        `least`, which is E max(least - Z, 0) + (gap - least) P(Z < least), and E max(r - Z, 0) = r + E max(Z - r, 0).
        """
        reaching, over = self.reaching(least), self.excess(least)
        beyond = over + (least - gap) * reaching
        between = self.distance(gap) - (least + over) - (gap - least) * (1 - reaching)
        return np.where(gap <= least, beyond, between)

    def _free_reaching(self, least: Floats) -> Floats:
        # Of P(Z >= r) and P(Z >= 1 - r), the one whose argument is 1/2 or more is a plain tail.
        tail: Floats = np.exp(-np.maximum(least, 1 - least) / self.scale) / (1 + np.exp(-1 / self.scale))
        return np.where(least > 0.5, tail, 1 - tail)

    def _free_excess(self, over: Floats) -> Floats:
        tail: Floats = np.exp(-(np.abs(over) + 1) / self.scale) / -np.expm1(-2 / self.scale)
        return tail + np.maximum(-over, 0.0)


def barred_loss(kept: Floats, true: Floats, bar: Floats, noise: LaplaceTails) -> Floats:
    """E|shown - true| of a key with the clipped sum `kept`: `true` if it does not pass the bar, else |kept + Z - true|.

    A clipped sum is a whole number, and one of 0 is never noised. An expected sum between two whole numbers stands for
    either of them, with the odds that have this mean.
    """
    low = np.floor(kept)
    share = kept - low
    lower = np.where(low > 0, _whole_loss(low, true, bar, noise), true)
    result: Floats = (1 - share) * lower + share * _whole_loss(low + 1, true, bar, noise)
    return result


def shown_chance(kept: Floats, bar: Floats, noise: LaplaceTails) -> Floats:
    """The chance that a key with the clipped sum `kept` is released, sums between whole numbers as above."""
    low = np.floor(kept)
    share = kept - low
    lower = np.where(low > 0, noise.reaching(bar + 1 - low), 0.0)
    result: Floats = (1 - share) * lower + share * noise.reaching(bar - low)
    return result


def _whole_loss(kept: Floats, true: Floats, bar: Floats, noise: LaplaceTails) -> Floats:
    least = bar + 1 - kept
    loss: Floats = true * (1 - noise.reaching(least)) + noise.distance_from(least, true - kept)
    return loss
