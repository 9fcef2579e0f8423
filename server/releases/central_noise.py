"""`noise`: the server adds noise to the clipped sum. Closed domains."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.base import Total
from fedhist.protocol.measurements.sums import ClippedSum
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import MECHANISMS
from fedhist.protocol.privacy.ledger import (
    Alternative,
    AlternativesLoss,
    Charge,
    GaussianLoss,
    Ledger,
    PureLoss,
)
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.noise import Noise, gaussian_noise, laplace_noise
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.estimates import NoiseLaw, estimates_and_limits, law_of_noise
from fedhist.server.releases.contract import Inference, Release, ReleaseRule, RuleWords
from fedhist.server.selection.contract import Selection


class CentralNoise(ReleaseRule):
    """Discrete Gaussian noise for l2 clips, discrete Laplace for l1, on every item.

    Scaling by a power of two is exact and comes after the noise.
    """

    name = "noise"
    measures = ClippedSum.name

    def fits(self, plan: Plan) -> bool:
        """Whole histograms of a closed domain, noised by the server."""
        return super().fits(plan) and not ClippedSum.noised(plan)

    def words(self, plan: Plan) -> RuleWords:
        """Noise."""
        noise = " or ".join(MECHANISMS) if plan.chooses_mechanism else plan.mechanism
        return RuleWords("adds noise", "The server adds discrete noise to every item.", noise)

    def warnings(self, plan: Plan) -> dict[str, str]:
        """Noise above a typical item."""
        return noise_warnings(plan, plan.closed.items)

    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """One mechanism on the whole vector."""
        parameters: dict[str, float | int | str] = {"items": plan.closed.items, "grid_bits": plan.grid_bits}
        if threshold is not None:
            noise = release_noise(plan, threshold)
            parameters["threshold"] = threshold.value
            parameters["standard_deviation"] = math.ldexp(noise.standard_deviation, -threshold.bits)
        sensitivity = plan.release_sensitivity(0 if threshold is None else threshold.steps)
        return (vector_charge(plan, parameters, math.ldexp(sensitivity.value, -plan.grid_bits)),)

    def build(
        self, plan: Plan, selection: Selection, reading: Total, *, ledger: Ledger, source: Source
    ) -> Release:
        """Noise every item."""
        threshold = selection.threshold
        noise = release_noise(plan, threshold)
        drawn = noise.draw(len(reading.values), source=source)
        noised = signed(reading.values + drawn, reading.width)  # audited: central noise
        return Release(
            plan=plan,
            threshold=threshold.value,
            histogram=in_counts(plan, noised),
            standard_error=math.ldexp(noise.standard_deviation, -threshold.bits),
            charges=ledger.entries,
            private=ledger.private,
            seeded=source.seeded,
            infer=partial(inferred, threshold, noised, law_of_noise(noise)),
        )


def noise_warnings(plan: Plan, divided_by: int) -> dict[str, str]:
    """A mean item, of users with C counts each, that is below the standard error.

    At every threshold C: n users who have C counts give d items n C/d counts on average, or n C where each item has a
    threshold of its own, and the noise has a standard error of e C. So C does not matter.
    """
    error = min(way.unit_error for way in (plan.ways.values() if plan.chooses_mechanism else [plan]))
    if plan.users / divided_by >= error:
        return {}
    warning = (
        f"the noise will exceed a typical item: if each of {plan.users:,} users has C counts, the mean of "
        f"{plan.closed.items:,} items is {plan.users / divided_by:.3g} C, and the noise has a standard error of "
        f"{error:.3g} C, whatever the threshold C is. Raise --epsilon, release fewer items or ask at least "
        f"{math.ceil(error * divided_by):,} users"
    )
    return {"noise": warning}


def in_counts(plan: Plan, noised: Integers) -> Floats:
    """The items' values of a noised sum in steps."""
    return np.ldexp(noised.astype(np.float64), -plan.grid_bits)


def inferred(threshold: Threshold, noised: Integers, law: NoiseLaw) -> Inference:
    """What noised sums in steps tell of every item: post-processing."""
    estimated, least = (np.ldexp(one, -threshold.bits) for one in estimates_and_limits(noised, law))
    return Inference(estimate=estimated, at_least=least)


def release_noise(plan: Plan, threshold: Threshold) -> Noise:
    """The noise on each item, in steps of the grid."""
    return noise_for(plan, plan.release_sensitivity(threshold.steps))


def noise_for(plan: Plan, sensitivity: Sensitivity) -> Noise:
    """The plan's noise for a sum of this sensitivity."""
    if plan.norm is Norm.L2:
        return gaussian_noise(sensitivity, plan.multiplier)
    return laplace_noise(sensitivity, plan.epsilon)


def for_either_mechanism(plan: Plan, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """The charges of a release whose mechanism the run itself chose: the same cost, whichever it was.

    Gaussian noise is (epsilon, delta)-private and Laplace noise epsilon-private, so the release is (epsilon,
    delta)-private whatever the choice was; for a tight total both are ways that the run may go.
    """
    ways = (Alternative(multiplier=plan.multiplier), Alternative(epsilon=plan.epsilon))
    cost = {"epsilon": plan.epsilon, "delta": plan.delta, "loss": AlternativesLoss(ways)}
    return tuple(replace(charge, **cost) for charge in charges)  # type: ignore[arg-type]  # mixed values


def vector_charge(plan: Plan, parameters: dict[str, float | int | str], sensitivity: float) -> Charge:
    """The charge of the plan's noise on a whole vector."""
    gaussian = plan.norm is Norm.L2
    return Charge(
        round="release",
        name="discrete-gaussian" if gaussian else "discrete-laplace",
        parameters=parameters,
        sensitivity=sensitivity,
        norm=plan.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon,
        delta=plan.delta,
        loss=GaussianLoss(multiplier=plan.multiplier) if gaussian else PureLoss(),
    )
