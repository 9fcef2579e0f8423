"""A selector of one's own: the smallest threshold that a share of the users exceeds."""

import fedhist
from tests.support.api import (
    ANY_NORM,
    ScoringSelector,
    Tail,
    WeightedChoice,
    exponential_charge,
    nearness_scores,
    reading_as,
    tail_count,
)

SHARE = 0.02


@fedhist.register
class Mine(ScoringSelector):
    name = "mine"
    version = "1.0"
    reads = (("counts", ANY_NORM),)

    def charges(self, plan):
        return (exponential_charge(plan, tail_count(neighbours=plan.neighbours).value, share=SHARE),)

    def choice(self, plan, statistic):
        tail = reading_as(Tail, statistic)
        return WeightedChoice(
            plan=plan,
            scores=nearness_scores(tail.counts, round(SHARE * plan.users), most=plan.users, width=tail.width),
            sensitivity=tail_count(neighbours=plan.neighbours).whole,
            epsilon=plan.epsilon_select,
        )
