"""A selector with a measurement of its own: it chooses by how many different items users have."""

from dataclasses import dataclass, replace

import numpy as np

import fedhist
from tests.support.api import (
    ANY_NORM,
    ScoringSelector,
    Tail,
    TailMeasurement,
    WeightedChoice,
    exponential_charge,
    nearness_scores,
    reading_as,
    tail_count,
)


@fedhist.register
@dataclass(frozen=True, eq=False)
class DistinctTail(TailMeasurement):
    """A tail of counts of one. Sensitivity: as of the tail, whatever the counts are."""

    name = "distinct-tail"
    offers = frozenset({"distinct-counts"})

    def of(self, users, *, source):
        return super().of(replace(users, counts=np.minimum(users.counts, 1)), source=source)


@fedhist.register
class ByDistinct(ScoringSelector):
    name = "by-distinct"
    reads = (("distinct-counts", ANY_NORM),)

    def charges(self, plan):
        return (exponential_charge(plan, tail_count(neighbours=plan.neighbours).value),)

    def choice(self, plan, statistic):
        tail = reading_as(Tail, statistic)
        return WeightedChoice(
            plan=plan,
            scores=nearness_scores(tail.counts, plan.users // 10, most=plan.users, width=tail.width),
            sensitivity=tail_count(neighbours=plan.neighbours).whole,
            epsilon=plan.epsilon_select,
        )
