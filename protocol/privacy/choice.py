"""Private choice of one of finitely many candidates by score, sampled exactly.

The mechanism tosses coins of probability exp(-gamma) for rational gamma, with integers of any size: there is
no overflow, no underflow and no rounding, whatever the scores.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.privacy.noise import bernoulli_exp, uniform_below
from fedhist.protocol.privacy.randomness import Source


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
