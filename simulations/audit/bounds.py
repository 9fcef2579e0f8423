"""Lower bounds of epsilon from counts of guesses and events, at a stated level of confidence.

`alpha` is the probability with which a bound may be wrong for a mechanism that keeps its promise.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from fedhist.protocol.histograms import Flags, Floats

LARGEST_EPSILON = 64.0
"""The largest bound: nobody claims more, and no audit of this size could show it."""


def at_least(hits: int, trials: int, alpha: float) -> float:
    """Clopper & Pearson 1934: the chance of a hit is at least this, except with probability alpha."""
    return 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, alpha))


def at_most(hits: int, trials: int, alpha: float) -> float:
    """The chance of a hit is at most this, except with probability alpha."""
    return 1.0 if hits == trials else float(special.betaincinv(hits + 1, trials - hits, 1 - alpha))


def one_run_p_value(canaries: int, guesses: int, correct: int, *, epsilon: float, delta: float) -> float:
    """An upper bound of the chance of this many right guesses if flipping any one coin is (epsilon, delta)-private.

    Steinke, Nasr & Jagielski 2023, theorem 5.2. Of `canaries` independent fair coins, the auditor guesses `guesses`, a
    number fixed beforehand, and gets `correct` right. With f(v) = P(Binomial(guesses, e^epsilon/(1 + e^epsilon)) >= v):

        P(correct >= v)  <=  f(v) + 2 canaries delta max over i >= 1 of (f(v - i) - f(v))/i
    """
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0 or correct == 0:
        return min(tail, 1.0)
    gained = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance))
    steepest = float(np.max(gained / np.arange(1, correct + 1)))
    return min(tail + 2 * canaries * delta * steepest, 1.0)


def one_run_epsilon(canaries: int, guesses: int, correct: int, *, delta: float, alpha: float) -> float:
    """The largest epsilon at which the guesses have a p-value of at most alpha; 0 if there is none."""

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon=epsilon, delta=delta) <= alpha

    low, high = 0.0, LARGEST_EPSILON
    if not refuted(low):
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def event_epsilon(
    hits: int, trials: int, other_hits: int, other_trials: int, *, delta: float, alpha: float
) -> float:
    """Epsilon from how often an event occurs in two worlds: ln((P - delta)/P'), P from below and P' from above."""
    low, high = at_least(hits, trials, alpha / 2), at_most(other_hits, other_trials, alpha / 2)
    return min(max(math.log((low - delta) / high), 0.0), LARGEST_EPSILON) if low > delta else 0.0


def accuracy_epsilon(correct: int, guesses: int, *, delta: float, alpha: float) -> float:
    """Epsilon from guesses at a fair coin that decides between two worlds.

    For any test, (epsilon, delta)-privacy makes both errors together at least 2 (1 - delta)/(1 + e^epsilon) (Kairouz,
    Oh & Viswanath 2015), so that a guess is right with chance at most (e^epsilon + delta)/(1 + e^epsilon). One binomial
    bound instead of the two of `event_epsilon`: sharper where epsilon is small and delta large.
    """
    low = at_least(correct, guesses, alpha)
    if low <= (1 + delta) / 2:
        return 0.0
    return LARGEST_EPSILON if low >= 1 else min(math.log((low - delta) / (1 - low)), LARGEST_EPSILON)


def learn_event(without: Floats, with_user: Floats, *, delta: float) -> tuple[float, bool]:
    """The cut of the scores, and the side of it (True: above speaks for the user), that prove most about epsilon.

    Args:
        without: scores of the training runs without the user.
        with_user: scores of the training runs with the user.
        delta: the claimed one.
    """
    # The best of a few hundred cuts; confidence bounds keep a rare event from looking good by luck.
    cuts = np.unique(np.quantile(np.concatenate([without, with_user]), np.linspace(0.002, 0.998, 250)))
    best = (-math.inf, float(cuts[0]), True)
    for above, ours, theirs in ((True, with_user, without), (False, without, with_user)):
        for cut in cuts.tolist():
            inside = (int(count_event(ours, cut, above).sum()), int(count_event(theirs, cut, above).sum()))
            bound = event_epsilon(inside[0], len(ours), inside[1], len(theirs), delta=delta, alpha=1e-3)
            best = max(best, (bound, cut, above))
    return best[1], best[2]


def count_event(scores: Floats, cut: float, above: bool) -> Flags:
    """A flag for each score: True if it is in the event."""
    inside: Flags = scores >= cut if above else scores < cut
    return inside
