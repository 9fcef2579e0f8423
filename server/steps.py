"""The steps of a run: each asks every participant for one measurement, if any, and makes something of its sum.

A plan's steps are what its parts ask for: here a choice of the threshold, then a release. What a step makes is handed
to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from fedhist.protocol.errors import InvalidPlan, UnexpectedMessage
from fedhist.protocol.measurements import MEASUREMENTS, Measurement
from fedhist.protocol.measurements.contract import Round
from fedhist.protocol.measurements.given import NOTHING, Column
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.settled import NOTHING_SETTLED, Settled
from fedhist.server.discovery import Discover, discovery_charges, paid_by_discovery
from fedhist.server.releases import rule_for
from fedhist.server.releases.central_noise import for_either_mechanism
from fedhist.server.releases.contract import Release, ReleaseRule
from fedhist.server.selection import Selection, Selector, column_of, selector_for

Handed = Settled | Selection | Release | None
"""What a step makes: nothing before the first one, the items that were found, a threshold, a release at the end."""


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
        return self.selector.charges(_settled(handed).plan_for(plan))

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request | None:
        """The statistic that the selector reads."""
        return select_request(plan, _settled(handed)) if self.selector.reads else None

    def conclude(
        self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source
    ) -> Selection:
        """The selection."""
        settled, draws = _settled(handed), source.fork("select", self.selector.name)
        selection = self.selector.select(settled.plan_for(plan), reading, source=draws)
        return replace(selection, settled=replace(settled, mechanism=selection.mechanism))


@dataclass(frozen=True)
class Publish:
    """Round 2: release the histogram."""

    rule: ReleaseRule

    def charged_ahead(self, plan: Plan) -> bool:
        """Where what comes back is noisy, or may fail to decode."""
        return self.rule.charged_ahead

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        """The rule's, at the threshold that was chosen."""
        selection = _selection(handed)
        charges = self.rule.charges(selection.settled.plan_for(plan), selection.threshold)
        return _paid(plan, charges)

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request:
        """The measurement that the rule releases, at the threshold that was chosen."""
        selection = _selection(handed)
        given = self.rule.given(selection.settled.plan_for(plan), selection, source=source)
        return Request(plan=plan, asks=self.rule.measures, given=given, settled=selection.settled)

    def conclude(
        self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source
    ) -> Release:
        """The release, of the run's own plan."""
        selection = _selection(handed)
        round_plan, draws = selection.settled.plan_for(plan), source.fork("release")
        release = self.rule.build(round_plan, selection, reading, ledger=ledger, source=draws)
        settled = selection.settled
        release = replace(release, plan=plan, mechanism=settled.mechanism)
        if settled.keys is None:
            return release
        return replace(release, labels=list(settled.keys), discovery_share=settled.share)


def steps_of(plan: Plan) -> tuple[Step, ...]:
    """The steps that the plan's parts ask for, in their order. InvalidPlan if a part is unknown or does not fit."""
    if not plan.discovers:
        return Choose(selector_for(plan)), Publish(rule_for(plan))
    after = plan.releasing
    return Discover(), Choose(selector_for(after)), Publish(rule_for(after))


def measurements_of(plan: Plan) -> dict[Round, type[Measurement[Any]]]:
    """What each round of the plan asks devices for; also of plans whose selector is not known here."""
    fitting = {
        kind.round: kind for of in {plan, plan.releasing} for kind in MEASUREMENTS.values() if kind.fits(of)
    }
    if plan.threshold is not None:
        fitting.pop(Round.SELECT)
    return {round_: fitting[round_] for round_ in Round if round_ in fitting}


def planned_charges(plan: Plan) -> tuple[Charge, ...]:
    """The most that a run of this plan will charge, known before it starts."""
    if not plan.discovers:
        return (*selector_for(plan).charges(plan), *_most_of_release(plan))
    after = plan.releasing
    return (*discovery_charges(plan), *selector_for(after).charges(after), *_most_of_release(plan))


def _most_of_release(plan: Plan) -> tuple[Charge, ...]:
    """What the release will charge, before the threshold is known and, where it is chosen, the mechanism."""
    after = plan.releasing
    return _paid(plan, rule_for(after).charges(after.one_way, None))


def _paid(plan: Plan, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """The release's charges: less where discovery paid, and the same for every mechanism that may be chosen."""
    if plan.discovers:
        return paid_by_discovery(charges)
    return for_either_mechanism(plan, charges) if plan.chooses_mechanism else charges


def select_request(plan: Plan, settled: Settled = NOTHING_SETTLED) -> Request:
    """The statistic that the plan's selector reads."""
    after = settled.plan_for(plan)
    column = column_of(after, selector_for(after))
    kind = column.measurement
    given = Column(column.name) if kind.takes is Column else NOTHING
    return Request(plan=plan, asks=kind.name, given=given, settled=settled)


def release_request(plan: Plan, selection: Selection, *, source: Source) -> Request:
    """What is released, at the threshold that was chosen."""
    return Publish(rule_for(selection.settled.plan_for(plan))).request(plan, selection, source=source)


def read_statistic(plan: Plan, total: Total) -> Any:
    """The sum of round 1 as the plan's selector reads it."""
    return select_request(plan).measurement.read(total)


def check_runnable(plan: Plan, *, simulated: bool) -> None:
    """Refuse a plan that can't run here, before anything is asked or charged."""
    steps_of(plan)
    selector = selector_for(plan.releasing)
    if not selector.private and not simulated:
        raise InvalidPlan(
            f"the selector {selector.name} is not private",
            allowed="private selectors outside simulations",
            advice="use --selector weighted-quantile",
        )


def _selection(handed: Handed) -> Selection:
    if not isinstance(handed, Selection):
        raise UnexpectedMessage(state="a release without a threshold", message=handed)
    return handed


def _settled(handed: Handed) -> Settled:
    return handed if isinstance(handed, Settled) else NOTHING_SETTLED
