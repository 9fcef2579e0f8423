"""Finding the items of an open domain: how much noise, and which bars.

Every user puts the weight w_m = floor(2^b/sqrt(m)) on each of their m distinct items; of a user with more than D, on D
of them that are drawn at random. The server adds up, puts discrete Gaussian noise on every key of positive sum, and
keeps those above a bar. It may look twice at the same sums: at first with little precision, and then, if what was found
covers too little of all weight, with more.

**The noise.** A user's vector of weights has l2 norm at most 2^b: m w_m^2 <= 2^2b. So on the keys that both of two
neighbours have, a look is a Gaussian mechanism of sensitivity 2^b (zero-out), or sqrt(2) 2^b (replace-one: two non-
negative vectors of norm 2^b, see `neighbours.clipped_sum_l2`). All weights of a user sum to at most sqrt(D) 2^b, and so
does the difference of two users' sums: the sensitivity of W, the sum over all keys, is sqrt(D) 2^b under both
relations.

**Two looks** cost what the finer one costs alone. The noise of the first look is that of the second and more on top
(`looks`), with the variances A_i + 100 for A_i = (z Delta)^2/a_i, where a_i is the share of the precision 1/z^2. Given
the first value y_1, the second is a discrete Gaussian around x + r (y_1 - x), r = (A_2 + 100)/(A_1 + 100), of variance
(A_2 + 100)(1 - r), and that is a rounding of a continuous one of variance smaller by 9 (the theorem at
`mechanisms.gaussian_noise`, which holds around any centre; sums of discrete Gaussians as wide as these are discrete
Gaussians up to factors that no double can tell from 1). Its precision is (1 - r)^2/((A_2 + 100)(1 - r) - 9) <=
(1 - r)/A_2 <= 1/A_2 - 1/A_1 in units of 1/Delta^2, as 9/(1 - r) <= 100. So the second look adds (a_2 - a_1)/z^2 to the
first's a_1/z^2, adaptively: whether it is taken, and how fine it is, may depend on the first.

**The bars.** A key that only one of the neighbours has is never drawn for in the other. It is shown if it passes the
bar of the first look or that of the second. Until it has passed, nothing depends on its noise, so the chance that one
of m such keys passes is at most beta = beta_1 + the largest beta_2 of any second look, where beta_i is the largest over
m <= D of 1 - P(w_m + Z_i <= t_i)^m. All weights of a user are equal, so there is no other worst case.

Let P and Q be the results on two neighbours, and P', Q' those given that no such key passed: Gaussian mechanisms on
common keys. P <= (1 - p) + p P' and Q >= r Q' for chances p, r >= q = 1 - beta, at any event. (Whether there is a
second look is decided by common keys and W, so p and r may depend on the result; then what follows holds at each of
them, and so in the mean over P'.) With T = {p P' > a r Q'},

    P(E) - a Q(E) <= (1 - p) + p P'(T) - a r Q'(T) = (1 - p) + p (P'(T) - a Q'(T)) + a (p - r) Q'(T)
                  <= (1 - p) + delta'(a) + (p - r)+ p/r        because a Q'(T) <= p/r P'(T) <= p/r
                  <= delta'(a) + (1 - q)/q                     largest at p = 1, r = q

so the bars cost beta/(1 - beta) of delta. What follows the discovery is a function of its result and of fresh draws, so
the same holds of a whole run, with the later rounds in P' and Q'. Delta is the *sum* of the parts, not a joint bound.

**What is left for the release.** One with Gaussian noise has the precision (1 - a)/z^2 when discovery had a/z^2: the
sum is 1/z^2 whatever a the looks led to, so the run is dominated by one Gaussian mechanism of multiplier z. One with
Laplace noise has an epsilon for each a (`epsilon_beside`). A run's results split by which norm and which a came out,
and those of one kind are results of a run that always takes that norm and that a. So the deltas of the kinds add up.

**The grid.** P(Z >= k) of the discrete Gaussian is at most P(N >= k - 1) of the continuous one of the same variance
(Canonne, Kamath & Steinke 2020, proposition 25), which is what is computed here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.privacy.calibration import gaussian_delta
from fedhist.protocol.privacy.noise import discrete_gaussian, gaussian_variance
from fedhist.protocol.privacy.randomness import Source

_MARGIN = 1 - 1e-9
_HALVINGS = 200


@functools.lru_cache(maxsize=64)
def user_weights(most: int, bits: int) -> Integers:
    """w_m for m from 0 to `most`, in steps of 2^-bits: floor(2^bits/sqrt(m)), in whole numbers; w_0 is 0."""
    square = 1 << (2 * bits)
    weights = np.array([0] + [math.isqrt(square // m) for m in range(1, most + 1)], dtype=np.int64)
    weights.setflags(write=False)
    return weights


def pass_chance(bar: int, *, most: int, bits: int, deviation: float) -> float:
    """beta_i: the chance that a key of one user alone passes this bar, whatever items the user has."""
    from scipy.special import log_ndtr

    counts = np.arange(1, most + 1)
    one_passes_not: Floats = log_ndtr((bar - user_weights(most, bits)[1:]) / deviation)
    none_passes = counts * one_passes_not  # audited: bar of many
    return float(-np.expm1(none_passes.min()))


def least_bar(chance: float, *, most: int, bits: int, deviation: float) -> int:
    """The least bar, in steps, that such a key passes with at most this chance."""

    def enough(bar: int) -> bool:
        return pass_chance(bar, most=most, bits=bits, deviation=deviation) <= chance * _MARGIN

    low, high = 0, (1 << bits) + math.ceil(deviation)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def looks(values: Integers, variances: Sequence[Fraction], *, source: Source) -> list[Integers]:
    """The values with noise of each of these falling variances, where every one is the next and more on top."""
    noisy = [values]
    finer = Fraction(0)
    for place, variance in enumerate(reversed(variances)):
        noise = discrete_gaussian(len(values), gaussian_variance(variance - finer), source=source.fork(place))
        noisy.append(noisy[-1] + noise)
        finer = variance
    return noisy[:0:-1]


@functools.lru_cache(maxsize=1024)
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
