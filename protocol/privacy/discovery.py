"""Finding the items of an open domain: how much noise, and which bar.

Every user puts the weight w_m = floor(2^b/sqrt(m)) on each of their m distinct items; of a user with more than D, on D
of them that are drawn at random. The server adds up, puts discrete Gaussian noise on every key of positive sum, and
keeps those above a bar t.

**The noise.** A user's vector of weights has l2 norm at most 2^b: m w_m^2 <= 2^2b. So on the keys that both of two
neighbours have, this is a Gaussian mechanism of sensitivity 2^b (add-remove), or sqrt(2) 2^b (replace: two non-negative
vectors of norm 2^b, see `neighbours.clipped_sum_l2`). Which keys pass the bar is a function of the noisy sums.

**The bar.** A key that only one of them has is never drawn for in the other. With weight w_m on j <= m such keys, the
chance that none passes is P(w_m + Z <= t)^j, at least q = the least over m <= D of P(w_m + Z <= t)^m. All weights of a
user are equal, so there is no other worst case.

Let P and Q be the results on two neighbours, and P', Q' those given that no such key passed: the Gaussian mechanism's
on common keys. P <= (1 - p) + p P' and Q >= r Q' for chances p, r >= q, at any event. With T = {p P' > a r Q'},

    P(E) - a Q(E) <= (1 - p) + p P'(T) - a r Q'(T) = (1 - p) + p (P'(T) - a Q'(T)) + a (p - r) Q'(T)
                  <= (1 - p) + delta_G(a) + (p - r)+ p/r        because a Q'(T) <= p/r P'(T) <= p/r
                  <= delta_G(a) + (1 - q)/q                     largest at p = 1, r = q

so the bar costs delta_B = (1 - q)/q. What follows the discovery is a function of its result and of fresh draws, so the
same holds of a whole run, with the later rounds in P' and Q': it costs what its Gaussian mechanisms and its other
rounds cost together, and delta_B more. Delta is the *sum* of both parts, not a joint bound.

**The grid.** P(Z >= k) of the discrete Gaussian is at most P(N >= k - 1) of the continuous one of the same variance
(Canonne, Kamath & Steinke 2020, proposition 25), which is what is computed here.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fedhist.protocol.histograms import Floats, Integers

_MARGIN = 1 - 1e-9
_HALVINGS = 200


@functools.lru_cache(maxsize=64)
def user_weights(most: int, bits: int) -> Integers:
    """w_m for m from 0 to `most`, in steps of 2^-bits: floor(2^bits/sqrt(m)), in whole numbers; w_0 is 0."""
    square = 1 << (2 * bits)
    weights = np.array([0] + [math.isqrt(square // m) for m in range(1, most + 1)], dtype=np.int64)
    weights.setflags(write=False)
    return weights


def bar_delta(bar: int, *, most: int, bits: int, deviation: float) -> float:
    """delta_B = (1 - q)/q: what it costs that a key of one user alone may pass this bar."""
    from scipy.special import log_ndtr

    counts = np.arange(1, most + 1)
    none_passes: Floats = counts * log_ndtr((bar - user_weights(most, bits)[1:]) / deviation)
    return float(np.expm1(-none_passes.min()))


def least_bar(delta: float, *, most: int, bits: int, deviation: float) -> int:
    """The least bar, in steps, that costs at most this delta."""

    def enough(bar: int) -> bool:
        return bar_delta(bar, most=most, bits=bits, deviation=deviation) <= delta * _MARGIN

    low, high = 0, (1 << bits) + math.ceil(deviation)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def epsilon_beside(multiplier: float, *, epsilon: float, delta: float) -> float:
    """The epsilon that a Gaussian mechanism of this multiplier leaves to a pure one, of (epsilon, delta); 0 for none.

    A mechanism that is r-private is a post-processing of randomised response, which has the loss r with chance
    p = 1/(1 + e^-r) and else -r (Kairouz, Oh & Viswanath 2015). So both together have at most
    delta(epsilon) = p delta_G(epsilon - r) + (1 - p) delta_G(epsilon + r), which rises with r.
    """
    low, high = 0.0, epsilon
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        share = 1 / (1 + math.exp(-middle))
        spent = share * gaussian_delta(multiplier, epsilon - middle)
        spent += (1 - share) * gaussian_delta(multiplier, epsilon + middle)
        low, high = (middle, high) if spent <= delta * _MARGIN else (low, middle)
    return low * _MARGIN


def gaussian_delta(multiplier: float, epsilon: float) -> float:
    """Delta at epsilon of Gaussian noise of `multiplier` l2 sensitivities (Balle & Wang 2018, theorem 8)."""
    from scipy.special import log_ndtr, ndtr

    half, shift = 1 / (2 * multiplier), epsilon * multiplier
    return max(float(ndtr(half - shift)) - math.exp(epsilon + float(log_ndtr(-half - shift))), 0.0)
