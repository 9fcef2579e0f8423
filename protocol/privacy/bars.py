"""Noise and bar of an open-domain release: which keys may be shown without a public list, and at what delta.

Every user's histogram was random-clipped to `threshold` = C items, so it is a vector of whole, non-negative
counts whose sum is at most C. The server adds up the clipped histograms, noises the keys whose *clipped* sum is
positive and releases those whose noisy count exceeds the bar. Noise of scale b hides epsilon = Delta/b, where
the l1 sensitivity Delta is C (zero-out) or 2C (replace-one). The bar hides, up to delta, which keys there are.

Deviation: the paper's Algorithm 3 noises the keys of positive *unclipped* total, which is not private: a user
with m keys of their own gets m chances to pass a bar that was computed for C.

Write f(x) for what is shown of a key whose clipped sum is x: its noisy count, or nothing, written ⊥. Keys are
noised independently, so a release is a product over keys. With H_a(P|Q) = sum of max(P(y) - a Q(y), 0), a
mechanism is (epsilon, delta)-private when H <= delta at a = e^epsilon for its outputs P and Q on any neighbours,
in both orders. Three facts are used:

- **Steps.** H_ab(P|R) <= H_a(P|Q) + a H_b(Q|R).
- **Products.** H <= 1 - product of (1 - H_j), at the product of the a_j: the measures min(P_j, a_j Q_j) have masses
  1 - H_j, and their product is nowhere above that of the P_j, nor above that of the a_j Q_j.
- **Mixtures.** H is jointly convex: what holds for every outcome of the random clips holds on average.

The proofs stand at `truncated_laplace` and `_threshold_bar`. In both, delta is exact: it holds for all
neighbours, and two of them reach it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from numbers import Integral
from typing import Literal, get_args

import numpy as np

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.privacy.calibration import check_delta, check_epsilon, gaussian_delta
from fedhist.protocol.privacy.neighbours import Neighbours, clipped_sum_l1
from fedhist.protocol.privacy.noise import (
    LARGEST_LAPLACE_SCALE,
    Noise,
    discrete_gaussian,
    discrete_laplace,
    gaussian_variance,
    laplace_scale,
)
from fedhist.protocol.privacy.randomness import Source

# Finding the items of an open domain: how much noise, and which bars.
#
# Every user puts the weight w_m = floor(2^b/sqrt(m)) on each of their m distinct items; of a user with more than D, on
# D of them that are drawn at random. The server adds up, puts discrete Gaussian noise on every key of positive sum,
# and keeps those above a bar. It may look twice at the same sums: at first with little precision, and then, if what
# was found covers too little of all weight, with more.
#
# **The noise.** A user's vector of weights has l2 norm at most 2^b: m w_m^2 <= 2^2b. So on the keys that both of two
# neighbours have, a look is a Gaussian mechanism of sensitivity 2^b (zero-out), or sqrt(2) 2^b (replace-one: two non-
# negative vectors of norm 2^b, see `neighbours.clipped_sum_l2`). All weights of a user sum to at most sqrt(D) 2^b, and
# so does the difference of two users' sums: the sensitivity of W, the sum over all keys, is sqrt(D) 2^b under both
# relations.
#
# **Two looks** cost what the finer one costs alone. The noise of the first look is that of the second and more on top
# (`looks`), with the variances A_i + 100 for A_i = (z Delta)^2/a_i, where a_i is the share of the precision 1/z^2.
# Given the first value y_1, the second is a discrete Gaussian around x + r (y_1 - x), r = (A_2 + 100)/(A_1 + 100), of
# variance (A_2 + 100)(1 - r), and that is a rounding of a continuous one of variance smaller by 9 (the theorem at
# `mechanisms.gaussian_noise`, which holds around any centre; sums of discrete Gaussians as wide as these are discrete
# Gaussians up to factors that no double can tell from 1). Its precision is (1 - r)^2/((A_2 + 100)(1 - r) - 9) <= (1 -
# r)/A_2 <= 1/A_2 - 1/A_1 in units of 1/Delta^2, as 9/(1 - r) <= 100. So the second look adds (a_2 - a_1)/z^2 to the
# first's a_1/z^2, adaptively: whether it is taken, and how fine it is, may depend on the first.
#
# **The bars.** A key that only one of the neighbours has is never drawn for in the other. It is shown if it passes the
# bar of the first look or that of the second. Until it has passed, nothing depends on its noise, so the chance that
# one of m such keys passes is at most beta = beta_1 + the largest beta_2 of any second look, where beta_i is the
# largest over m <= D of 1 - P(w_m + Z_i <= t_i)^m. All weights of a user are equal, so there is no other worst case.
#
# Let P and Q be the results on two neighbours, and P', Q' those given that no such key passed: Gaussian mechanisms on
# common keys. P <= (1 - p) + p P' and Q >= r Q' for chances p, r >= q = 1 - beta, at any event. (Whether there is a
# second look is decided by common keys and W, so p and r may depend on the result; then what follows holds at each of
# them, and so in the mean over P'.) With T = {p P' > a r Q'},
#
#     P(E) - a Q(E) <= (1 - p) + p P'(T) - a r Q'(T) = (1 - p) + p (P'(T) - a Q'(T)) + a (p - r) Q'(T)
#                   <= (1 - p) + delta'(a) + (p - r)+ p/r        because a Q'(T) <= p/r P'(T) <= p/r
#                   <= delta'(a) + (1 - q)/q                     largest at p = 1, r = q
#
# so the bars cost beta/(1 - beta) of delta. What follows the discovery is a function of its result and of fresh draws,
# so the same holds of a whole run, with the later rounds in P' and Q'. Delta is the *sum* of the parts, not a joint
# bound.
#
# **What is left for the release.** One with Gaussian noise has the precision (1 - a)/z^2 when discovery had a/z^2: the
# sum is 1/z^2 whatever a the looks led to, so the run is dominated by one Gaussian mechanism of multiplier z. One with
# Laplace noise has an epsilon for each a (`epsilon_beside`). A run's results split by which norm and which a came out,
# and those of one kind are results of a run that always takes that norm and that a. So the deltas of the kinds add up.
#
# **The grid.** P(Z >= k) of the discrete Gaussian is at most P(N >= k - 1) of the continuous one of the same variance
# (Canonne, Kamath & Steinke 2020, proposition 25), which is what is computed here.

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


OpenNoiseKind = Literal["truncated-laplace", "laplace-threshold"]

# One step of the bar changes a delta by a factor of at least 1 + 2^-51, scales being at most 2^51. Of these digits,
# differences lose 16, powers 19, and the third-order differences of a variance 46.
_DIGITS = 60
_VARIANCE_DIGITS = 100

# An open domain has no size; the sensitivity only asks whether there is more than one item.
_MORE_THAN_ONE_ITEM = 2


@dataclass(frozen=True)
class OpenNoise:
    """Integer noise for each key of positive clipped sum, and the bar that the noisy count must exceed.

    Args:
        kind: what is drawn and how the bar was computed.
        scale: b of the discrete Laplace, P(z) proportional to exp(-|z| / b).
        bar: a key is released when its count plus its noise is above this; truncated noise lies in [-bar, bar].
        delta: the exact delta of the release at the epsilon it was made for, as the next float above it.
    """

    kind: OpenNoiseKind
    scale: Fraction
    bar: int
    delta: float

    def draw(self, size: int, *, source: Source) -> Integers:
        """Independent draws, exact, one for each key of positive clipped sum."""
        if self.kind == "truncated-laplace":
            return _draw_truncated(size, self.scale, self.bar, source)
        return discrete_laplace(size, self.scale, source=source)

    @functools.cached_property
    def standard_deviation(self) -> float:
        """Of the noise, before the bar; truncated noise has less."""
        if self.kind == "truncated-laplace":
            return _truncated_deviation(self.scale, self.bar)
        return Noise("discrete-laplace", self.scale).standard_deviation


def truncated_laplace(threshold: int, *, epsilon: float, delta: float, neighbours: Neighbours) -> OpenNoise:
    """Discrete Laplace noise cut to [-A, A] and the bar A: the least A that is (epsilon, delta)-private.

    Proof. Let p_A be the chance of the end point A. f(0) = ⊥, noised or not, so f is one rule for all x >= 0.

    - *One unit*, f(x) against f(x + 1). Where both can show y, their chances differ by a factor e^(1/b) at most.
      Only x + 1 shows x + 1 + A, with chance p_A. If x - A is above the bar, only x shows it, with chance p_A, and
      neither shows ⊥. If not, ⊥ of x + 1 stands for the noises z in [-A, A - x - 1], and e^(1/b) times its chance
      is at least that of the noises z + 1, which are all that make x show ⊥ but -A. So H <= p_A at e^(1/b), in
      both orders.
    - *One key*, f(x) against f(x + k). By steps, H <= delta_k at e^(k/b), in both orders, where
      delta_k = p_A (1 + e^(1/b) + ... + e^((k-1)/b)) = p_A (e^(k/b) - 1) / (e^(1/b) - 1).
    - *Many keys* that grow by k_j, C in all. By products, H <= 1 - product of (1 - delta_(k_j)), which is at most
      the sum of the delta_(k_j) and so at most delta_C: the terms of the sum grow. The same if all shrink.
    - *Zero-out*: the keys of a user all grow or all shrink, so delta = delta_C. A new key of count C reaches it:
      it passes the bar with chance P(Z > A - C) = delta_C, as A >= C (else that chance were above 1/2).
    - *Replace*: some grow and some shrink, so delta = 1 - (1 - delta_C)^2, at e^(2C/b). It is reached when C units
      move from a key that 2A + 1 others share to a new key. Counting 2C unit steps in a row would give more.

    Args:
        threshold: C, a whole number of at least 1.
        epsilon: above 0.
        delta: strictly between 0 and 1/2.
        neighbours: the relation that the guarantee is about.

    Raises:
        InvalidPlan: a setting out of its range, or noise of a scale above 2^51.
    """
    (noise,) = bars_for("truncated-laplace", [threshold], epsilon=epsilon, delta=delta, neighbours=neighbours)
    return noise


def bars_for(
    kind: OpenNoiseKind,
    thresholds: Iterable[int],
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    lowest: Callable[[int, Fraction], int] | None = None,
) -> list[OpenNoise]:
    """The noise and bar of each candidate threshold, in their order.

    | kind | noise | bar |
    |---|---|---|
    | truncated-laplace | discrete Laplace, cut to [-bar, bar] | the least that is private |
    | laplace-threshold | discrete Laplace | the least that is private |

    Args:
        kind: a row of the table.
        thresholds: whole numbers of at least 1.
        epsilon: above 0.
        delta: strictly between 0 and 1/2.
        neighbours: the relation that the guarantee is about.
        lowest: of laplace-threshold, the lowest bar to take for a threshold and a scale, where a lower one is private.

    Raises:
        InvalidPlan: a setting out of its range, or noise of a scale above 2^51.
    """
    if kind not in get_args(OpenNoiseKind):
        raise InvalidPlan(
            f"the noise is {kind!r}",
            allowed=" or ".join(map(repr, get_args(OpenNoiseKind))),
            code="unknown-noise",
        )
    check_epsilon(epsilon, "epsilon")
    check_delta(delta, "delta")
    if neighbours not in tuple(Neighbours):
        raise InvalidPlan(
            f"the neighbours are {neighbours!r}",
            allowed=" or ".join(repr(str(name)) for name in Neighbours),
            code="unknown-neighbours",
        )
    noises: list[OpenNoise] = []
    for threshold in thresholds:
        if not isinstance(threshold, Integral) or isinstance(threshold, bool) or threshold < 1:
            raise InvalidPlan(
                f"the threshold is {threshold!r}",
                allowed="a whole number of at least 1",
                advice="it is the number of items that each user keeps",
                code="bad-threshold",
            )
        scale = _scale(int(threshold), float(epsilon), Neighbours(neighbours))
        noise = _calibrated(
            kind,
            int(threshold),
            scale,
            float(delta),
            neighbours=Neighbours(neighbours),
            lowest=None if lowest is None else lowest(int(threshold), scale),
        )
        noises.append(noise)
    return noises


@functools.lru_cache(maxsize=2**14)
def _calibrated(
    kind: OpenNoiseKind,
    threshold: int,
    scale: Fraction,
    delta: float,
    *,
    neighbours: Neighbours,
    lowest: int | None,
) -> OpenNoise:
    with localcontext(_exact(_DIGITS)):
        if kind == "truncated-laplace":
            bar, achieved = _truncated_bar(threshold, scale, delta, neighbours)
        else:
            bar, achieved = _threshold_bar(threshold, scale, delta, lowest)
        return OpenNoise(kind, scale, bar, _round_up(achieved))  # audited: bar


@functools.lru_cache(maxsize=2**14)
def _scale(threshold: int, epsilon: float, neighbours: Neighbours) -> Fraction:
    """Delta/epsilon, rounded up to what can be drawn."""
    sensitivity = clipped_sum_l1(threshold, domain_size=_MORE_THAN_ONE_ITEM, neighbours=neighbours)
    wanted = Fraction(sensitivity.whole) / Fraction(epsilon)
    if wanted > LARGEST_LAPLACE_SCALE:
        raise InvalidPlan(
            f"epsilon is {epsilon!r} at a threshold of {threshold}",
            allowed="noise of a scale sensitivity/epsilon up to 2^51",
            advice="raise --epsilon or lower --max-threshold",
            code="noise-too-wide",
        )
    return laplace_scale(wanted)


def _truncated_bar(
    threshold: int, scale: Fraction, delta: float, neighbours: Neighbours
) -> tuple[int, Decimal]:
    """The least A and its delta, from delta_C = q^(A+1-C) (1 - q^C) / (1 + q - 2 q^(A+1)) with q = e^(-1/b).

    Solved for A: A + 1 = C + b ln((1 - (1 - 2 delta_C) q^C) / (delta_C (1 + q))).
    """
    replace = neighbours is Neighbours.REPLACE_ONE
    ratio = (-1 / _decimal(scale)).exp()
    all_units = ratio**threshold

    def delta_at(bar: int) -> Decimal:
        end = ratio ** (bar + 1 - threshold)
        one_way = end * (1 - all_units) / (1 + ratio - 2 * end * all_units)
        return one_way * (2 - one_way) if replace else one_way

    loss = threshold / float(scale)
    log_one_way = math.log(delta) - (math.log1p(math.sqrt(1 - delta)) if replace else 0.0)
    above_loss = math.log(2 * math.exp(log_one_way - loss) - math.expm1(-loss))
    guess = threshold - 1 + float(scale) * (above_loss - log_one_way - math.log1p(float(ratio)))
    return _least_bar(delta_at, Decimal(delta), guess=math.ceil(guess), above=threshold - 1)


def _threshold_bar(threshold: int, scale: Fraction, delta: float, lowest: int | None) -> tuple[int, Decimal]:
    """A bar t for noise that is not cut: the least that is private, of all or from `lowest` on, and its delta.

    From r_k = q^(t+1-k) / (1 + q) with q = e^(-1/b). Proof, for both relations at once.

    - A key that both data sets have and that changes by k is e^(k/b)-close in both orders; let l be the sum of
      these k/b. A key of count k that one of them lacks passes the bar with chance r_k = P(Z > t - k). Let n be
      the product of 1 - r_k over the keys that only the second has, and g over those that only the first has. The
      second shows no new key with chance n, and the first none that is gone with chance g, so
      H(second | first) <= (1 - n) + max(n - e^(epsilon - l) g, 0) <= max(1 - n, 1 - g), as l <= epsilon.
    - Both are 1 - product of (1 - r_k) for counts k with a sum of at most C. As r_k is exponential in k,
      -ln(1 - r_k) is convex: m such counts are worst as C - m + 1 and m - 1 ones, and that is convex in m. So the
      worst user has one key of count C or C keys of count 1: delta = max(r_C, 1 - (1 - r_1)^C). A user of new keys
      reaches it.
    """
    ratio = (-1 / _decimal(scale)).exp()
    other_units = ratio ** (threshold - 1) if threshold > 1 else Decimal(1)

    def delta_at(bar: int) -> Decimal:
        one_key = ratio ** (bar + 1 - threshold) / (1 + ratio)
        return max(one_key, _any_of(threshold, one_key * other_units, unless_below=one_key))

    if lowest is not None:
        return _least_bar(delta_at, Decimal(delta), guess=lowest, above=lowest - 1)
    # C keys of count 1 may pass with chance 1 - (1 - delta)^(1/C) each: 1 - e^-share, about share e^(-share/2).
    share = -math.log1p(-delta) / threshold
    log_each = math.log(-math.log1p(-delta)) - math.log(threshold) - share / 2
    least = min(math.log(delta) - (threshold - 1) / float(scale), log_each)
    guess = -float(scale) * (least + math.log1p(float(ratio)))
    return _least_bar(delta_at, Decimal(delta), guess=math.ceil(guess), above=threshold - 1)


def _any_of(count: int, each: Decimal, *, unless_below: Decimal) -> Decimal:
    """1 - (1 - each)^count, or 0 if count * each, which is never less, shows that it is at most `unless_below`."""
    if count * each <= unless_below:
        return Decimal(0)
    with localcontext() as context:
        context.prec += -each.adjusted()
        return 1 - (1 - each) ** count


def _least_bar(
    delta_at: Callable[[int], Decimal], asked: Decimal, *, guess: int, above: int
) -> tuple[int, Decimal]:
    """The least bar after `above` whose delta is at most `asked`, and that delta, which falls as bars rise.

    The guess saves time only: from it the search goes up in steps that double, then down likewise, then by halves.
    No bar below C is enough, because there a key of count C passes with chance 1/2 or more.
    """
    low, high, step = above, max(guess, above + 1), 1
    achieved = delta_at(high)
    while achieved > asked:
        low, high, step = high, high + step, 2 * step
        achieved = delta_at(high)
    step = 1
    while high - low > 1:
        middle = max(high - step, (low + high) // 2)
        found = delta_at(middle)
        if found <= asked:
            high, achieved, step = middle, found, 2 * step
        else:
            low = middle
    return high, achieved


def _draw_truncated(size: int, scale: Fraction, bar: int, source: Source) -> Integers:
    """Discrete Laplace draws given that they lie in [-bar, bar].

    A draw Z >= 0 is replaced by Z mod (A + 1), and Z < 0, seen as -1 - Y, by -1 - (Y mod (A + 1)). Geometric chances
    fold onto themselves: sum over i of q^(r + i(A+1)) is proportional to q^r. So every z from -A - 1 to A gets a
    chance proportional to e^(-|z|/b), and only -A - 1, the least likely of them, is drawn again. Unlike plain
    rejection this is fast however small A is against b.
    """
    width = bar + 1
    draws = np.empty(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        free = discrete_laplace(len(open_), scale, source=source)
        # ~z is -1 - z.
        draws[open_] = np.where(free >= 0, free % width, ~(~free % width))
        open_ = open_[draws[open_] < -bar]
    return draws


def _truncated_deviation(scale: Fraction, bar: int) -> float:
    """sqrt(2 (1^2 q + ... + A^2 q^A) / (1 + 2 (q + ... + q^A))), both sums in closed form."""
    with localcontext(_exact(_VARIANCE_DIGITS)):
        q = (-1 / _decimal(scale)).exp()
        end = q**bar
        squares = 1 + q - end * ((bar + 1) ** 2 - (2 * bar * bar + 2 * bar - 1) * q + bar * bar * q * q)
        return float((2 * q * squares / (1 + q - 2 * q * end)).sqrt() / (1 - q))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _round_up(value: Decimal) -> float:
    """The smallest positive float that is not below the value."""
    nearest = float(value)
    if nearest == 0 or Decimal(nearest) < value:
        return math.nextafter(nearest, math.inf)
    return nearest


def _exact(digits: int) -> Context:
    """A context with these digits, in which tiny numbers become 0, whatever the caller's own context is."""
    return Context(
        prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, DivisionByZero, Overflow]
    )
