"""`debiased-items`: noise on items that were clipped one by one; then what clipping took away is put back."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.clips.poisson import debias_poisson, debiased_standard_error
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.clipped_items import ClippedItems, ItemSums
from fedhist.protocol.measurements.given import ItemBounds
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.estimates import estimates_and_limits, law_of_noise
from fedhist.server.releases.central_noise import noise_for, noise_warnings, vector_charge
from fedhist.server.releases.contract import Inference, ItemRelease, Release, ReleaseRule, RuleWords
from fedhist.server.selection.contract import Selection


class DebiasedItems(ReleaseRule):
    """Noise every item for its own bound, then invert the clipping of Poisson counts, which is post-processing."""

    name = "debiased-items"
    measures = ClippedItems.name

    def words(self, plan: Plan) -> RuleWords:
        """Noise, then debiasing."""
        detail = "The server adds discrete noise to every item and puts back what clipping took from Poisson counts."
        return RuleWords("adds noise, debiases", detail, plan.mechanism, bias="")

    def warnings(self, plan: Plan) -> dict[str, str]:
        """Noise above an item of users who all have its threshold."""
        return noise_warnings(plan, 1)

    def given(self, plan: Plan, selection: Selection, *, source: Source) -> ItemBounds:
        """Each item's own threshold."""
        return ItemBounds(item_bounds(plan, selection))

    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """All items together, as one vector whose moves are measured in each item's own bound."""
        parameters: dict[str, float | int | str] = {"items": plan.closed.items, "clipped": "item by item"}
        if threshold is not None:
            parameters["largest_threshold"] = threshold.value
        return (vector_charge(plan, parameters, plan.item_share),)

    def build(
        self, plan: Plan, selection: Selection, reading: ItemSums, *, ledger: Ledger, source: Source
    ) -> Release:
        """One draw for all items of the same bound."""
        bounds = item_bounds(plan, selection)
        thresholds = np.ldexp(bounds.astype(np.float64), -plan.grid_bits)
        clipped, errors = np.empty(len(thresholds)), np.empty(len(thresholds))
        debiased, debiased_errors = np.empty(len(thresholds)), np.empty(len(thresholds))
        sums = np.empty(len(thresholds), dtype=np.int64)
        for steps in np.unique(bounds).tolist():
            chosen = np.flatnonzero(bounds == steps)
            noise = noise_for(plan, item_sensitivity(plan, steps))
            drawn = noise.draw(len(chosen), source=source.fork(steps))
            noised = signed(reading.values[chosen] + drawn, reading.width)  # audited: items noised
            error = math.ldexp(noise.standard_deviation, -plan.grid_bits)
            sums[chosen] = noised
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
            infer=partial(_inferred, plan, bounds, sums, debiased),
        )


def _inferred(plan: Plan, bounds: Integers, sums: Integers, debiased: Floats) -> Inference:
    """Limits from the sums before debiasing: these hold whatever the counts are, and debiasing assumes Poisson ones."""
    limits = np.empty(len(sums))
    for steps in np.unique(bounds).tolist():
        chosen = bounds == steps
        law = law_of_noise(noise_for(plan, item_sensitivity(plan, steps)))
        limits[chosen] = np.ldexp(estimates_and_limits(sums[chosen], law)[1], -plan.grid_bits)
    return Inference(at_least=np.minimum(limits, np.maximum(debiased, 0.0)))


def item_bounds(plan: Plan, selection: Selection) -> Integers:
    """Each item's bound, in steps: its own, or the one of all items."""
    if selection.item_thresholds is not None:
        return selection.item_thresholds
    return np.full(plan.closed.items, selection.threshold.steps)


def item_sensitivity(plan: Plan, steps: int) -> Sensitivity:
    """What an item's noise is calibrated to: d C_j in l1 or sqrt(d) C_j in l2, see `Plan.item_share`."""
    items = plan.closed.items
    square = items * steps**2 if plan.norm is Norm.L2 else (items * steps) ** 2  # audited: items at once
    return Sensitivity(square=square, norm=plan.norm, neighbours=plan.neighbours)
