"""The first step over an open domain: find the items whose noisy weights are above the bar. They are public then."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.errors import TableTooSmall
from fedhist.protocol.histograms import Flags, Integers
from fedhist.protocol.items import item_bytes
from fedhist.protocol.measurements.base import NOTHING, Salt
from fedhist.protocol.measurements.keys import KeySums, KeyWeights, KeyWeightsTable
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import (
    MOST_KEYS,
    UNCOVERED,
    Discovery,
    decoding_delta,
    fit_noise,
    table_room,
    ways_to_release,
)
from fedhist.protocol.privacy.bars import looks
from fedhist.protocol.privacy.ledger import AlternativesLoss, ApproximateLoss, Charge, Ledger, PureLoss
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Settled
from fedhist.protocol.sketch import SALT_BYTES
from fedhist.server.releases.contract import Release
from fedhist.server.releases.keys_above_bar import as_texts, by_bytes


@dataclass(frozen=True)
class Discover:
    """Find the items. `privacy/bars.py` has the proof."""

    def charges(self, plan: Plan, handed: object) -> tuple[Charge, ...]:
        """Discovery and release together, and what a table costs."""
        return discovery_charges(plan)

    def request(self, plan: Plan, handed: object, *, source: Source) -> Request:
        """The weights of the items that users hold."""
        kind = next(kind for kind in (KeyWeights, KeyWeightsTable) if kind.fits(plan))
        given = Salt(_new_salt(source=source)) if kind.takes is Salt else NOTHING  # audited: salt
        return Request(plan=plan, asks=kind.name, given=given)

    def conclude(
        self, plan: Plan, reading: Any, handed: object, *, ledger: Ledger, source: Source
    ) -> Settled | Release:
        """The items that are public already and those above the bar; with none of either, a release of nothing."""
        if plan.has_table:
            _check_table_read(plan, reading, source=source)
        found, share = found_items(plan, reading, source=source.fork("discover"))
        if plan.known or found:
            return Settled(keys=(*plan.known, *found), share=share)
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


def found_items(plan: Plan, reading: KeySums, *, source: Source) -> tuple[list[str | int], float]:
    """The items whose noisy weights are above the bar, in the order of their bytes, and the share that found them.

    Only keys that somebody holds are drawn for; see `KeysAboveBar` for their order. All keys of a table are noised: a
    sum under masks is a residue modulo 2^64, which is whatever some participant made it, and it is read as a signed
    number only after the noise, so that what is shown of a key is a function of its noisy residue. With honest
    participants all have positive sums. If more than MOST_KEYS are above, those of the largest noisy weights stay.
    """
    keys, weights = by_bytes(reading.keys, reading.values, reading.labels)
    if not plan.has_table:
        keys, weights = keys[weights > 0], weights[weights > 0]
    passed, noised, share = _look(plan.discovery, weights, reading.width, source)
    above = np.flatnonzero(passed)
    room = MOST_KEYS - len(plan.known)
    if len(above) > room:
        above = np.sort(above[np.argsort(-noised[above], kind="stable")[:room]])
    names = as_texts(keys[above], reading.labels)
    # Devices leave known items out of their answers; one that sent them would list them twice.
    known = {item_bytes(name) for name in plan.known}
    return [name for name in names if item_bytes(name) not in known], share


def _look(terms: Discovery, weights: Integers, width: int, source: Source) -> tuple[Flags, Integers, float]:
    """Which keys passed a bar, their noisy weights, and the share of the precision that was spent on this."""
    noisy = [signed(values, width) for values in looks(weights, terms.variances, source=source.fork("looks"))]
    passed = noisy[0] > terms.bars[0]
    # Whole numbers in the circle of residues: sums wrap around there, and one user moves them no further.
    total = weights.sum(keepdims=True) + terms.coverage_noise.draw(1, source=source.fork("coverage"))
    whole = max(float(signed(total, width)[0]), 0.0)
    if passed.any() and float(noisy[0][passed].sum(dtype=np.float64)) >= (1 - UNCOVERED) * whole:
        return passed, noisy[0], terms.shares[0]
    return passed | (noisy[1] > terms.bars[1]), noisy[1], terms.shares[1]


def discovery_charges(plan: Plan) -> tuple[Charge, ...]:
    """What discovery and release cost together, and the table under masks."""
    terms = plan.discovery
    parameters: dict[str, float | int | str] = {
        "covers": "discovery and release",
        "user_items": terms.user_items,
        "shares": " or ".join(f"{share:g}" for share in terms.shares),
        "delta_of_bars": terms.bar_delta,
        "delta_is": "the sum of noise and bars",
    }
    charge = Charge(
        round="discover",
        name="discrete-gaussian-above-bar",
        parameters=parameters,
        sensitivity=math.ldexp(terms.sensitivity.value, -terms.bits),
        norm=terms.sensitivity.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon,
        delta=plan.delta,
        loss=AlternativesLoss(ways_to_release(plan), failure=terms.bar_delta),
    )
    return (charge, *_table_charges(plan)) if plan.has_table else (charge,)


def _table_charges(plan: Plan) -> tuple[Charge, ...]:
    """The test whether a table's items fit, and that it may fail to decode: see `plan/terms.py`."""
    noise = fit_noise(plan)
    parameters: dict[str, float | int | str] = {"capacity": plan.max_items, "room": table_room(plan)}
    decoding = Charge(
        round="discover",
        name="table-decoding",
        parameters=parameters,
        sensitivity=1,
        norm="table",
        neighbours=plan.neighbours.value,
        epsilon=0.0,
        delta=decoding_delta(plan),
        loss=ApproximateLoss(),
    )
    if noise is None:
        return (decoding,)
    fit = replace(
        decoding,
        name="table-fit",
        parameters=parameters | {"scale": float(noise.scale), "largest_noise": noise.bar},
        sensitivity=plan.discovery.user_items,
        norm="keys",
        epsilon=plan.epsilon_select,
        delta=noise.delta,
    )
    return (fit, decoding)  # audited: room charged


def _check_table_read(plan: Plan, reading: KeySums, *, source: Source) -> None:
    """Fail unless the table's items are few enough, by a noisy comparison; see `plan/terms.py`.

    A table that did not decode fails alike: the error and all that was reported before it are the same.
    """
    noise = fit_noise(plan)
    too_many = False
    if noise is not None:
        (drawn,) = noise.draw(1, source=source.fork("table-fit")).tolist()
        too_many = len(reading.keys) + drawn > plan.max_items + noise.bar  # audited: room noised
    if reading.unread or too_many:
        raise TableTooSmall(capacity=plan.max_items)


def _new_salt(*, source: Source) -> bytes:
    """A salt that is new for each run, and drawn only now that what users hold is fixed."""
    return source.fork("table-salt").words(SALT_BYTES // 8).astype("<u8").tobytes()


def paid_by_discovery(charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """What is left to charge for the release of what was found: the slack of noise from devices, if any."""
    slacks = [(charge, float(charge.parameters.get("slack", 0.0))) for charge in charges]
    return tuple(
        replace(charge, epsilon=slack, delta=0.0, loss=PureLoss()) for charge, slack in slacks if slack > 0
    )
