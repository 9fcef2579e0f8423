"""`quantile`: for Laplace noise, the private rank-ceil(d/eps) largest user total."""

from __future__ import annotations

import math

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.protocol.measurements.tails import ItemTail, Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.neighbours import Norm, tail_count
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    ANY_NORM,
    NoisySelector,
    ScoringSelector,
    Selection,
    Statistic,
    WeightedChoice,
    exponential_charge,
    item_selection,
    nearness_scores,
    reading_as,
)

_LARGEST_RANK = 2.0**40
FAILURE_PROBABILITY = 1e-3
"""beta: how often the choice may land beyond the last user."""


def target_rank(plan: Plan) -> int:
    """max(ceil(d/eps), (2/eps') ln(K/beta)), with d/eps after the neighbours' sensitivity.

    Deviation from lemma 4.1, which has the first term only: the exponential mechanism misses a rank by up to
    (2/eps') ln(K/beta), so a smaller one falls off the end of the data, where only C_m stops it.
    """
    slack = (2 / _epsilon_each(plan)) * math.log(len(plan.candidate_steps) / FAILURE_PROBABILITY)
    return math.ceil(min(max(plan.noise_price, slack), _LARGEST_RANK))


def _epsilon_each(plan: Plan) -> float:
    """eps', or its share where every item has a threshold of its own."""
    return plan.epsilon_select / plan.thresholds


class Quantile(ScoringSelector, NoisySelector):
    """Exponential mechanism with score -|#{users above C} - rank|, sensitivity 1. Pure epsilon'.

    Privacy: a user changes the number of users above C by at most 1 at every C, for either neighbours, and the
    score is a distance on the circle, so under masks this holds for whatever the other participants send. Where
    each item has a bound of its own, d such choices cost eps'/d each and eps' together.
    """

    name = "quantile"
    reads = (("counts", frozenset({Norm.L1})), ("item-counts", ANY_NORM))

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism a threshold."""
        sensitivity = tail_count(neighbours=plan.neighbours).value
        return (exponential_charge(plan, sensitivity, rank=target_rank(plan)),) * plan.thresholds

    def resolution(self, plan: Plan) -> float:
        """The rank that misses are allowed for, and (2/eps') ln K to tell it from all users."""
        if len(plan.candidate_steps) == 1:
            return 0.0
        slack = 2 * math.log(len(plan.candidate_steps)) - math.log(FAILURE_PROBABILITY)
        return 2 / _epsilon_each(plan) * slack

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Draw a candidate with probability proportional to exp(-eps' |count(C) - rank| / 2); one an item if asked."""
        if isinstance(statistic, ItemTail):
            choices = enumerate(self.item_choices(plan, statistic))
            drawn = [choice.draw(source=source.fork(item)) for item, choice in choices]
            return item_selection(plan, np.array([one.threshold.steps for one in drawn]))
        return super().select(plan, statistic, source=source)

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """The scores of the one bound for all items."""
        tail = reading_as(Tail, statistic)
        return _choice(plan, tail.counts, tail.width)

    def item_choices(self, plan: Plan, statistic: Statistic | None) -> list[WeightedChoice]:
        """The scores of each item's own bound."""
        tail = reading_as(ItemTail, statistic)
        return [_choice(plan, counts, tail.width) for counts in tail.counts]


def _choice(plan: Plan, counts: Integers, width: int) -> WeightedChoice:
    return WeightedChoice(
        plan=plan,
        scores=nearness_scores(counts, target_rank(plan), most=plan.most_users, width=width),
        sensitivity=tail_count(neighbours=plan.neighbours).whole,
        epsilon=_epsilon_each(plan),
    )
