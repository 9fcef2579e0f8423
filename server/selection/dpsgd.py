"""`dpsgd`: noisy gradient descent on G(C), the paper's use of Bassily, Smith and Thakurta."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.measurements.tail import Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm, tail_weight
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    NoisySelector,
    Selection,
    Statistic,
    check_gaussian,
    gaussian_charge,
    reading_as,
    whole_multiplier,
)
from fedhist.server.selection.crossing import falling

STEPS = 400
"""T: enough for the mean of the last half to settle; the noise of T steps composes to that of one."""

# The sampler takes standard deviations up to 2^26; weights are cut coarser when theirs would pass half of it.
_MAX_DEVIATION = 2.0**25


class DpSgd(NoisySelector):
    """Full-batch noisy gradient descent with exact Gaussian accounting.

    Deviation from the paper: Algorithm 1 of Bassily et al. takes n^2 single-user steps. The gradient M - W(C) is one
    number, so T full-batch steps of noise multiplier z, which cost exactly as much as one of z/sqrt(T), are the
    feasible form: step D/sqrt(t) for a gradient measured in its own range, the mean of the last half of the iterates.
    W(C) is read at the nearest candidate at or below C.

    Privacy: every step releases W at one point, sensitivity sqrt(s) for either neighbours, plus Gaussian noise; the
    points depend on earlier noisy answers only. Under masks W is known modulo 2^width, and without its low bits modulo
    2^(width - bits); it is read as a number only with the noise in it, so this holds for whatever the others send.
    """

    name = "dpsgd"
    reads = (("weights", frozenset({Norm.L2})),)

    def check(self, plan: Plan) -> None:
        """Gaussian noise needs a delta."""
        check_gaussian(plan, lambda: _noise(plan), self.name)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """T Gaussian steps as the one that they compose to."""
        sensitivity = tail_weight(plan.tail_cap, neighbours=plan.neighbours).value / (1 << WEIGHT_BITS)
        return (gaussian_charge(plan, sensitivity, steps=STEPS),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Descend from C_min."""
        tail = reading_as(Tail, statistic)
        noise, shift = _noise(plan)
        drawn, coarse = noise.draw(STEPS, source=source), tail.weights >> shift

        def answer(step: int, index: int) -> float:
            exact = coarse[index : index + 1]
            noisy = signed(exact + drawn[step], tail.width - shift).item()  # audited: dpsgd noised
            return math.ldexp(noisy, shift - WEIGHT_BITS)

        deviation = math.ldexp(noise.standard_deviation, shift - WEIGHT_BITS)
        return Selection(threshold=plan.at_steps(descend(plan, answer, deviation)))

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """The same descent, whose gradients are noisy already."""
        weights, deviation = falling(tail), float(tail.deviations.max())
        return plan.at_steps(descend(plan, lambda step, index: float(weights[index]), deviation))


def _noise(plan: Plan) -> tuple[Noise, int]:
    """The noise of one step, and how many low bits of the weights to drop so that it stays in the sampler's range.

    Dropping bits of two whole numbers that differ by cap leaves them at most ceil(cap / 2^shift) apart.
    """
    multiplier = whole_multiplier(plan) * math.sqrt(STEPS)  # audited: dpsgd steps
    shift = max(0, math.ceil(math.log2(multiplier * (plan.tail_cap + 1) / _MAX_DEVIATION)))
    return gaussian_noise(
        tail_weight(-(-plan.tail_cap >> shift), neighbours=plan.neighbours), multiplier
    ), shift


def descend(plan: Plan, answer: Callable[[int, int], float], deviation: float) -> float:
    """The mean of the last half of the iterates, in steps of the grid.

    Args:
        plan: whose candidates and noise price they are.
        answer: the noisy W at a candidate, by the number of the step and the index of the candidate.
        deviation: of the noise on an answer.
    """
    places = plan.candidate_steps
    lowest, highest = float(places[0]), float(places[-1])
    reach = plan.noise_price + deviation
    place, later = lowest, []
    for t in range(STEPS):
        index = int(np.searchsorted(places, place, side="right")) - 1
        gradient = plan.noise_price - answer(t, index)
        direction = min(max(gradient / reach, -1.0), 1.0)
        place = min(max(place - (highest - lowest) / math.sqrt(t + 1) * direction, lowest), highest)
        if t >= STEPS // 2:
            later.append(place)
    return math.fsum(later) / len(later)
