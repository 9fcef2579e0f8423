"""The steps of a run: each asks every participant for one measurement, if any, and makes something of its sum.

A plan's steps are what its parts ask for: here a choice of the threshold, then a release. What a step makes is handed
to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fedhist.protocol.errors import InvalidPlan, UnexpectedMessage
from fedhist.protocol.measurements import MEASUREMENTS, Measurement
from fedhist.protocol.measurements.contract import Round
from fedhist.protocol.measurements.given import NOTHING, Column
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Total
from fedhist.server.releases import rule_for
from fedhist.server.releases.contract import Release, ReleaseRule
from fedhist.server.selection import Selection, Selector, column_of, selector_for

Handed = Selection | Release | None
"""What a step makes: nothing before the first one, a release at the end."""


class Step(Protocol):
    """A part of a run. The coordinator charges it, asks for its measurement, and lets it conclude."""

    def charged_ahead(self, plan: Plan) -> bool:
        """Whether the answers are results already, so that they are charged before they are asked for."""

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        """What it costs."""

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request | None:
        """What it asks of every participant; None for nothing."""

    def conclude(self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source) -> Handed:
        """What it makes of the sum, as its measurement reads it; None where it asked for nothing.

        The only place where the sum is looked at, and charged before.
        """


@dataclass(frozen=True)
class Choose:
    """Round 1: choose the threshold."""

    selector: Selector

    def charged_ahead(self, plan: Plan) -> bool:
        """Where the devices' answers are noisy."""
        return self.selector.reads_noise

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        """The selector's."""
        return self.selector.charges(plan)

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request | None:
        """The statistic that the selector reads."""
        return select_request(plan) if self.selector.reads else None

    def conclude(
        self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source
    ) -> Selection:
        """The selection."""
        return self.selector.select(plan, reading, source=source.fork("select", self.selector.name))


@dataclass(frozen=True)
class Publish:
    """Round 2: release the histogram."""

    rule: ReleaseRule

    def charged_ahead(self, plan: Plan) -> bool:
        """Where what comes back is noisy, or may fail to decode."""
        return self.rule.charged_ahead

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        """The rule's, at the threshold that was chosen."""
        return self.rule.charges(plan, _selection(handed).threshold)

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request:
        """The measurement that the rule releases, at the threshold that was chosen."""
        given = self.rule.given(plan, _selection(handed), source=source)
        return Request(plan=plan, asks=self.rule.measures, given=given)

    def conclude(
        self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source
    ) -> Release:
        """The release."""
        return self.rule.build(
            plan, _selection(handed), reading, ledger=ledger, source=source.fork("release")
        )


def steps_of(plan: Plan) -> tuple[Step, ...]:
    """The steps that the plan's parts ask for, in their order. InvalidPlan if a part is unknown or does not fit."""
    publish = Publish(rule_for(plan))
    return Choose(selector_for(plan)), publish


def measurements_of(plan: Plan) -> dict[Round, type[Measurement[Any]]]:
    """What each round of the plan asks devices for; also of plans whose selector is not known here."""
    fitting = {kind.round: kind for kind in MEASUREMENTS.values() if kind.fits(plan)}
    if plan.threshold is not None:
        fitting.pop(Round.SELECT)
    return {round_: fitting[round_] for round_ in Round if round_ in fitting}


def planned_charges(plan: Plan) -> tuple[Charge, ...]:
    """The most that a run of this plan will charge, known before it starts."""
    release = rule_for(plan).charges(plan, None)
    return (*selector_for(plan).charges(plan), *release)


def select_request(plan: Plan) -> Request:
    """The statistic that the plan's selector reads."""
    column = column_of(plan, selector_for(plan))
    kind = column.measurement
    return Request(plan=plan, asks=kind.name, given=Column(column.name) if kind.takes is Column else NOTHING)


def release_request(plan: Plan, selection: Selection, *, source: Source) -> Request:
    """What is released, at the threshold that was chosen."""
    return Publish(rule_for(plan)).request(plan, selection, source=source)


def read_statistic(plan: Plan, total: Total) -> Any:
    """The sum of round 1 as the plan's selector reads it."""
    return select_request(plan).measurement.read(total)


def check_runnable(plan: Plan, *, simulated: bool) -> None:
    """Refuse a plan that can't run here, before anything is asked or charged."""
    steps_of(plan)
    selector = selector_for(plan)
    if not selector.private and not simulated:
        raise InvalidPlan(
            f"the selector {selector.name} is not private",
            allowed="private selectors outside simulations",
            advice="use weighted-quantile",
        )


def _selection(handed: Handed) -> Selection:
    if not isinstance(handed, Selection):
        raise UnexpectedMessage(state="a release without a threshold", message=handed)
    return handed
