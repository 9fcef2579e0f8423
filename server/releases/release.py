"""The one function that builds a release: it charges the ledger, then draws the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fedhist.display.html_table import Proportion, html_table
from fedhist.protocol.circle import signed
from fedhist.protocol.clips.poisson import debias_poisson, debiased_standard_error
from fedhist.protocol.errors import TableTooSmall
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.labels.item_origin import ItemOrigin
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.device_noise import release_share
from fedhist.protocol.plan.table_terms import decoding_delta, fit_delta, fit_noise, is_tested, table_room
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge, GaussianLoss, Ledger, PureLoss
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise, laplace_noise
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Labels, Total
from fedhist.protocol.sketch.buckets import item_bytes
from fedhist.server.releases.share_charges import release_shares_charge
from fedhist.server.selection.contract import Selection

_ROWS_SHOWN = 10


@dataclass(frozen=True, eq=False)
class ItemRelease:
    """Items clipped one by one, before and after debiasing; `Release.histogram` is after.

    Args:
        clipped: the noised clipped sums.
        thresholds: each item's bound, in counts.
        clipped_errors: standard error of the noise on `clipped`.
        errors: standard error of the noise on the debiased values, by the delta method.
    """

    clipped: Floats
    thresholds: Floats
    clipped_errors: Floats
    errors: Floats


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
        private: False when a step was not private (the oracle), or the list of items was read off the data.
        seeded: True when whoever knows the seed can remove the noise: simulations only.
        labels: over an open domain, the released keys as their owners wrote them, in the order of `histogram`.
        keys: in a simulation over an open domain, the same as the population's item numbers, to compare with the truth
            by. None elsewhere: a transport numbers all keys that it sees, so a released key's number tells how many
            others there are, released or not.
        bar: over an open domain, what a noisy count had to exceed.
        item_release: the values before debiasing and every item's own bound and error, where items were clipped one
            by one.
        item_origin: what decided which items there are.
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
    item_release: ItemRelease | None = field(default=None, repr=False)
    item_origin: ItemOrigin = ItemOrigin.PUBLIC

    def _repr_html_(self) -> str:
        """How a notebook shows it: the largest values, with bars."""
        rows = np.argsort(-self.histogram, kind="stable")[:_ROWS_SHOWN].tolist()
        most = max(float(self.histogram[rows[0]]), 1e-9) if rows else 1.0
        named: Labels = range(len(self.histogram)) if self.labels is None else self.labels
        warning = "" if self.private and not self.seeded else ", simulation only"
        title = (
            f"Release{warning}: {len(rows)} of {len(self.histogram):,} items, "
            f"threshold {self.threshold:,.4g}, standard error {self.standard_error:,.4g}"
        )
        shown = [
            (named[row], f"{self.histogram[row]:,.1f}", Proportion(self.histogram[row] / most))
            for row in rows
        ]
        return html_table(title, shown, headings=("item", "value", ""))


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
    if plan.per_item:
        return _item_charge(plan, threshold)
    if plan.noise_by_devices:
        return release_shares_charge(plan, threshold)
    steps = 0 if threshold is None else threshold.steps
    assert plan.delta is not None  # noqa: S101 - filled in by Plan
    parameters: dict[str, float | int | str] = {"items": plan.items or 0, "grid_bits": plan.grid_bits}
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


def release_charges(plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
    """All that round 2 costs; before the threshold is known (None), what it may cost at most."""
    return (release_charge(plan, threshold), *_table_charges(plan, threshold))


def charged_ahead(plan: Plan) -> bool:
    """Whether round 2 is charged before it is asked for, because what comes back has noise or may fail to decode."""
    return plan.noise_by_devices or plan.has_table


def build_release(
    plan: Plan,
    selection: Selection,
    total: Total,
    *,
    ledger: Ledger,
    source: Source,
    simulated: bool = False,
) -> Release:
    """Charge, draw, add, read, scale. Scaling by a power of two is exact and comes after the noise.

    Under masks a sum is known modulo 2^width, and is read as a signed number only once the noise is in it: what
    comes out is a function of sum plus noise, whatever the other participants sent (`protocol/circle.py`).

    Where devices added the noise, it is in the sum. That, and a table, was charged before it was asked for. Only in a
    simulation (`simulated`) does a release say which of the transport's numbers its keys have.
    """
    threshold = selection.threshold
    if plan.noise_by_devices:
        return _noised_release(plan, threshold, total, ledger, source)
    if not charged_ahead(plan):
        ledger.charge(release_charge(plan, threshold))
    if plan.per_item:
        return _item_release(plan, selection, total, ledger, source)
    if plan.is_open:
        release, keys = _open_release(plan, threshold, total, ledger, source)
        return replace(release, keys=keys) if simulated else release
    noise = release_noise(plan, threshold)
    noised = signed(total.values + noise.draw(len(total.values), source=source), total.width)
    return Release(
        plan=plan,
        threshold=threshold.value,
        histogram=np.ldexp(noised.astype(np.float64), -threshold.bits),
        standard_error=math.ldexp(noise.standard_deviation, -threshold.bits),
        charges=ledger.entries,
        private=ledger.private,
        seeded=source.seeded,
    )


def _noised_release(
    plan: Plan, threshold: Threshold, total: Total, ledger: Ledger, source: Source
) -> Release:
    """The sum as it came, with the error of the shares that it holds."""
    deviation = release_share(plan, threshold.steps).deviation(total.shares)
    return Release(
        plan=plan,
        threshold=threshold.value,
        histogram=np.ldexp(total.values.astype(np.float64), -threshold.bits),
        standard_error=math.ldexp(deviation, -threshold.bits),
        charges=ledger.entries,
        private=ledger.private,
        seeded=source.seeded,
    )


def _open_charge(plan: Plan, threshold: Threshold | None) -> Charge:
    """The exact delta of the noise and the bar, at most the plan's.

    A threshold that was drawn is one of several that it might have been, and what a run promises holds for each: so the
    largest of their deltas is charged, not the one of the threshold that came out.
    """
    assert plan.delta is not None  # noqa: S101 - filled in by Plan
    parameters: dict[str, float | int | str] = {}
    delta = plan.delta
    if threshold is not None:
        (noise,) = plan.open_noises(np.array([threshold.steps]))
        parameters = {"threshold": threshold.steps, "scale": float(noise.scale), "bar": noise.bar}
        delta = noise.delta
        if plan.threshold is None:
            parameters["delta_at_threshold"] = noise.delta
            delta = max(delta, *(other.delta for other in plan.open_noises(plan.candidate_steps)))
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


def _table_charges(plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
    """The test whether the items fit into the table, and that a table may fail to decode; see `table_terms`."""
    if not plan.has_table:
        return ()
    parameters: dict[str, float | int | str] = {"capacity": plan.table_capacity}
    noise = None
    if threshold is not None:
        parameters["room"] = table_room(plan, threshold.steps)
        noise = fit_noise(plan, threshold.steps)
    decoding = Charge(
        round="release",
        name="table-decoding",
        parameters=parameters,
        sensitivity=1,
        norm="table",
        neighbours=plan.neighbours.value,
        epsilon=0.0,
        delta=decoding_delta(plan),
        loss=ApproximateLoss(),
    )
    if not is_tested(plan):
        return (decoding,)
    if noise is not None:
        parameters = parameters | {"scale": float(noise.scale), "largest_noise": noise.bar}
    assert plan.delta_select is not None  # noqa: S101 - filled in by Plan
    fit = replace(
        decoding,
        name="table-fit",
        parameters=parameters,
        sensitivity=plan.step_range[1] if threshold is None else threshold.steps,
        norm="keys",
        epsilon=plan.epsilon_select,
        delta=plan.delta_select if threshold is None else fit_delta(plan),
    )
    return fit, decoding


def _check_fits(plan: Plan, threshold: Threshold, total: Total, source: Source) -> None:
    """Fail unless the table's items are few enough, by a noisy comparison; see `table_terms`.

    A table that did not decode fails alike: the error and all that was reported before it are the same.
    """
    noise = fit_noise(plan, threshold.steps)
    assert total.keyed is not None  # noqa: S101 - the coordinator checked the total's form
    too_many = False
    if noise is not None:
        (drawn,) = noise.draw(1, source=source.fork("table-fit")).tolist()
        too_many = total.keyed.length + drawn > plan.table_capacity + noise.bar
    if total.unread or too_many:
        raise TableTooSmall(capacity=plan.table_capacity)


def _open_release(
    plan: Plan, threshold: Threshold, total: Total, ledger: Ledger, source: Source
) -> tuple[Release, Integers]:
    """Noise the keys of positive clipped sum and show those above the bar; and the transport's numbers of these.

    Keys are noised in the order of their bytes, so that a release does not depend on who numbered them. Those that are
    written alike are one, and if one of all labels, held or not, is a text, it stands for all. A key that no clipped
    histogram holds is never drawn for: whether it was clipped away or never there can't be told.

    Under masks a sum is a residue modulo 2^64, which is whatever some participant made it. All keys of the table are
    noised, and a sum is read as a signed number only afterwards, so that what is shown of a key is a function of its
    noisy residue. With honest participants all have positive sums.

    Deviation from Algorithm 3, which noises every key of positive unclipped total, because that is not private.
    """
    (noise,) = plan.open_noises(np.array([threshold.steps]))
    keyed = total.keyed
    assert keyed is not None  # noqa: S101 - the coordinator checked the total's form
    if plan.has_table:
        _check_fits(plan, threshold, total, source)
    keys, counts = _by_bytes(keyed.keys, keyed.values[:, 0], total.labels)
    if not plan.is_masked:
        keys, counts = keys[counts > 0], counts[counts > 0]
    noised = counts + noise.draw(len(counts), source=source)
    shown = noised > noise.bar
    labels = keys[shown].tolist() if total.labels is None else _as_written(keys[shown], total.labels)
    release = Release(
        plan=plan,
        threshold=threshold.value,
        histogram=noised[shown].astype(np.float64),
        standard_error=noise.standard_deviation,
        charges=ledger.entries,
        private=ledger.private,
        seeded=source.seeded,
        labels=labels,
        bar=noise.bar,
    )
    return release, keys[shown]


def _as_written(keys: Integers, labels: Labels) -> list[str | int]:
    """The keys' labels; for a number that is also there as a text, that text, whether or not anybody holds it."""
    named = [labels[key] for key in keys.tolist()]
    if all(isinstance(name, str) for name in named):
        return named
    texts = {label for label in labels if isinstance(label, str)}
    return [str(name) if str(name) in texts else name for name in named]


