"""`weighted-quantile`: the exponential mechanism around the point where the weighted tail meets the noise's price."""

from __future__ import annotations

import math

import numpy as np

from fedhist.protocol.measurements.tails import Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm, tail_weight
from fedhist.server.selection.contract import (
    ANY_NORM,
    NoisySelector,
    ScoringSelector,
    Statistic,
    WeightedChoice,
    exponential_charge,
    in_weights,
    nearness_scores,
    reading_as,
)
from fedhist.server.selection.crossing import target_weight

BASE_MEASURE_POWER = -3.0
"""Candidates start with weight C^-3: an error upwards costs noise on every item, so large bounds must earn it.

It decides where the score can't: eps' M/(2 sqrt(s)) is how far apart the scores of C* and of the largest bound are.
"""


class WeightedQuantile(ScoringSelector, NoisySelector):
    """Score -|W(C) - T|, sensitivity sqrt(s), base measure C^-3 on the geometric grid. Pure epsilon'.

    Deviation from the paper: it minimises G(C) by noisy optimisation; C* is the point where the slope M - W(C) changes
    sign, and choosing that point directly loses less at the same cost (benchmarks/selector_losses.py). T is M, but
    less where n users are few for so much noise, see `target_weight`.

    Privacy: W moves by at most sqrt(s) at every candidate for either neighbours (`neighbours.tail_weight`), so the
    score does, and the base measure does not depend on the data: the choice is epsilon'-private. The
    score is a distance on the circle, so this holds under masks for whatever the other participants send.
    """

    name = "weighted-quantile"
    reads = (("weights", ANY_NORM), ("norm-tails", ANY_NORM))

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism."""
        sensitivity = tail_weight(plan.tail_cap, neighbours=plan.neighbours).value / (1 << WEIGHT_BITS)
        return (exponential_charge(plan, sensitivity, base_measure_power=BASE_MEASURE_POWER),)

    def resolution(self, plan: Plan) -> float:
        """Users of one item each, whose weight is one."""
        sensitivity = tail_weight(plan.tail_cap, neighbours=plan.neighbours).value / (1 << WEIGHT_BITS)
        return weight_to_leave_the_start(plan, sensitivity)

    def share_of_total(self, plan: Plan) -> float:
        """That of `best_share`."""
        return best_share(plan, *self.charges(plan), composes=plan.norm is Norm.L2)

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """A probability proportional to C^-3 exp(-eps' |W(C) - T| / (2 sqrt(s)))."""
        tail = reading_as(Tail, statistic)
        return WeightedChoice(
            plan=plan,
            scores=nearness_scores(
                tail.weights,
                in_weights(target_weight(plan)),
                most=plan.most_users * plan.tail_cap,
                width=tail.width,
            ),
            sensitivity=tail_weight(plan.tail_cap, neighbours=plan.neighbours).whole,  # audited: tail weight
            epsilon=plan.epsilon_select,
            log_base_measure=BASE_MEASURE_POWER * np.log(plan.candidate_steps),
        )


def weight_to_leave_the_start(plan: Plan, sensitivity: float) -> float:
    """The weight that makes the middle of the range as likely as C_min.

    Where W exceeds the target by w at C_min and not in the middle, the score makes the middle e^(eps' w/(2 S)) times
    likelier, S being its sensitivity. The base measure makes it (C_m/C_min)^(p/2) times less likely, p being its power.
    """
    lowest, highest = plan.step_range
    return -BASE_MEASURE_POWER * sensitivity / plan.epsilon_select * math.log(highest / lowest)


def best_share(plan: Plan, choice: Charge, *, composes: bool) -> float:
    """The share of a total T for the choice that loses least. It is public: it depends on the plan alone.

    A share x makes the choice sharp to t = x T M/(2 S) nats, where M is the price of noise and S the sensitivity of
    the score: between the best threshold and one that clips nobody, the chances differ by e^t. A choice that misses by
    a share of 1/t loses about 1/t^2, because the loss is flat around its least value. Against that stands what x takes
    from the histogram: under tight composition with Gaussian noise about x^2, with Laplace noise, or where that may be
    chosen, x. So the sum is least where x is in proportion to (T M/(2 S))^(-1/2), or to the power of -2/3. The factors
    are those of synthetic users, heavy-tailed and alike, from 2,000 users of 50 items to 20,000 users of 5,000
    (benchmarks/splits.py).

    Args:
        plan: one whose epsilon is T.
        choice: the charge of the choice.
        composes: whether the histogram's noise is Gaussian for certain.
    """
    nats = plan.epsilon * plan.one_way.noise_price / (2 * choice.sensitivity)
    return 0.75 / math.sqrt(nats) if composes else 1.2 / math.cbrt(nats) ** 2
