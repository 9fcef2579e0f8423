"""The one function that builds a release: it charges the ledger, then draws the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge, GaussianLoss, Ledger, PureLoss
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise, laplace_noise
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Labels, Total
from fedhist.protocol.sketch.buckets import item_bytes
from fedhist.server.selection.contract import Selection


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves the server.

    Args:
        plan: what was run.
        threshold: the bound that was used, in counts.
        histogram: the noised clipped sum by item, in counts; values may be negative over a closed domain. Over an
            open one, only of the keys that passed the bar.
        standard_error: of the noise on each value, in counts; clipping bias is not in it.
        charges: the ledger's entries of this run.
        private: False when a step was not private (the oracle).
        seeded: True when whoever knows the seed can remove the noise: simulations only.
        labels: over an open domain, the released keys as their owners wrote them, in the order of `histogram`.
        keys: over an open domain, the same as the transport's item numbers.
        bar: over an open domain, what a noisy count had to exceed.
    """

    plan: Plan
    threshold: float
    histogram: Floats = field(repr=False)
    standard_error: float
    charges: tuple[Charge, ...]
    private: bool
    seeded: bool
    labels: Labels | None = field(default=None, repr=False)
    keys: Integers | None = field(default=None, repr=False)
    bar: int | None = None


def release_noise(plan: Plan, threshold: Threshold) -> Noise:
    """The noise on each item of round 2, in steps of the grid."""
    sensitivity = plan.release_sensitivity(threshold.steps)
    if plan.mechanism == "gaussian":
        return gaussian_noise(sensitivity, plan.multiplier)
    return laplace_noise(sensitivity, plan.epsilon)


def release_charge(plan: Plan, threshold: Threshold | None) -> Charge:
    """What round 2 costs; before the threshold is known (None), what it may cost at most."""
    if plan.is_open:
        return _open_charge(plan, threshold)
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
    if plan.is_open:
        return _open_release(plan, threshold, total, ledger, source)
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


def _open_charge(plan: Plan, threshold: Threshold | None) -> Charge:
    """The exact delta of the noise and the bar, at most the plan's."""
    assert plan.delta is not None  # noqa: S101 - filled in by Plan
    parameters: dict[str, float | int | str] = {}
    delta = plan.delta
    if threshold is not None:
        (noise,) = plan.open_noises(np.array([threshold.steps]))
        parameters = {"threshold": threshold.steps, "scale": float(noise.scale), "bar": noise.bar}
        delta = noise.delta
    sensitivity = plan.release_sensitivity(0 if threshold is None else threshold.steps)
    return Charge(
        round="release",
        name=str(plan.release),
        parameters=parameters,
        sensitivity=sensitivity.value,
        norm=sensitivity.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon,
        delta=delta,
        loss=ApproximateLoss(),
    )


def _open_release(plan: Plan, threshold: Threshold, total: Total, ledger: Ledger, source: Source) -> Release:
    """Noise the keys of positive clipped sum and show those above the bar.

    Keys are noised in the order of their bytes, so that a release does not depend on who numbered them. A key that no
    clipped histogram holds is never drawn for: whether it was clipped away or never there can't be told.

    Deviation from Algorithm 3, which noises every key of positive unclipped total, because that is not private.
    """
    (noise,) = plan.open_noises(np.array([threshold.steps]))
    keyed = total.keyed
    assert keyed is not None  # noqa: S101 - the coordinator checked the total's form
    counts = keyed.values[:, 0]
    keys, counts = keyed.keys[counts > 0], counts[counts > 0]
    order = _byte_order(keys, total.labels)
    keys, counts = keys[order], counts[order]
    noised = counts + noise.draw(len(counts), source=source)
    shown = noised > noise.bar
    labels = keys[shown].tolist() if total.labels is None else [total.labels[key] for key in keys[shown]]
    return Release(
        plan=plan,
        threshold=threshold.value,
        histogram=noised[shown].astype(np.float64),
        standard_error=noise.standard_deviation,
        charges=ledger.entries,
        private=ledger.private,
        seeded=source.seeded,
        labels=labels,
        keys=keys[shown],
        bar=noise.bar,
    )


def _byte_order(keys: Integers, labels: Labels | None) -> Integers:
    """Places of the keys in the order of their labels' bytes; plain numbers in decimal, as they are hashed."""
    names = [item_bytes(key if labels is None else labels[key]) for key in keys.tolist()]
    return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
