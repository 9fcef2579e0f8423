"""The exact law of the noise on a released value, in steps of the grid."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.privacy.bars import OpenNoise
from fedhist.protocol.privacy.noise import Noise
from fedhist.protocol.privacy.shares import Share

# A wider law is read off one of this scale: cumulated chances of both differ by less than 10^-6.
_TABLE_SCALE = 1024.0
# The table reaches 64 scales either way.
_TABLE_LENGTH = 2**17


class NoiseLaw(ABC):
    """Noise on the whole numbers, symmetric around 0."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation."""

    @abstractmethod
    def reaching(self, least: Integers) -> Floats:
        """P(Z >= least), for whole numbers of any sign."""

    def radius(self, level: float) -> int:
        """The smallest whole number k with P(|Z| <= k) >= level."""
        tail = (1 - level) / 2
        low, high = -1, 1
        while float(self.reaching(np.array(high + 1))) > tail:
            high *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.reaching(np.array(middle + 1)) > tail else (low, middle)
        return high


@dataclass(frozen=True)
class GaussianLaw(NoiseLaw):
    """A discrete Gaussian; a sum of shares is one up to factors that `privacy/shares.py` bounds.

    P(Z >= k) is the continuous tail from k - 1/2 on and a 24th of the bell's slope there (Euler and Maclaurin), up to
    10^-2 / variance^2. Releases have a variance of at least 9, and thousands as a rule.
    """

    variance: float

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def reaching(self, least: Integers) -> Floats:
        """P(Z >= least)."""
        from scipy.special import ndtr

        scaled = (least - 0.5) / self.deviation
        slope = scaled * np.exp(-(scaled**2) / 2) / (math.sqrt(2 * math.pi) * self.variance)
        tail: Floats = ndtr(-scaled) - slope / 24
        return tail


@dataclass(frozen=True)
class LaplaceLaw(NoiseLaw):
    """A discrete Laplace, cut to [-limit, limit] if asked: P(Z >= k) = q^k/(1 + q) for k >= 1, q = e^(-1/scale)."""

    scale: Fraction
    limit: int | None = None

    @property
    def deviation(self) -> float:
        """The standard deviation, before it is cut."""
        return Noise("discrete-laplace", self.scale).standard_deviation

    def reaching(self, least: Integers) -> Floats:
        """P(Z >= least)."""
        free = self._free(least)
        if self.limit is None:
            return free
        beyond = self._free(np.array(self.limit + 1))
        inside = np.clip((free - beyond) / (1 - 2 * beyond), 0.0, 1.0)
        return np.where(least <= -self.limit, 1.0, np.where(least > self.limit, 0.0, inside))

    def _free(self, least: Integers) -> Floats:
        scale = max(float(self.scale), 1e-300)
        tail = np.exp(-np.maximum(least, 1 - least) / scale) / (1 + math.exp(-1 / scale))
        return np.where(least > 0, tail, 1 - tail)


@dataclass(frozen=True)
class SharedLaplaceLaw(NoiseLaw):
    """The sum of more shares than make up one Laplace draw: a difference of two negative binomials of shape r > 1.

    Its characteristic function is ((1 - q)^2 / (1 - 2 q cos t + q^2))^r, q = e^(-1/scale), from which a Fourier
    transform gives all chances at once.
    """

    share: Share
    participants: int

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return self.share.deviation(self.participants)

    def reaching(self, least: Integers) -> Floats:
        """P(Z >= least)."""
        places = np.maximum(least, 1 - least) * self._shrunk
        tail = np.interp(places, np.arange(len(self._tails)), self._tails, right=0.0)
        return np.where(least > 0, tail, 1 - tail)

    @cached_property
    def _shrunk(self) -> float:
        return min(1.0, _TABLE_SCALE / float(self.share.spread))

    @cached_property
    def _tails(self) -> Floats:
        """P(Z >= k) for k = 0, 1, ..."""
        rate = max(1 / _TABLE_SCALE, float(1 / self.share.spread))
        angles = 2 * math.pi * np.arange(_TABLE_LENGTH // 2 + 1) / _TABLE_LENGTH
        ratio = math.expm1(-rate) ** 2 / (
            math.expm1(-rate) ** 2 + 4 * math.exp(-rate) * np.sin(angles / 2) ** 2
        )
        chances = np.fft.irfft(ratio ** (self.participants / self.share.shares), _TABLE_LENGTH)
        half = np.maximum(chances[: _TABLE_LENGTH // 2], 0.0)
        tails: Floats = np.cumsum(half[::-1])[::-1]
        return tails


def law_of_noise(noise: Noise) -> NoiseLaw:
    """Of the server's noise."""
    return GaussianLaw(float(noise.spread)) if noise.kind == "discrete-gaussian" else LaplaceLaw(noise.spread)


def law_of_shares(share: Share, participants: int) -> NoiseLaw:
    """Of the sum of these participants' shares."""
    if share.kind == "discrete-gaussian-shares":
        return GaussianLaw(float(participants * share.spread))
    if participants == share.shares:
        return LaplaceLaw(share.spread)
    return SharedLaplaceLaw(share, participants)


def law_above_bar(noise: OpenNoise) -> NoiseLaw:
    """Of an open domain's noise, before the bar."""
    return LaplaceLaw(noise.scale, noise.bar if noise.kind == "truncated-laplace" else None)
