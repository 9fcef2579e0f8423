"""What a round is: a question of the server to every participant, and what each of them answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedhist.protocol.histograms import Integers, Labels
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.measurements.base import NOTHING, Given, Measurement, Round, Summed, Total
from fedhist.protocol.plan import Plan
from fedhist.protocol.settled import NOTHING_SETTLED, Settled

__all__ = ["Contribution", "Labels", "Request", "Round", "Total"]


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
