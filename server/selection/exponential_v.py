"""`exponential-v`: the paper's Algorithm 4, the exponential mechanism on the error bound V(C) of an open domain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.protocol.measurements.key_totals import SHARE_BITS, OpenTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.selection.contract import (
    ANY_NORM,
    ScoringSelector,
    Statistic,
    WeightedChoice,
    exponential_charge,
    middle_threshold,
    reading_as,
)

_MOST = 1 << 61
# What the counts of all users of any plan add up to at most, in multiples of 2^-SHARE_BITS: so do the A_j(C).


def error_bound(plan: Plan, tail: OpenTail) -> Integers:
    """V(C) = 2 sum_i max(m_i - C, 0) + sum_j min(A_j(C), t(C)) at each candidate, in multiples of 2^-SHARE_BITS.

    Liu et al., section 5: an upper bound of the expected error, with the expectation taken inside the minimum. t(C) is
    the bar of the plan's own release. Totals are cut to C_m.
    """
    return capped_error(tail, [noise.bar for noise in plan.open_noises(plan.candidate_steps)])


def capped_error(tail: OpenTail, caps: Sequence[int]) -> Integers:
    """2 sum_i max(m_i - C, 0) + sum_j min(A_j(C), cap) with a cap for each candidate, in multiples of 2^-SHARE_BITS."""
    shifted = shares_of(caps)
    lost = np.zeros_like(shifted)
    for piece in tail.expected.pieces():
        lost += np.minimum(piece, shifted).sum(axis=0)
    return (2 * tail.overflow << SHARE_BITS) + lost


def shares_of(counts: Iterable[int]) -> Integers:
    """Whole counts in multiples of 2^-SHARE_BITS. One that no sum reaches is lowered to the most that one can be."""
    return np.array([min(int(count) << SHARE_BITS, _MOST) for count in counts])


def score_range(plan: Plan) -> float:
    """The largest range over C of one user's change of V, in counts; the exponential mechanism needs no more.

    A user of total m (cut to C_m) adds f(C) = 2 max(m - C, 0) + g(C) to V(C), where 0 <= g(C) <= min(m, C), because
    the user's parts of the A_j(C) sum to min(m, C) and the minimum with t grows by no more. Zero out: 0 <= f(C)
    <= 2 C_m - C_min. Replace a by b, say m_a <= m_b: f_b - f_a is at most 2 m_b - m_a and at least -m_a, by cases
    C < m_a, between, and C > m_b; so its range is at most 2 m_b <= 2 C_m.
    """
    largest = float(plan.candidate_steps[-1])
    smallest = float(plan.candidate_steps[0])
    return 2 * largest if plan.neighbours is Neighbours.REPLACE_ONE else 2 * largest - smallest


class ExponentialV(ScoringSelector):
    """P(C) proportional to exp(-eps' V(C) / R), R the range of one user's change of V. Pure epsilon'.

    Deviation from the paper: R instead of twice a sensitivity of 5 C_m/2, because only differences between candidates
    matter. The score is -V, and delta' is not used.
    """

    name = "exponential-v"
    reads = (("expected-counts", ANY_NORM),)

    range_costs = True

    def range_of(self, plan: Plan) -> float:
        """R, in counts."""
        return score_range(plan)

    def resolution(self, plan: Plan) -> float:
        """The same as for every score over an open domain."""
        return users_in_range(plan, self.range_of(plan))

    def check(self, plan: Plan) -> None:
        """The score is made for a release with a bar."""
        plan.open_noises(plan.candidate_steps[-1:])

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism; its sensitivity is half of the range."""
        return (exponential_charge(plan, self.range_of(plan) / 2, score="V"),)

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """The scores and their range."""
        return choice_by_range(plan, -error_bound(plan, reading_as(OpenTail, statistic)), self.range_of(plan))


def users_in_range(plan: Plan, change: float) -> float:
    """How many users, with the counts of the middle of the range each, a choice by this range can't tell from none.

    A user of total m changes the difference of two scores by at most 2 m. So n users of mean total m change the odds
    of two candidates by at most e^(2 eps' n m/R), and less than K can't make one candidate likelier than all others.
    """
    most = math.log(len(plan.candidate_steps)) * change / plan.epsilon_select
    return most / (2 * middle_threshold(plan))


def choice_by_range(plan: Plan, scores: Integers, change: float) -> WeightedChoice:
    """A candidate's probability is proportional to exp(eps' score / range).

    Privacy: one user multiplies the weight of C by exp(-eps' f(C) / R) for an f whose range is at most R, so the
    weights' shares change by a factor of at most exp(eps').
    """
    half = -(-round(change * (1 << SHARE_BITS)) // 2)  # audited: range of V
    return WeightedChoice(plan=plan, scores=scores, sensitivity=half, epsilon=plan.epsilon_select)
