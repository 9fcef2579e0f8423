"""`noise`: the server adds noise to the clipped sum. Closed domains."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements.clipped_sum import ClippedSum
from fedhist.protocol.measurements.contract import Total
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
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise, laplace_noise
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.releases.contract import Release, ReleaseRule, RuleWords
from fedhist.server.selection.contract import Selection


class CentralNoise(ReleaseRule):
    """Discrete Gaussian noise for l2 clips, discrete Laplace for l1, on every item.

    Scaling by a power of two is exact and comes after the noise.
    """

    name = "noise"
    measures = ClippedSum.name

    def fits(self, plan: Plan) -> bool:
        """Whole histograms of a closed domain, noised by the server."""
        return super().fits(plan) and not plan.noise_by_devices

    def words(self, plan: Plan) -> RuleWords:
        """Noise."""
        noise = " or ".join(MECHANISMS) if plan.chooses_mechanism else plan.mechanism
        return RuleWords("adds noise", "The server adds discrete noise to every item.", noise)

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
        noised = signed(reading.values + noise.draw(len(reading.values), source=source), reading.width)
        return Release(
            plan=plan,
            threshold=threshold.value,
            histogram=np.ldexp(noised.astype(np.float64), -threshold.bits),
            standard_error=math.ldexp(noise.standard_deviation, -threshold.bits),
            charges=ledger.entries,
            private=ledger.private,
            seeded=source.seeded,
        )


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
