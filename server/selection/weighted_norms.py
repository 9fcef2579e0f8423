"""`weighted-quantile` for plans that choose their mechanism: one draw of a norm together with its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.protocol.circle import nearness
from fedhist.protocol.histograms import Integers
from fedhist.protocol.measurements.tails import NormPairs, NormTails, norm_pairs
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.selection.contract import (
    ANY_NORM,
    ScoringSelector,
    Selection,
    Statistic,
    WeightedChoice,
    exponential_charge,
    in_weights,
    nearness_scores,
    reading_as,
)
from fedhist.server.selection.crossing import target_weight
from fedhist.server.selection.weighted_quantile import (
    BASE_MEASURE_POWER,
    best_share,
    weight_to_leave_the_start,
)

_LARGEST_GAP = 1 << 60
_CLEAR = 12.0
"""A gap of this many sensitivities over epsilon' makes one norm e^6 times as likely as the other."""


@dataclass(frozen=True, eq=False)
class NormChoice(WeightedChoice):
    """A choice among the l2 bounds and, after them, the l1 bounds of all pairs."""

    def selection(self, index: int) -> Selection:
        """The mechanism and its bound."""
        pairs = norm_pairs(self.plan)
        both = len(pairs.l2)
        mechanism, steps, own = (
            ("gaussian", pairs.l2, slice(both)) if index < both else ("laplace", pairs.l1, slice(both, None))
        )
        threshold = self.plan.ways[mechanism].at_steps(int(steps[index % both]))
        return Selection(
            threshold,
            scores=self.scores[own],
            candidates=steps,
            base=self.base()[own],
            chances=self.probabilities()[own],
            mechanism=mechanism,
        )


class WeightedNorms(ScoringSelector):
    """The scores of `weighted-quantile` in either norm, and the gap between the norms on top. Pure epsilon'.

    Of the pair (a, b), whose noise is the same, with T the target in l2 and T/rho in l1:

        u(l2, a) = -|W2(a) - T|               + g(a)/2
        u(l1, b) = -rho |W1(b) - T/rho|       - g(a)/2

    The first terms say which bound is right for a norm, the gap which norm keeps more. g is the gap, cut to [-G, G],
    where a gap of G makes one norm e^6 times as likely as the other: where the norm is clear, only the first terms
    say which bound is right. Scores are doubled here, to be whole numbers.

    Privacy, one user added. Let r be the user's weight, m their total. W2(a) moves by w = r where their norm is above
    a, else by 0; rho W1(b) by v = rho where m > b, else by 0; the gap by min(r, m/a) - min(rho, m/a), and g by
    something between that and 0. So u(l2, a) moves by something in [-w, w] + h/2, u(l1, b) by something in [-v, v] -
    h/2, where h is the move of g. Say r >= rho. Then 0 <= h <= r - rho. The largest move is r + (r - rho)/2, the
    smallest one the least of -r and -rho - (r - rho)/2, which is -r: they span 2r + (r - rho)/2. With r < rho the norms
    change places, and as r >= 1 they span 2 rho + (rho - 1)/2 at most. An exponential mechanism needs half of the span:
    a quarter of r - rho, or of rho - 1, more than for the bound alone.

    Rounding makes ratios b/a differ between pairs, which adds half of their spread to the span, and moves each part of
    the gap by at most `NormPairs.rounding`. A user who is replaced moves the gap by up to sqrt(s) - 1 either way; and
    under masks, where others may have carried the gap around the circle, g may count with either sign: there the bound
    is the largest move itself.
    """

    name = "weighted-quantile"
    reads = (("norm-tails", ANY_NORM),)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism."""
        pairs = norm_pairs(plan)
        return (
            exponential_charge(
                plan,
                score_sensitivity(plan) / (2 * pairs.one),
                candidates=2 * len(pairs.l2),
                base_measure_power=BASE_MEASURE_POWER,
            ),
        )

    def resolution(self, plan: Plan) -> float:
        """The same as for one norm, at the sensitivity of both."""
        return weight_to_leave_the_start(plan, score_sensitivity(plan) / (2 * norm_pairs(plan).one))

    def share_of_total(self, plan: Plan) -> float:
        """That of `best_share`, as for Laplace noise."""
        return best_share(plan, *self.charges(plan), composes=False)

    def choice(self, plan: Plan, statistic: Statistic | None) -> NormChoice:
        """A probability proportional to a^-3 exp(eps' u / (2 S)), S half of the span."""
        tails, pairs = reading_as(NormTails, statistic), norm_pairs(plan)
        target = target_weight(plan.ways["gaussian"])
        most = plan.most_users * pairs.cap
        by_l2 = nearness_scores(tails.weights, in_weights(target), most=most, width=tails.width)
        # One target for both: what T is in l2 is T a/b in l1, where a user weighs b/a.
        rank = round(target * pairs.one / float(np.median(pairs.ratios)))
        by_l1 = nearness_scores(tails.counts, rank, most=plan.most_users, width=tails.width)
        most_gap = math.ceil(_CLEAR * score_sensitivity(plan) / plan.epsilon_select)
        gap = np.clip(_within(tails.gap, tails.width), -most_gap, most_gap)
        scores = [
            (np.maximum(by_l2, -most) << (pairs.fine_bits + 1)) + gap,
            2 * pairs.ratios * np.maximum(by_l1, -plan.most_users) - gap,
        ]
        return NormChoice(
            plan=plan,
            scores=np.concatenate(scores),
            sensitivity=score_sensitivity(plan),
            epsilon=plan.epsilon_select,
            log_base_measure=np.tile(BASE_MEASURE_POWER * np.log(pairs.l2), 2),
        )


def score_sensitivity(plan: Plan) -> int:
    """Half of the span of one user's moves of the doubled scores, see `WeightedNorms`."""
    pairs = norm_pairs(plan)
    most = max(pairs.largest, int(pairs.ratios.max()))
    if plan.neighbours is Neighbours.REPLACE_ONE:
        return 2 * most + pairs.rise + pairs.fall
    if plan.is_masked:
        return 2 * most + max(pairs.rise, pairs.fall)
    return 2 * most + -(-(max(pairs.rise, pairs.fall) + _spread(pairs)) // 2) + 2 * pairs.rounding


def _spread(pairs: NormPairs) -> int:
    return int(pairs.ratios.max() - pairs.ratios.min())


def _within(gap: Integers, width: int) -> Integers:
    """The gap itself where nothing wrapped around; on the circle a distance to a point beyond all gaps."""
    return np.maximum(nearness(gap, _LARGEST_GAP, width), -2 * _LARGEST_GAP) + _LARGEST_GAP
