"""The one function that builds a release: it charges the ledger, then draws the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, GaussianLoss, Ledger, PureLoss
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise, laplace_noise
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Total
from fedhist.server.selection.contract import Selection


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves the server.

    Args:
        plan: what was run.
        threshold: the bound that was used, in counts.
        histogram: the noised clipped sum by item, in counts; values may be negative.
        standard_error: of the noise on each value, in counts; clipping bias is not in it.
        charges: the ledger's entries of this run.
        private: False when a step was not private (the oracle).
        seeded: True when whoever knows the seed can remove the noise: simulations only.
    """

    plan: Plan
    threshold: float
    histogram: Floats = field(repr=False)
    standard_error: float
    charges: tuple[Charge, ...]
    private: bool
    seeded: bool


def release_noise(plan: Plan, threshold: Threshold) -> Noise:
    """The noise on each item of round 2, in steps of the grid."""
    sensitivity = plan.release_sensitivity(threshold.steps)
    if plan.mechanism == "gaussian":
        return gaussian_noise(sensitivity, plan.multiplier)
    return laplace_noise(sensitivity, plan.epsilon)


def release_charge(plan: Plan, threshold: Threshold | None) -> Charge:
    """What round 2 costs; the threshold is None before it is known, which does not change the cost."""
    steps = 0 if threshold is None else threshold.steps
    assert plan.delta is not None  # noqa: S101 - filled in by Plan
    parameters: dict[str, float | int | str] = {"items": plan.items, "grid_bits": plan.grid_bits}
    if threshold is not None:
        noise = release_noise(plan, threshold)
        parameters["threshold"] = threshold.value
        parameters["standard_deviation"] = math.ldexp(noise.standard_deviation, -threshold.bits)
    sensitivity = plan.release_sensitivity(steps)
    gaussian = plan.mechanism == "gaussian"
    return Charge(
        round="release",
        name="discrete-gaussian" if gaussian else "discrete-laplace",
        parameters=parameters,
        sensitivity=math.ldexp(sensitivity.value, -plan.grid_bits),
        norm=sensitivity.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon,
        delta=plan.delta,
        loss=GaussianLoss(multiplier=plan.multiplier) if gaussian else PureLoss(),
    )


def build_release(
    plan: Plan, selection: Selection, total: Total, *, ledger: Ledger, source: Source
) -> Release:
    """Charge, draw, add, scale. Scaling by a power of two is exact and comes after the noise."""
    threshold = selection.threshold
    ledger.charge(release_charge(plan, threshold))
    noise = release_noise(plan, threshold)
    noised = total.values + noise.draw(len(total.values), source=source)
    return Release(
        plan=plan,
        threshold=threshold.value,
        histogram=np.ldexp(noised.astype(np.float64), -threshold.bits),
        standard_error=math.ldexp(noise.standard_deviation, -threshold.bits),
        charges=ledger.entries,
        private=ledger.private,
        seeded=source.seeded,
    )
