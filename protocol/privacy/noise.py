"""Discrete Laplace and Gaussian noise, sampled exactly with integers alone.

The samplers are those of Canonne, Kamath & Steinke 2020, "The Discrete Gaussian for Differential Privacy",
run on whole arrays. No draw passes through a float, so no low-order bit can tell two inputs apart, and no
probability is rounded: given uniform words, the output has the stated distribution. All fits in 64 bits:

- **Bernoulli(a/b)**, a < b: a word w below b * step, with step = floor(2^64 / b), is uniform there, and
  w < a * step has probability a/b. Nothing exceeds b * step <= 2^64. Words at or above that are drawn again.
  The upper half of w nearly always decides, and only when it does not is the lower half drawn.
- **Bernoulli(exp(-a/b))**, a < b: K = 1, 2, ... until Bernoulli(a/(bK)) fails; true when K is odd. A run
  reaches K with probability below 1/(K-1)!. Arrays go up to K = 8, where 8b must not exceed 2^64: b is at
  most 2^51 (Laplace) or 2^56 (Gaussian). Python's integers, which do not overflow, finish the few longer
  runs.
- **Bernoulli(exp(-1))** is the same series summed up to 1/15!: with probability D/15!, where D is the number
  of derangements of 15 things, it is true, and in one further case of the 15! the series goes on from K = 16.
- **Laplace of scale t / 2^k**, t <= 2^51: U uniform below t is kept with probability exp(-U/t), V counts
  successes of Bernoulli(exp(-1)) before the first failure, and the magnitude is floor((U + tV) / 2^k). U + tV
  reaches 2^63 only when V >= 2^12, which has probability below 2^-5900.
- **Gaussian of variance t m / 2^j**, t = 2^(27-j) and m <= 2^28: a Laplace proposal Y of scale t is kept with
  probability exp(-(|Y| - variance/t)^2 / (2 variance)) = exp(-z^2 / (2^28 m)), z = |Y| 2^j - m. While
  |Y| < 16 t, z lies within 2^31 of 0 and z^2 <= 2^62. Proposals further out, one in nine million, are decided
  with Python's integers, so no tail is cut off.

Deviation: t is the power of two within a factor sqrt(2) of the standard deviation, not floor(sigma) + 1,
because the formula above holds for every t, a power of two wastes no random bits and bounds z whatever the
variance, and it still keeps 65 % where sigma itself would keep 76 %.

Like any rejection sampler, these take a time that depends on their own draws, though never on data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Flags, Floats, Integers, Words
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.randomness import Source

_WORD = 2**64
_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)

# A batch of proposals stays in a core's cache.
_BATCH = 2**15

# Runs of the series longer than this are finished one by one.
_ARRAY_RUN = 8

# 1/e = D/15! + (1/16 - 1/(16*17) + ...)/15!. The words of the case that the series decides, from
# 0x5e2d58bf7e441aaa to 0x5e2d58bf7f1b5a48, have one upper half, as the comparison of upper halves needs.
_FACTORIAL = math.factorial(15)
_DERANGEMENTS = sum((-1) ** k * (_FACTORIAL // math.factorial(k)) for k in range(16))

_LAPLACE_BITS = 51
_LAPLACE_MOST_SHIFT = 62
_GAUSSIAN_BITS = 27
# Proposals at this many times t or beyond are decided one by one.
_GAUSSIAN_NEAR = 16

LARGEST_LAPLACE_SCALE = Fraction(2**_LAPLACE_BITS)
LARGEST_GAUSSIAN_VARIANCE = Fraction(2 ** (2 * _GAUSSIAN_BITS + 1))


def laplace_scale(at_least: Fraction) -> Fraction:
    """The smallest scale that `discrete_laplace` can draw and that is not below `at_least`.

    These are the multiples of 2^-62 with at most 51 significant bits, up to 2^51. The relative excess is
    below 2^-50 for scales of 2^-12 and more, and 2^-40 for scales of 2^-22 and more. Under that the excess is
    below 2^-62, and a draw other than 0 has probability below 2 exp(-2^22).
    """
    numerator, shift = _laplace_form(at_least)
    return Fraction(numerator, 2**shift)


def gaussian_variance(at_least: Fraction) -> Fraction:
    """The smallest variance parameter that `discrete_gaussian` can draw and that is not below `at_least`.

    For each power of two t from 2 to 2^27 these are the multiples of t^2 / 2^27 in (t^2/2, 2 t^2], and up to
    2 the multiples of 2^-27. The relative excess is below 2^-26 for variances above 2, else the excess is
    below 2^-27.
    """
    multiple, log2_scale = _gaussian_form(at_least)
    return _gaussian_step(log2_scale) * multiple


def discrete_laplace(size: int, scale: Fraction, *, source: Source) -> Integers:
    """Independent draws with P(x) proportional to exp(-|x| / scale), for every integer x.

    Added to an integer statistic of l1 sensitivity s, in the same steps, the noise is (s / scale)-DP.

    Args:
        size: how many.
        scale: one that `laplace_scale` returned, so that the noise drawn is the noise accounted for.
        source: where the bits come from. The same seed, size and width give the same draws.
    """
    numerator, shift = _laplace_form(scale)
    _require_representable(scale, Fraction(numerator, 2**shift), "laplace_scale")
    return _collect(size, 2, lambda proposals: _laplace_batch(proposals, numerator, shift, source))


def discrete_gaussian(size: int, variance: Fraction, *, source: Source) -> Integers:
    """Independent draws with P(x) proportional to exp(-x^2 / (2 variance)), for every integer x.

    The variance of the draws is `variance` up to a relative 10^-6 from variance 1 on, and below it otherwise.
    Added to an integer statistic of l2 sensitivity s, the noise is (s^2 / (2 variance))-zCDP.

    Args:
        size: how many.
        variance: one that `gaussian_variance` returned, so that the noise drawn is the noise accounted for.
        source: where the bits come from. The same seed, size and width give the same draws.
    """
    multiple, log2_scale = _gaussian_form(variance)
    _require_representable(variance, _gaussian_step(log2_scale) * multiple, "gaussian_variance")
    return _collect(size, 3, lambda proposals: _gaussian_batch(proposals, multiple, log2_scale, source))


def discrete_geometric(size: int, scale: Fraction, *, source: Source) -> Integers:
    """Independent draws with P(x) proportional to exp(-x / scale), for every integer x >= 0.

    Args:
        size: how many.
        scale: one that `laplace_scale` returned.
        source: where the bits come from.
    """
    numerator, shift = _laplace_form(scale)
    _require_representable(scale, Fraction(numerator, 2**shift), "laplace_scale")
    return _collect(size, 2, lambda proposals: _geometric_batch(proposals, numerator, shift, source))


def uniform_from_one(largest: Integers, *, source: Source) -> Integers:
    """For each entry a whole number from 1 to it, each equally likely; entries are at least 1.

    Below 2^32 by Lemire 2019: of the 2^32 halves w, those with (w m mod 2^32) < (2^32 mod m) are drawn again, and then
    floor(w m / 2^32) takes each value equally often. Only products with a low half below m need the division.
    """
    bounds = largest.view(np.uint64)
    if len(bounds) and int(bounds.max()) >> 32:
        return _uniform_from_one_wide(bounds, source)
    products = _halves(len(bounds), source) * bounds
    unsure = np.flatnonzero((products & _LOW_HALF) < bounds)
    while unsure.size:
        refused = np.uint64(2**32) % bounds[unsure]
        unsure = unsure[(products[unsure] & _LOW_HALF) < refused]
        products[unsure] = _halves(len(unsure), source) * bounds[unsure]
    return (products >> _HALF_BITS).view(np.int64) + 1


def _uniform_from_one_wide(bounds: Words, source: Source) -> Integers:
    """The same for bounds of any size, by whole words and two divisions."""
    steps = np.uint64(_WORD - 1) // bounds
    limits = steps * bounds
    words = source.words(len(bounds)).copy()
    over = np.flatnonzero(words >= limits)
    while over.size:
        words[over] = source.words(len(over))
        over = over[words[over] >= limits[over]]
    return (words // steps).view(np.int64) + 1


def tosses_one_in(count: int, bound: int, *, source: Source) -> Flags:
    """Bernoulli(1/bound), for a bound of at most 2^32."""
    if bound == 1:
        return np.ones(count, dtype=np.bool_)
    return _tosses(np.ones(count, dtype=np.uint64), bound, source)


def bernoulli_exp(gamma: Fraction, *, source: Source) -> bool:
    """True with probability exp(-gamma), exactly, for a rational gamma >= 0 of any size.

    A large gamma costs no time: its integer part is that many tosses of exp(-1), up to the first failure.
    """
    if gamma < 0:
        raise InvalidInput(
            "gamma is negative, so exp(-gamma) is not a probability",
            allowed="gamma of 0 or more",
            code="bad-gamma",
        )
    whole, rest = divmod(gamma.numerator, gamma.denominator)
    if not all(_ends_odd(1, 1, 1, source) for _ in range(whole)):
        return False
    return _ends_odd(rest, gamma.denominator, 1, source)


def uniform_below(bound: int, *, source: Source) -> int:
    """A whole number from 0 to bound - 1, each equally likely, for a bound of at most 2^64."""
    if not 1 <= bound <= _WORD:
        raise InvalidInput(
            "no number can be drawn below this bound", allowed="a bound from 1 to 2^64", code="bad-bound"
        )
    step = _WORD // bound
    while True:
        number = _word(source) // step
        if number < bound:
            return number


def _laplace_form(at_least: Fraction) -> tuple[int, int]:
    """(t, k) of the smallest scale t / 2^k that is not below `at_least`."""
    _require_between(at_least, LARGEST_LAPLACE_SCALE, "a Laplace scale", f"2^{_LAPLACE_BITS}")
    numerator, denominator = at_least.numerator, at_least.denominator
    shift = min(_LAPLACE_MOST_SHIFT, _LAPLACE_BITS + denominator.bit_length() - numerator.bit_length())
    if numerator << shift > denominator << _LAPLACE_BITS:
        shift -= 1
    return -((-numerator << shift) // denominator), shift


def _gaussian_form(at_least: Fraction) -> tuple[int, int]:
    """(m, log2 t) of the smallest variance t^2 m / 2^27 that is not below `at_least`."""
    _require_between(
        at_least, LARGEST_GAUSSIAN_VARIANCE, "a Gaussian variance", f"2^{2 * _GAUSSIAN_BITS + 1}"
    )
    log2_scale = next(a for a in range(_GAUSSIAN_BITS + 1) if at_least <= 2 * 4**a)
    return math.ceil(at_least / _gaussian_step(log2_scale)), log2_scale


def _gaussian_step(log2_scale: int) -> Fraction:
    return Fraction(4**log2_scale, 2**_GAUSSIAN_BITS)


def _require_between(value: Fraction, largest: Fraction, name: str, largest_text: str) -> None:
    if value <= 0:
        raise InvalidInput(f"{name} of 0 or less adds no noise", allowed="more than 0", code="no-noise")
    if value > largest:
        raise InvalidInput(
            f"{name} above {largest_text} is too large to draw",
            allowed=f"at most {int(largest)}",
            advice="a coarser grid needs less noise in its steps",
            code="noise-too-wide",
        )


def _require_representable(value: Fraction, rounded: Fraction, rounding: str) -> None:
    if value != rounded:
        raise InvalidInput(
            f"{float(value)!r} can't be drawn exactly",
            allowed=f"what {rounding} returns",
            advice=f"round up with {rounding} first and account for the result",
            code="not-representable",
        )


def _collect(size: int, proposals_a_draw: int, accepted: Callable[[int], Integers]) -> Integers:
    """The first `size` accepted proposals, in as many batches as needed: mostly one for a small size."""
    if size < 0:
        raise InvalidInput(f"{size} draws were asked for", allowed="0 or more", code="bad-number-of-draws")
    draws = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        batch = accepted(min(proposals_a_draw * (size - filled) + 16, _BATCH))[: size - filled]
        draws[filled : filled + len(batch)] = batch
        filled += len(batch)
    return draws


def _laplace_batch(proposals: int, numerator: int, shift: int, source: Source) -> Integers:
    """The draws of scale numerator / 2^shift that come of this number of proposals, in their order."""
    magnitudes = _geometric_batch(proposals, numerator, shift, source)
    negative = _tosses_fair(len(magnitudes), source)
    signed = np.where(negative, -magnitudes, magnitudes)
    # Zero has one sign, or it would be twice as likely.
    return signed[(magnitudes > 0) | ~negative]


def _geometric_batch(proposals: int, numerator: int, shift: int, source: Source) -> Integers:
    """The magnitudes of scale numerator / 2^shift that come of this number of proposals, in their order."""
    low = _uniform(proposals, numerator, source)
    if numerator > 1:
        low = low[_tosses_exp(low, numerator, source)]
    magnitudes = low.view(np.int64)
    magnitudes += numerator * _geometric(len(low), source)
    magnitudes >>= shift
    return magnitudes


def _gaussian_batch(proposals: int, multiple: int, log2_scale: int, source: Source) -> Integers:
    """The draws of variance t^2 m / 2^27 that come of this number of proposals, in their order."""
    draws = _laplace_batch(proposals, 2**log2_scale, 0, source)
    scaling = 2 ** (_GAUSSIAN_BITS - log2_scale)
    denominator = 2 ** (_GAUSSIAN_BITS + 1) * multiple
    magnitudes = np.abs(draws)
    far = np.flatnonzero(magnitudes >= _GAUSSIAN_NEAR * 2**log2_scale)
    magnitudes[far] = 0
    distances = magnitudes * scaling - multiple
    squares = (distances * distances).view(np.uint64)
    whole = squares // np.uint64(denominator)
    rests = squares - whole * np.uint64(denominator)
    kept = _tosses_exp_whole(whole.view(np.int64), source)
    survivors = np.flatnonzero(kept)
    kept[survivors] = _tosses_exp(rests[survivors], denominator, source)
    for place in far:
        distance = abs(int(draws[place])) * scaling - multiple
        kept[place] = bernoulli_exp(Fraction(distance * distance, denominator), source=source)
    return draws[kept]


def _uniform(count: int, bound: int, source: Source) -> Words:
    """Numbers from 0 to bound - 1. A fresh array."""
    if bound == 1:
        return np.zeros(count, dtype=np.uint64)
    if bound & (bound - 1) == 0 and bound <= 2**32:
        return _halves(count, source).astype(np.uint64) >> np.uint64(33 - bound.bit_length())
    step = _WORD // bound
    return _redraw(source.words(count), bound * step, source) // np.uint64(step)


def _geometric(count: int, source: Source) -> Integers:
    """How often Bernoulli(exp(-1)) succeeds before it fails."""
    successes = np.zeros(count, dtype=np.int64)
    running = np.flatnonzero(_tosses_inverse_e(count, source))
    while running.size:
        successes[running] += 1
        running = running[_tosses_inverse_e(len(running), source)]
    return successes


def _tosses_exp(numerators: Words, denominator: int, source: Source) -> Flags:
    """Bernoulli(exp(-a/b)) for each numerator a < b."""
    flags = np.ones(len(numerators), dtype=np.bool_)
    running = np.flatnonzero(_tosses(numerators, denominator, source))
    for k in range(2, _ARRAY_RUN + 1):
        flags[running] = k % 2 == 1
        running = running[_tosses(numerators[running], denominator * k, source)]
    for place in running:
        flags[place] = _ends_odd(int(numerators[place]), denominator, _ARRAY_RUN + 1, source)
    return flags


def _tosses_exp_whole(gammas: Integers, source: Source) -> Flags:
    """Bernoulli(exp(-gamma)) for each whole gamma >= 0."""
    flags: Flags = gammas == 0
    running = np.flatnonzero(~flags)
    left = gammas[running]
    while running.size:
        succeeded = _tosses_inverse_e(len(running), source)
        running, left = running[succeeded], left[succeeded] - 1
        flags[running[left == 0]] = True
        running, left = running[left > 0], left[left > 0]
    return flags


def _tosses(numerators: Words, denominator: int, source: Source) -> Flags:
    """Bernoulli(a/b) for each numerator a < b."""
    step = _WORD // denominator
    thresholds = numerators * np.uint64(step)
    highs = (thresholds >> _HALF_BITS).astype(np.uint32)
    flags, unsure, words = _compare(highs, len(numerators), step * denominator, source)
    flags[unsure] = words < thresholds[unsure]
    return flags


def _tosses_inverse_e(count: int, source: Source) -> Flags:
    """Bernoulli(exp(-1))."""
    step = _WORD // _FACTORIAL
    high = np.uint32((step * _DERANGEMENTS) >> 32)
    flags, unsure, words = _compare(high, count, step * _FACTORIAL, source)
    for place, word in zip(unsure, words, strict=True):
        case = int(word) // step
        flags[place] = case < _DERANGEMENTS or (case == _DERANGEMENTS and _ends_odd(1, 1, 16, source))
    return flags


def _compare(
    highs: npt.NDArray[np.uint32] | np.uint32, count: int, limit: int, source: Source
) -> tuple[Flags, npt.NDArray[np.intp], Words]:
    """Words uniform below `limit`, compared with thresholds of which only the upper halves are known.

    Returns:
        whether each word is below its threshold, the places where its upper half does not tell, their words.
    """
    halves = _halves(count, source)
    flags = halves < highs
    open_ = halves == highs
    if limit < _WORD:
        open_ |= halves >= np.uint32(limit >> 32)
    unsure = np.flatnonzero(open_)
    if not unsure.size:
        return flags, unsure, np.empty(0, dtype=np.uint64)
    words = (halves[unsure].astype(np.uint64) << _HALF_BITS) | _halves(len(unsure), source)
    return flags, unsure, _redraw(words, limit, source)


def _redraw(words: Words, limit: int, source: Source) -> Words:
    """The words, with those at or above the limit drawn again until they are below."""
    largest = np.uint64(limit - 1)
    over = np.flatnonzero(words > largest)
    if over.size:
        words = words.copy()
    while over.size:
        words[over] = source.words(len(over))
        over = over[words[over] > largest]
    return words


def _halves(count: int, source: Source) -> npt.NDArray[np.uint32]:
    """Uniform 32-bit numbers: the lower half of each word, then the upper, on any machine."""
    words = source.words(-(-count // 2)).astype("<u8", copy=False)
    return words.view("<u4")[:count].astype(np.uint32, copy=False)


def _tosses_fair(count: int, source: Source) -> Flags:
    """Bernoulli(1/2), 64 to a word."""
    words = source.words(-(-count // 64)).astype("<u8", copy=False)
    return np.unpackbits(words.view(np.uint8), count=count, bitorder="little").view(np.bool_)


def _ends_odd(numerator: int, denominator: int, first: int, source: Source) -> bool:
    """Whether K is odd when, counted from `first`, Bernoulli(a/(bK)) first fails, for a <= b."""
    k = first
    while _toss(numerator, denominator * k, source):
        k += 1
    return k % 2 == 1


def _toss(numerator: int, denominator: int, source: Source) -> bool:
    """Bernoulli(a/b), a <= b: a uniform real is compared with a/b word by word until they differ."""
    if numerator == denominator:
        return True
    while numerator:
        digit, numerator = divmod(numerator * _WORD, denominator)
        word = _word(source)
        if word != digit:
            return word < digit
    return False


def _word(source: Source) -> int:
    return int(source.words(1)[0])


# How much integer noise a sensitivity and a budget ask for.

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


# Private choice of one of finitely many candidates by score, sampled exactly.
#
# The mechanism tosses coins of probability exp(-gamma) for rational gamma, with integers of any size: there is no
# overflow, no underflow and no rounding, whatever the scores.


def exponential_mechanism(
    scores: Sequence[int],
    *,
    sensitivity: int,
    epsilon: float,
    source: Source,
    log_base_measure: Sequence[float] | None = None,
) -> int:
    """Index i with probability proportional to base_i exp(epsilon score_i / (2 sensitivity)).

    McSherry & Talwar 2007; high scores are better. Neighbours change every score by at most `sensitivity`, so
    a candidate's weight changes by a factor within exp(+-epsilon/2), and so does the sum of the weights: the
    ratio of the probabilities is within exp(+-epsilon), which is epsilon-DP. The sum is common to all
    candidates, so over the candidates the logarithm of that ratio spans at most epsilon: the choice is
    epsilon-bounded-range (Durfee & Rogers 2019), which composes better.

    The floats of `log_base_measure`, and `epsilon`, are taken as the rationals that they are. A logarithm
    rounded to a float is the exact logarithm of a slightly different base measure, which does not depend on
    the data either, so the proof above holds as it stands.

    Uniform proposals are kept with probability exp(-gamma_i), where the smallest gamma is 0: K candidates
    take at most K proposals on average.

    Args:
        scores: one whole number a candidate, of any size.
        sensitivity: how far one score can be apart between neighbours. When the changes of any two candidates
            differ by at most r, r/2 is enough: double the scores and pass r.
        epsilon: the cost.
        source: where the bits come from.
        log_base_measure: the logarithm of each candidate's weight at equal scores, up to a common constant;
            all equal when left out. It must not depend on the data.
    """
    gammas = _gammas(scores, sensitivity=sensitivity, epsilon=epsilon)
    if log_base_measure is not None:
        if len(log_base_measure) != len(gammas):
            raise InvalidInput(
                f"there are {len(log_base_measure)} base weights for {len(gammas)} scores",
                allowed="one for each score",
                code="wrong-number-of-weights",
            )
        logarithms = [float(value) for value in log_base_measure]
        if not all(map(math.isfinite, logarithms)):
            raise InvalidInput(
                "the logarithm of a base weight is not finite",
                allowed="finite numbers",
                advice="leave out candidates that must not be chosen",
                code="infinite-weight",
            )
        gammas = [gamma - Fraction(value) for gamma, value in zip(gammas, logarithms, strict=True)]
        smallest = min(gammas)
        gammas = [gamma - smallest for gamma in gammas]
    while True:
        index = uniform_below(len(gammas), source=source)
        if bernoulli_exp(gammas[index], source=source):
            return index


def exponential_probabilities(
    scores: Integers, *, sensitivity: int, epsilon: float, log_base_measure: Floats | None = None
) -> Floats:
    """The probability of each index that `exponential_mechanism` draws with these arguments, in doubles.

    Differences of scores are taken as whole numbers, so that scores of any size keep their digits. A function of the
    exact scores, and so as little private as they are: for public data and for tests.
    """
    logarithms = (scores - scores.max()) * (epsilon / (2 * sensitivity))
    if log_base_measure is not None:
        logarithms = logarithms + log_base_measure
    weights = np.exp(logarithms - logarithms.max())
    probabilities: Floats = weights / weights.sum()
    return probabilities


def _gammas(scores: Sequence[int], *, sensitivity: int, epsilon: float) -> list[Fraction]:
    """For each candidate, epsilon (best - score) / (2 sensitivity)."""
    if len(scores) == 0:
        raise InvalidInput(
            "there is no candidate to choose", allowed="at least one score", code="no-candidates"
        )
    try:
        whole = [operator.index(score) for score in scores]
        bound = operator.index(sensitivity)
    except TypeError as error:
        raise InvalidInput(
            "a score or the sensitivity is not a whole number",
            allowed="Python or NumPy integers",
            advice="put scores on an integer grid first, with their sensitivity in the same steps",
            code="not-an-integer",
        ) from error
    if bound <= 0:
        raise InvalidInput(f"the sensitivity is {bound}", allowed="1 or more", code="bad-sensitivity")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InvalidInput(f"epsilon is {epsilon}", allowed="a finite number above 0", code="bad-epsilon")
    best = max(whole)
    rate = Fraction(epsilon) / (2 * bound)  # audited: exponential rate
    return [rate * (best - score) for score in whole]
