"""`exponential-sharp`: the exponential mechanism on a closer estimate of an open domain's error than V(C)."""

from __future__ import annotations

import math

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.protocol.measurements.expected_counts import SHARE_BITS, OpenTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.selection.contract import (
    ANY_NORM,
    ScoringSelector,
    Statistic,
    WeightedChoice,
    exponential_charge,
    reading_as,
)
from fedhist.server.selection.exponential_v import choice_by_range, shares_of, users_in_range


def sharp_error(plan: Plan, tail: OpenTail) -> Integers:
    """S(C) = sum_i max(m_i - C, 0) + sum_j p(A_j(C)) at each candidate, in multiples of 2^-SHARE_BITS.

    p(a) is what an item of clipped count a is expected to lose: all of it while a is below the bar t; beyond, it falls
    with slope one from t to the noise's scale, where V(C) stays at t for ever.
    """
    noises = plan.open_noises(plan.candidate_steps)
    bars = shares_of(noise.bar for noise in noises)
    floors = shares_of(math.ceil(noise.scale) for noise in noises)
    lost = np.zeros_like(bars)
    for piece in tail.expected.pieces():
        lost += np.minimum(piece, np.maximum(2 * bars - piece, floors)).sum(axis=0)
    return (tail.overflow << SHARE_BITS) + lost


def sharp_range(plan: Plan) -> float:
    """The largest range over C of one user's change of S, in counts.

    p has slope at most one either way, so a user of total m (cut to C_m) changes S(C) by at least -min(m, C) and at
    most max(m - C, 0) + min(m, C) = m: a range of at most 2 C_m. Replacing is removing and adding: 4 C_m.
    """
    times = 4 if plan.neighbours is Neighbours.REPLACE_ONE else 2
    return times * float(plan.candidate_steps[-1])


class ExponentialSharp(ScoringSelector):
    """P(C) proportional to exp(-eps' S(C) / R), R the range of one user's change of S. Pure epsilon'."""

    name = "exponential-sharp"
    reads = (("expected-counts", ANY_NORM),)

    range_costs = True

    def resolution(self, plan: Plan) -> float:
        """The same as for every score over an open domain."""
        return users_in_range(plan, sharp_range(plan))

    def check(self, plan: Plan) -> None:
        """The score is made for a release with a bar."""
        plan.open_noises(plan.candidate_steps[-1:])

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism; its sensitivity is half of the range."""
        return (exponential_charge(plan, sharp_range(plan) / 2, score="S"),)

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """The scores and their range."""
        return choice_by_range(plan, -sharp_error(plan, reading_as(OpenTail, statistic)), sharp_range(plan))
