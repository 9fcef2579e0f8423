"""`weighted-quantile`: the exponential mechanism around the point where the weighted tail meets the noise's price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import BoundedRangeLoss, Charge
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, tail_weight
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    ANY_NORM,
    Reads,
    Selection,
    Statistic,
    WeightedChoice,
    closed_tail,
    nearness_scores,
    price_in_weights,
)
from fedhist.server.selection.crossing import first_crossing

BASE_MEASURE_POWER = -2.0
"""Candidates start with weight C^-2: an error upwards costs noise on every item, so large bounds must earn it."""


@dataclass(frozen=True)
class WeightedQuantile:
    """Score -|W(C) - M|, sensitivity sqrt(s), base measure C^-2 on the geometric grid. Pure epsilon'.

    Deviation from the paper: it minimises G(C) by noisy optimisation; C* is the point where the slope M - W(C) changes
    sign, and choosing that point directly loses less at the same cost (benchmarks/selector_losses.py).

    Privacy: W moves by at most sqrt(s) at every candidate for either neighbours (`neighbours.tail_weight`), so the
    score does, and the base measure does not depend on the data: the exponential mechanism is epsilon'-private. The
    score is a distance on the circle, so this holds under masks for whatever the other participants send.
    """

    name: str = "weighted-quantile"
    reads: Reads = (("weights", ANY_NORM),)
    reads_noise: bool = False
    private: bool = True

    def check(self, plan: Plan) -> None:
        """Nothing beyond the plan's own checks."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism."""
        return (
            Charge(
                round="select",
                name="exponential-mechanism",
                parameters={
                    "candidates": len(plan.candidate_steps),
                    "base_measure_power": BASE_MEASURE_POWER,
                },
                sensitivity=tail_weight(plan.tail_cap, neighbours=plan.neighbours).value / (1 << WEIGHT_BITS),
                norm="score",
                neighbours=plan.neighbours.value,
                epsilon=plan.epsilon_select,
                delta=0.0,
                loss=BoundedRangeLoss(),
            ),
        )

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Draw a candidate with probability proportional to C^-2 exp(-eps' |W(C) - M| / (2 sqrt(s)))."""
        return self.choice(plan, statistic).draw(source=source)

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """Where the weight has fallen to the noise's price."""
        return first_crossing(plan, tail)

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """The scores and their weights."""
        tail = closed_tail(statistic)
        return WeightedChoice(
            plan=plan,
            scores=nearness_scores(
                tail.weights, price_in_weights(plan), most=plan.users * plan.tail_cap, width=tail.width
            ),
            sensitivity=tail_weight(plan.tail_cap, neighbours=plan.neighbours).whole,
            epsilon=plan.epsilon_select,
            log_base_measure=BASE_MEASURE_POWER * np.log(plan.candidate_steps),
        )
