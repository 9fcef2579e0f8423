"""Noise in shares: what one participant adds, so that any `shares` participants together add enough.

The sum that reaches the server holds at least n_min = `shares` shares of honest participants, or the round aborts. The
guarantee is that of exactly n_min of them: further honest shares, and whatever corrupt participants add, are
independent of the data given what those know, so adding them is a post-processing.

**Gaussian.** Shares are discrete Gaussians of variance v >= 16, and n v is at least what one draw at the server would
need (`mechanisms.gaussian_noise`). Claim: the sum of n of them has the probabilities of the discrete Gaussian of
variance n v up to factors e^(+-tau), tau = 7 (n - 1) e^(-pi^2 v) (Kairouz, Liu & Steinke 2021, theorem 9, with other
constants). Proof: write D_a for the discrete Gaussian of variance a. Completing the square, the convolution of D_a and
D_b at z is a constant times e^(-z^2/(2(a + b))) times the sum over integers x of e^(-(x - y)^2/(2c)), y = z a/(a + b),
c = ab/(a + b). By Poisson summation that sum is sqrt(2 pi c) (1 +- h) whatever y, with h <= 2.1 e^(-2 pi^2 c) for c >=
1. As both are probability distributions, the convolution and D_(a+b) agree up to factors (1 + h)/(1 - h) <= e^(3h). If
the sum of k shares agrees with D_(kv) up to e^(+-t), then that of k + 1 does with the convolution of D_(kv) and D_v,
because convolving keeps such factors. So adding share after share, tau <= sum over k < n of 3 h_k with c_k = v k/(k +
1) >= v/2. ∎ Over d coordinates the factors multiply, so (epsilon, delta) of the one draw becomes (epsilon + 2 d tau,
e^(d tau) delta). 2 d tau is the *slack* that is added to the charge: below 10^-52 for 10^8 items and a million shares
of variance 16. The factor of delta is as near to 1, and the margin by which noise multipliers are rounded up, 10^-12,
pays for it.

**Laplace.** A share is the difference of two negative binomials of shape 1/n and q = e^(-1/b). n of them sum to the
difference of two geometric draws, which is the discrete Laplace of scale b exactly: probability generating functions
((1 - q)/(1 - qz))^(1/n) multiply. They are drawn exactly, too, so nothing is added to the charge:

- *Shepp & Lloyd 1966*: in a uniformly random permutation of G things, G geometric with P(g) = (1 - q) q^g, the numbers
  of cycles of length k = 1, 2, ... are independent and Poisson of mean q^k/k.
- Keep each cycle with probability 1/n: the numbers kept are independent and Poisson of mean q^k/(k n), and the things
  in kept cycles have the generating function exp(sum of q^k (z^k - 1)/(k n)) = ((1 - q)/(1 - qz))^(1/n).
- The cycle of the first thing has a length uniform on 1..G, and the rest is a uniformly random permutation of the
  others. So G is drawn by the exact sampler of `noise`, and about ln G + 0.6 uniform numbers cut it into cycles.

All in whole numbers: the total variation distance from the stated distribution is zero.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from fedhist.protocol.errors import InvalidInput, InvalidPlan
from fedhist.protocol.histograms import Integers
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.noise import (
    Noise,
    discrete_gaussian,
    discrete_geometric,
    gaussian_noise,
    gaussian_variance,
    laplace_noise,
    tosses_one_in,
    uniform_from_one,
)
from fedhist.protocol.privacy.randomness import Source

SMALLEST_SHARE_VARIANCE = 16
"""In squared steps: a share has a standard deviation of at least 4 steps."""
MAX_SHARES = 2**31

# The number of coordinates that are cut into cycles at once: they stay in a core's cache.
_BATCH = 2**14


@dataclass(frozen=True)
class Share:
    """One participant's part of the noise on each coordinate.

    Args:
        kind: of the sum.
        spread: gaussian: the variance of one share. laplace: the scale b of the sum of `shares` shares. In grid units.
        shares: n_min, the number of shares that make up the noise that is charged.
    """

    kind: Literal["discrete-gaussian-shares", "discrete-laplace-shares"]
    spread: Fraction
    shares: int

    def draw(self, size: int, *, source: Source) -> Integers:
        """One participant's share of `size` coordinates."""
        if self.kind == "discrete-gaussian-shares":
            return discrete_gaussian(size, self.spread, source=source)
        draws = negative_binomial(size, self.spread, shares=self.shares, source=source)
        draws -= negative_binomial(size, self.spread, shares=self.shares, source=source)
        return draws

    def deviation(self, participants: int) -> float:
        """The standard deviation of the sum of the participants' shares, in grid units."""
        if self.kind == "discrete-gaussian-shares":
            return math.sqrt(participants * self.spread)
        whole = Noise("discrete-laplace", self.spread).standard_deviation
        return whole * math.sqrt(participants / self.shares)

    def slack(self, coordinates: int) -> float:
        """What the sum of shares costs beyond one draw of the same noise: 2 d tau, rounded up; 0 for Laplace."""
        if self.kind == "discrete-laplace-shares" or self.shares == 1:
            return 0.0
        tau = 7 * (self.shares - 1) * math.exp(-(math.pi**2) * float(self.spread))
        return max(2 * coordinates * tau * (1 + 1e-9), sys.float_info.min)

    def reach(self, coordinates: int, participants: int, *, failure: float = 2.0**-40) -> int:
        """A bound that the sum of the participants' shares exceeds anywhere with probability at most `failure`.

        Markov's inequality for e^(t X). A discrete Gaussian's is at most e^(t^2 v/2) (Canonne, Kamath & Steinke 2020).
        At t = 1/(2b) a negative binomial's of shape r is ((1 - q)/(1 - q e^t))^r <= (2 + 1/b)^r, because
        1 - e^-x lies between x/(1 + x) and x.
        """
        logarithm = math.log(2 * coordinates / failure)
        if self.kind == "discrete-gaussian-shares":
            return math.ceil(math.sqrt(2 * participants * self.spread * logarithm))
        scale = float(self.spread)
        if scale < sys.float_info.min:
            return 0
        shape = participants / self.shares
        return math.ceil(2 * scale * (logarithm + shape * math.log(2 + 1 / scale)))