def _by_bytes(keys: Integers, counts: Integers, labels: Labels | None) -> tuple[Integers, Integers]:
    """The keys in the order of their labels' bytes, plain numbers in decimal; those of the same bytes added up."""
    named = (key if labels is None else labels[key] for key in keys.tolist())
    names = [(item_bytes(name), not isinstance(name, str)) for name in named]
    order = sorted(range(len(names)), key=names.__getitem__)
    pairs = zip([None, *order], order, strict=False)
    starts = np.flatnonzero([last is None or names[last][0] != names[this][0] for last, this in pairs])
    if len(starts) == len(order):
        return keys[order], counts[order]
    return keys[order][starts], np.add.reduceat(counts[order], starts)


def _item_sensitivity(plan: Plan, steps: int) -> Sensitivity:
    """What an item's noise is calibrated to: d C_j in l1 or sqrt(d) C_j in l2, see `Plan.item_share`."""
    items = plan.items or 0
    square = items * steps**2 if plan.norm is Norm.L2 else (items * steps) ** 2
    return Sensitivity(square=square, norm=plan.norm, neighbours=plan.neighbours)


def _item_charge(plan: Plan, threshold: Threshold | None) -> Charge:
    """All items together, as one vector whose moves are measured in each item's own bound."""
    assert plan.delta is not None  # noqa: S101 - filled in by Plan
    gaussian = plan.mechanism == "gaussian"
    parameters: dict[str, float | int | str] = {"items": plan.items or 0, "clipped": "item by item"}
    if threshold is not None:
        parameters["largest_threshold"] = threshold.value
    return Charge(
        round="release",
        name="discrete-gaussian" if gaussian else "discrete-laplace",
        parameters=parameters,
        sensitivity=plan.item_share,
        norm=plan.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon,
        delta=plan.delta,
        loss=GaussianLoss(multiplier=plan.multiplier) if gaussian else PureLoss(),
    )


