"""What a round is: a question of the server to every participant, and what each of them answers.

## What is settled

What earlier rounds of a run have made public, and the plan that the later ones run under.

Over an open domain the first round finds items, and from there on the domain is closed: the list travels in every later
request, devices count the listed items alone, and everything that a closed domain has applies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.items import item_bytes
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.measurements.base import NOTHING, Given, Measurement, Round, Summed, Total, take
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import MECHANISMS

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


SETTLED_FIELDS = frozenset({"keys", "discovery-share", "mechanism"})
"""The fields of a request that tell it."""

__all__ = ["Contribution", "Labels", "Request", "Round", "Total"]


@dataclass(frozen=True)
class Settled:
    """What is settled so far.

    Args:
        keys: the items that are released, in their order; None while they are not known, or known from the plan.
        share: what their discovery took of the noise's precision; None where there was none.
        mechanism: the one that was chosen with the threshold; None before that, or where the plan names it.
    """

    keys: tuple[str | int, ...] | None = field(default=None, repr=False)
    share: float | None = None
    mechanism: str | None = None

    def plan_for(self, plan: Plan) -> Plan:
        """The plan of the rounds that follow."""
        if self.keys is not None and self.share is not None:
            plan = plan.discovered(len(self.keys), self.share)
        return plan.way(self.mechanism)

    def names(self, own: Labels) -> Labels:
        """What a participant that calls its items so sends values for."""
        return own if self.keys is None else self.keys

    def to_fields(self) -> dict[str, str]:
        """As flat fields of a request."""
        found = (
            {} if self.keys is None else {"keys": _keys_text(self.keys), "discovery-share": repr(self.share)}
        )
        return found if self.mechanism is None else found | {"mechanism": self.mechanism}

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Settled:
        """What these fields settle; DecodeError if the plan leaves nothing of the kind open."""
        mechanism = take(fields, "mechanism", str) if "mechanism" in fields else None
        if mechanism is not None and not (plan.chooses_mechanism and mechanism in MECHANISMS):
            raise DecodeError("the request names a mechanism that its plan does not leave open")
        if not {"keys", "discovery-share"} & set(fields):
            return cls(mechanism=mechanism)
        text, share = take(fields, "keys", str), take(fields, "discovery-share", str)
        if not plan.discovers:
            raise DecodeError("the request lists items and its plan discovers none")
        shares = {repr(value): value for value in plan.discovery.shares}
        if share not in shares:
            raise DecodeError("the discovery's share is none that the plan allows")
        return cls(keys=_read_keys(text), share=shares[share], mechanism=mechanism)


NOTHING_SETTLED = Settled()


@lru_cache(maxsize=8)
def _keys_text(keys: tuple[str | int, ...]) -> str:
    return json.dumps(keys)


@lru_cache(maxsize=8)
def _read_keys(text: str) -> tuple[str | int, ...]:
    """The list in this text: at least one item, all of them different."""
    from fedhist.protocol.plan.terms import LONGEST_NAME, MOST_KEYS

    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        raise DecodeError("the list of items is not one") from None
    if not isinstance(keys, list) or not 1 <= len(keys) <= MOST_KEYS:
        raise DecodeError(f"the list of items is not one of 1 to {MOST_KEYS:,}")
    if not all(type(key) in (str, int) for key in keys):
        raise DecodeError("the list of items has something other than texts and whole numbers")
    try:
        names = {item_bytes(key) for key in keys}
    except (ValueError, InvalidInput):
        raise DecodeError("the list of items has a number without end") from None
    if len(names) != len(keys) or max(map(len, names)) > LONGEST_NAME:
        raise DecodeError("the list of items has one twice, or one that is too long")
    return tuple(keys)


@dataclass(frozen=True)
class Request:
    """Server to device: send this measurement.

    Args:
        plan: of the run.
        asks: the name of the measurement.
        given: what the rounds before have handed on.
        settled: what they have made public for all rounds that follow.
    """

    plan: Plan
    asks: str
    given: Given = NOTHING
    settled: Settled = NOTHING_SETTLED

    @property
    def round(self) -> Round:
        """What the answers are for."""
        return MEASUREMENTS[self.asks].round

    @cached_property
    def measurement(self) -> Measurement[Any]:
        """What is asked for."""
        return MEASUREMENTS[self.asks](self.round_plan, self.given)

    @cached_property
    def round_plan(self) -> Plan:
        """The plan of this round: the run's, with what is settled filled in."""
        return self.settled.plan_for(self.plan)

    @property
    def key(self) -> tuple[object, ...]:
        """All that the sum depends on, beside the users and what they draw: where it is equal, so are the sums."""
        return (self.settled, type(self.measurement), self.measurement.key)


@dataclass(frozen=True, eq=False)
class Contribution:
    """Device to server: the sum of a measurement over the participant's users.

    Where keys travel, `keyed` holds sums by item number, numbers of the participant's own list of labels.
    """

    round: Round
    plan_digest: bytes
    users: int
    values: Integers = field(repr=False)
    keyed: Keyed | None = field(default=None, repr=False)

    @property
    def summed(self) -> Summed:
        """What was measured."""
        return Summed(self.values, self.keyed)