def gaussian_share(sensitivity: Sensitivity, multiplier: float, *, shares: int) -> Share:
    """Discrete Gaussian shares of which n_min are as private as `gaussian_noise` of this sensitivity."""
    _check_shares(shares)
    needed = gaussian_noise(sensitivity, multiplier).spread / shares
    if needed < SMALLEST_SHARE_VARIANCE:
        raise InvalidPlan(
            f"each of {shares} shares of the noise would be narrower than 4 steps of the grid, where sums of them are "
            "not close enough to a discrete Gaussian",
            allowed="fewer participants, a larger smallest threshold or a smaller epsilon",
            advice="raise --min-threshold, let a participant hold more users, or use --noise-from server",
            code="shares-too-narrow",
        )
    return Share("discrete-gaussian-shares", gaussian_variance(needed), shares)


def laplace_share(sensitivity: Sensitivity, epsilon: float, *, shares: int) -> Share:
    """Shares of which n_min sum to the discrete Laplace of `laplace_noise`, exactly."""
    _check_shares(shares)
    return Share("discrete-laplace-shares", laplace_noise(sensitivity, epsilon).spread, shares)


def negative_binomial(size: int, scale: Fraction, *, shares: int, source: Source) -> Integers:
    """Independent draws of NB(1/shares, e^(-1/scale)): P(k) = Gamma(k + r)/(k! Gamma(r)) (1 - q)^r q^k, r = 1/shares.

    Exact, see the top of this module. Any `shares` of them sum to a geometric draw with P(g) = (1 - q) q^g.
    """
    _check_shares(shares)
    whole = discrete_geometric(size, scale, source=source)
    if shares == 1:
        return whole
    kept = np.zeros(size, dtype=np.int64)
    for start in range(0, size, _BATCH):
        _keep_cycles(whole[start : start + _BATCH], kept[start : start + _BATCH], shares, source)
    return kept


def _keep_cycles(whole: Integers, kept: Integers, shares: int, source: Source) -> None:
    """Cut each number into the cycle lengths of a random permutation and add up one in `shares` of them."""
    places = np.flatnonzero(whole)
    left = whole[places]
    while places.size:
        lengths = uniform_from_one(left, source=source)
        chosen = tosses_one_in(len(places), shares, source=source)
        kept[places[chosen]] += lengths[chosen]
        left = left - lengths
        running = left > 0
        places, left = places[running], left[running]


def _check_shares(shares: int) -> None:
    if not 1 <= shares <= MAX_SHARES:
        raise InvalidInput(f"the noise is split into {shares} shares", allowed=f"1 to {MAX_SHARES} shares")
