"""`output-perturbation`: the paper's Algorithm 2, the minimiser of a regularised objective plus Laplace noise."""

from __future__ import annotations

import math

import numpy as np

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.measurements.tail import Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, PureLoss
from fedhist.protocol.privacy.mechanisms import laplace_noise
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    NoisySelector,
    Selection,
    Statistic,
    check_drawable,
    middle_threshold,
    reading_as,
)
from fedhist.server.selection.crossing import falling


def regularisation(plan: Plan) -> float:
    """Lambda n = 2 sqrt(2 s n / eps') / C_m, with eps' (the corollary) where the printed algorithm has eps."""
    root_sparsity = plan.tail_cap / (1 << WEIGHT_BITS)
    return 2 * root_sparsity * math.sqrt(2 * plan.users / plan.epsilon_select) / plan.max_threshold


def minimiser_sensitivity(plan: Plan) -> Sensitivity:
    """How far one user moves the minimiser, in steps of the grid.

    n F(C) = G(C) + lambda n C^2/2 is lambda-n-strongly convex and one user changes its slope by at most sqrt(s)
    anywhere, so the minimiser moves by at most sqrt(s)/(lambda n) (the paper charges four times that); clamping to
    [C_min, C_m] moves no two points apart. Rounding both to the grid can add one step. Same for both neighbours.
    """
    root_sparsity = plan.tail_cap / (1 << WEIGHT_BITS)
    steps = math.floor(root_sparsity / regularisation(plan) * 2**plan.grid_bits * (1 + 1e-9)) + 1
    return Sensitivity(square=steps**2, norm=Norm.L1, neighbours=plan.neighbours)  # audited: minimiser


class OutputPerturbation(NoisySelector):
    """C' + Lap(sqrt(s)/(lambda n eps')), clamped to [C_min, C_m]. Pure epsilon'.

    The proof of `minimiser_sensitivity` needs a W(C) that falls, as any sum of users' tails does. Without masks the
    server sees to that (`TailMeasurement.check`). Under masks it can't, so there this selector needs noise
    from devices.
    """

    name = "output-perturbation"
    reads = (("weights", frozenset({Norm.L2})),)

    range_costs = True

    def resolution(self, plan: Plan) -> float:
        """Where the scale of the noise, C_m/sqrt(8 n eps'), is the middle of the range."""
        return (plan.max_threshold / middle_threshold(plan)) ** 2 / (8 * plan.epsilon_select)

    def check(self, plan: Plan) -> None:
        """The noise must be one that can be drawn, and what is minimised a sum of what users have."""
        if plan.is_masked:
            raise InvalidPlan(
                "the selector output-perturbation reads exact sums before it draws noise, and under masks one "
                "participant that lies about its own could make its result hang on another's data",
                allowed="output-perturbation without masking, or with noise from devices",
                advice="use --selector weighted-quantile, or --noise-from devices",
                code="not-under-masks",
            )
        check_drawable(lambda: laplace_noise(minimiser_sensitivity(plan), plan.epsilon_select), self.name)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One discrete Laplace draw."""
        sensitivity = minimiser_sensitivity(plan)
        return (
            Charge(
                round="select",
                name="discrete-laplace",
                parameters={"regularisation": regularisation(plan)},
                sensitivity=sensitivity.value / 2**plan.grid_bits,
                norm=sensitivity.norm.value,
                neighbours=plan.neighbours.value,
                epsilon=plan.epsilon_select,
                delta=0.0,
                loss=PureLoss(),
            ),
        )

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Minimise over the tail's step function, add the noise, clamp."""
        tail = reading_as(Tail, statistic)
        weights = np.ldexp(tail.weights.astype(np.float64), -WEIGHT_BITS)
        exact = plan.at_steps(math.ldexp(minimiser(plan, weights), plan.grid_bits)).steps
        noise = laplace_noise(minimiser_sensitivity(plan), plan.epsilon_select).draw(1, source=source)
        return Selection(threshold=plan.at_steps(exact + int(noise[0])))

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """The minimiser of the regularised objective, which needs no noise of its own."""
        return plan.at_steps(math.ldexp(minimiser(plan, falling(tail)), plan.grid_bits))


def minimiser(plan: Plan, weights: Floats) -> float:
    """Where the slope M - W(C) + lambda n C of n F changes sign, in counts, with W constant between candidates.

    W(C) is W(C_k) on [C_k, C_{k+1}). The slope rises with C, so the first interval in which it is not negative at
    the end holds the minimiser.
    """
    strength = regularisation(plan)
    places = np.ldexp(plan.candidate_steps.astype(np.float64), -plan.grid_bits)
    excess = weights - plan.noise_price
    ends = np.append(places[1:], places[-1])
    rising = strength * ends >= excess
    if not rising.any():
        return float(places[-1])
    index = int(rising.argmax())
    return float(np.clip(excess[index] / strength, places[index], ends[index]))