def _item_release(plan: Plan, selection: Selection, total: Total, ledger: Ledger, source: Source) -> Release:
    """Noise every item for its own bound, then invert the clipping of Poisson counts, which is post-processing."""
    assert selection.item_thresholds is not None  # noqa: S101 - selectors of this mode set them
    thresholds = np.ldexp(selection.item_thresholds.astype(np.float64), -plan.grid_bits)
    clipped, errors = np.empty(len(thresholds)), np.empty(len(thresholds))
    debiased, debiased_errors = np.empty(len(thresholds)), np.empty(len(thresholds))
    for steps in np.unique(selection.item_thresholds).tolist():
        chosen = np.flatnonzero(selection.item_thresholds == steps)
        sensitivity = _item_sensitivity(plan, steps)
        noise = (
            gaussian_noise(sensitivity, plan.multiplier)
            if plan.mechanism == "gaussian"
            else laplace_noise(sensitivity, plan.epsilon)
        )
        drawn = noise.draw(len(chosen), source=source.fork(steps))
        noised = signed(total.values[chosen] + drawn, total.width)
        error = math.ldexp(noise.standard_deviation, -plan.grid_bits)
        clipped[chosen], errors[chosen] = np.ldexp(noised.astype(np.float64), -plan.grid_bits), error
        bound = math.ldexp(steps, -plan.grid_bits)
        debiased[chosen] = debias_poisson(
            clipped[chosen], users=plan.users, threshold=bound, largest_rate=plan.max_threshold
        )
        debiased_errors[chosen] = debiased_standard_error(
            clipped[chosen],
            users=plan.users,
            threshold=bound,
            standard_error=error,
            largest_rate=plan.max_threshold,
        )
    return Release(
        plan=plan,
        threshold=selection.threshold.value,
        histogram=debiased,
        standard_error=float(errors.max()),
        charges=ledger.entries,
        private=ledger.private,
        seeded=source.seeded,
        item_release=ItemRelease(
            clipped=clipped, thresholds=thresholds, clipped_errors=errors, errors=debiased_errors
        ),
    )
