"""The first step over an open domain: find the items whose noisy weights are above the bar. They are public then."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.measurements.given import NOTHING, Salt
from fedhist.protocol.measurements.kept_items import KeySums
from fedhist.protocol.measurements.key_weights import KeyWeights
from fedhist.protocol.measurements.key_weights_table import KeyWeightsTable
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.discovery_terms import MOST_KEYS, release_epsilon
from fedhist.protocol.privacy.ledger import Charge, DiscoveryLoss, Ledger, PureLoss
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request
from fedhist.protocol.settled import Settled
from fedhist.protocol.sketch.buckets import item_bytes
from fedhist.server.releases.contract import Release
from fedhist.server.releases.keys_above_bar import as_written, by_bytes
from fedhist.server.releases.keys_in_table import check_table_read, new_salt, table_charges


@dataclass(frozen=True)
class Discover:
    """Round 0: find the items. `privacy/discovery.py` has the proof."""

    def charged_ahead(self, plan: Plan) -> bool:
        """Under masks, where a table may fail to decode."""
        return plan.is_masked

    def charges(self, plan: Plan, handed: object) -> tuple[Charge, ...]:
        """Discovery and release together, and what a table costs."""
        return discovery_charges(plan)

    def request(self, plan: Plan, handed: object, *, source: Source) -> Request:
        """The weights of the items that users hold."""
        if plan.is_masked:
            return Request(plan=plan, asks=KeyWeightsTable.name, given=Salt(new_salt(source=source)))
        return Request(plan=plan, asks=KeyWeights.name, given=NOTHING)

    def conclude(
        self, plan: Plan, reading: Any, handed: object, *, ledger: Ledger, source: Source
    ) -> Settled | Release:
        """The items that are public already and those above the bar; with none of either, a release of nothing."""
        if plan.is_masked:
            check_table_read(plan, plan.user_items, reading, source=source)
        found = found_items(plan, reading, source=source.fork("discover"))
        if plan.known or found:
            return Settled(keys=(*plan.known, *found))
        return Release(
            plan=plan,
            threshold=0.0,
            histogram=np.zeros(0),
            standard_error=0.0,
            charges=ledger.entries,
            private=ledger.private,
            seeded=source.seeded,
            labels=[],
        )


def found_items(plan: Plan, reading: KeySums, *, source: Source) -> list[str | int]:
    """The items whose noisy weights are above the bar, in the order of their bytes.

    Only keys that somebody holds are drawn for; see `KeysAboveBar` for their order, and `KeysInTable` for sums under
    masks. If more than MOST_KEYS are above, those of the largest noisy weights stay.
    """
    terms = plan.discovery
    keys, weights = by_bytes(reading.keys, reading.values, reading.labels)
    if not plan.is_masked:
        keys, weights = keys[weights > 0], weights[weights > 0]
    noised = signed(weights + terms.noise.draw(len(weights), source=source), reading.width)
    above = np.flatnonzero(noised > terms.bar)
    room = MOST_KEYS - len(plan.known)
    if len(above) > room:
        above = np.sort(above[np.argsort(-noised[above], kind="stable")[:room]])
    names = keys[above].tolist() if reading.labels is None else as_written(keys[above], reading.labels)
    # Devices leave known items out of their answers; one that sent them would list them twice.
    known = {item_bytes(name) for name in plan.known}
    return [name for name in names if item_bytes(name) not in known]


def discovery_charges(plan: Plan) -> tuple[Charge, ...]:
    """What discovery and release cost together, and the table under masks."""
    terms, gaussian = plan.discovery, plan.mechanism == "gaussian"
    charge = Charge(
        round="discover",
        name="discrete-gaussian-above-bar",
        parameters={
            "covers": "discovery and release",
            "user_items": terms.user_items,
            "discovery_share": plan.discovery_share,
            "standard_deviation": math.ldexp(terms.noise.standard_deviation, -terms.bits),
            "bar": math.ldexp(terms.bar, -terms.bits),
            "delta_of_bar": terms.bar_delta,
            "delta_is": "the sum of noise and bar",
        },
        sensitivity=math.ldexp(terms.sensitivity.value, -terms.bits),
        norm=terms.sensitivity.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon,
        delta=plan.delta,
        loss=DiscoveryLoss(
            multiplier=terms.multiplier,
            failure=terms.bar_delta,
            release_multiplier=terms.release_multiplier if gaussian else None,
            release_epsilon=None if gaussian else release_epsilon(plan),
        ),
    )
    return (charge, *table_charges(plan, "discover", plan.user_items)) if plan.is_masked else (charge,)


def paid_by_discovery(charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """What is left to charge for the release of what was found: the slack of noise from devices, if any."""
    slacks = [(charge, float(charge.parameters.get("slack", 0.0))) for charge in charges]
    return tuple(
        replace(charge, epsilon=slack, delta=0.0, loss=PureLoss()) for charge, slack in slacks if slack > 0
    )
