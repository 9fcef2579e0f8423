"""The steps of a run: each asks every participant for one measurement, if any, and makes something of its sum.

A plan's steps are what its parts ask for: here a choice of the threshold, then a release. What a step makes is handed
to the next one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedhist.protocol.errors import InvalidPlan, OtherPlugin, UnexpectedMessage
from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements import MEASUREMENTS, Measurement
from fedhist.protocol.measurements.base import NOTHING, Column, Round
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import measured_by, named_by
from fedhist.protocol.privacy.calibration import is_number
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import NOTHING_SETTLED, Request, Settled, Total
from fedhist.server.declared import most, rule_charges, selector_charges
from fedhist.server.discovery import Discover, discovery_charges, paid_by_discovery
from fedhist.server.releases import rule_for
from fedhist.server.releases.central_noise import for_either_mechanism
from fedhist.server.releases.contract import Release, ReleaseRule
from fedhist.server.selection import SELECTORS, Selection, Selector, column_of, selector_for

Handed = Settled | Selection | Release | None
"""What a step makes: nothing before the first one, the items that were found, a threshold, a release at the end."""


class Step(Protocol):
    """A part of a run. The coordinator charges it, asks for its measurement, and lets it conclude."""

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

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        """The selector's."""
        return selector_charges(self.selector, _settled(handed).plan_for(plan))  # audited: choice charged

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request | None:
        """The statistic that the selector reads."""
        return select_request(plan, _settled(handed)) if self.selector.reads else None

    def conclude(
        self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source
    ) -> Selection:
        """The selection."""
        settled, draws = _settled(handed), source.fork("select", self.selector.name)
        selection = self.selector.select(settled.plan_for(plan), reading, source=draws)
        if plan.plugins:
            _check_selection(settled.plan_for(plan), selection)
        return replace(selection, settled=replace(settled, mechanism=selection.mechanism))


@dataclass(frozen=True)
class Publish:
    """Round 2: release the histogram."""

    rule: ReleaseRule

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        """The rule's, at the threshold that was chosen."""
        selection = _selection(handed)
        charges = rule_charges(self.rule, selection.settled.plan_for(plan), selection.threshold)
        return _paid(plan, charges)

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request:
        """The measurement that the rule releases, at the threshold that was chosen."""
        selection = _selection(handed)
        given = self.rule.given(selection.settled.plan_for(plan), selection, source=source)
        return Request(plan=plan, asks=self.rule.measures, given=given, settled=selection.settled)

    def conclude(
        self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source
    ) -> Release:
        """The release, of the run's own plan, with what the ledger knows of it."""
        selection, charged = _selection(handed), ledger.entries
        round_plan, draws = selection.settled.plan_for(plan), source.fork("release")
        release = self.rule.build(round_plan, selection, reading, ledger=ledger, source=draws)
        settled = selection.settled
        if plan.plugins:
            _check_built(self.rule, round_plan, release)
            if ledger.entries != charged:
                raise InvalidPlan(
                    f"the release rule {self.rule.name} charged the ledger while it drew; nothing was released",
                    allowed="rules that declare all that they cost in charges()",
                    code="charged-while-drawing",
                )
        release = replace(
            release,
            plan=plan,
            mechanism=settled.mechanism,
            charges=charged,
            private=release.private and ledger.private,
            seeded=release.seeded or source.seeded,
        )
        if settled.keys is None:
            return release
        return replace(release, labels=list(settled.keys), discovery_share=settled.share)


def steps_of(plan: Plan) -> tuple[Step, ...]:
    """The steps that the plan's parts ask for, in their order. InvalidPlan if a part is unknown or does not fit."""
    if not plan.discovers:
        return Choose(selector_for(plan)), Publish(rule_for(plan))
    after = plan.releasing
    return Discover(), Choose(selector_for(after)), Publish(rule_for(after))


def length_tells(plan: Plan, round_: str) -> bool:
    """Whether an answer's length depends on what its users have: where names travel, which masking does not allow.

    Every other answer is a vector whose length and width follow from the plan and the number of users. Where names
    travel, one more item of one user makes the message longer by its name, so a size would be an exact count without
    noise.
    """
    return any(kind.names_travel for name, kind in measurements_of(plan).items() if name.value == round_)


def measurements_of(plan: Plan) -> dict[Round, type[Measurement[Any]]]:
    """What each round of the plan asks devices for; also of plans whose selector is not known here."""
    fitting = {
        kind.round: kind
        for of in {plan, plan.releasing}
        for kind in MEASUREMENTS.values()
        if kind.admitted(of)
    }
    if plan.threshold is not None:
        fitting.pop(Round.SELECT)
    elif plan.plugins and (selector := SELECTORS.get(plan.selector)) is not None:
        # Several may fit a plan that names one from outside.
        fitting.pop(Round.SELECT, None)
        if selector.reads:
            fitting[Round.SELECT] = column_of(plan.releasing, selector).measurement
    return {round_: fitting[round_] for round_ in Round if round_ in fitting}


def planned_charges(plan: Plan) -> tuple[Charge, ...]:
    """The most that a run of this plan will charge, known before it starts."""
    if not plan.discovers:
        return (*selector_charges(selector_for(plan), plan), *_most_of_release(plan))
    after = plan.releasing
    chosen = selector_charges(selector_for(after), after)
    return (*discovery_charges(plan), *chosen, *_most_of_release(plan))


def _most_of_release(plan: Plan) -> tuple[Charge, ...]:
    """What the release will charge, before the threshold is known and, where it is chosen, the mechanism."""
    after = plan.releasing
    return _paid(plan, rule_charges(rule_for(after), after.one_way, None))


def _paid(plan: Plan, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """The release's charges: less where discovery paid, and the same for every mechanism that may be chosen."""
    if plan.discovers:
        return paid_by_discovery(charges)
    if not plan.chooses_mechanism:
        return charges
    return for_either_mechanism(plan, charges) if measured_by(plan.release) is None else most(plan, charges)


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
    if plan.hides_users and not simulated:
        raise InvalidPlan(
            "the relation add-or-remove-one with nodes, which say how many users they have",
            allowed="zero-out or replace-one in a deployment",
            advice="use --neighbours zero-out, under which the number of users is public",
            code="shows-users",
        )
    if plan.plugins != named_by(plan.selector, plan.release):
        raise OtherPlugin(
            "the plan was made before its plugin was loaded or changed",
            allowed="a plan of the code that is registered now",
            advice="make the plan again",
        )
    # What the project's own methods cost is never more than the plan says.
    charges = planned_charges(plan) if plan.plugins else selector_for(plan.releasing).charges(plan.releasing)
    for charge in charges:
        if not (charge.private or simulated):
            raise InvalidPlan(
                f"the {method_of(charge)} is not private",
                allowed="private methods outside simulations",
                advice=private_instead(charge),
                code="not-private",
            )


def method_of(charge: Charge) -> str:
    """The method whose charge this is, in words; of a charge that says that it is not private."""
    return f"{'selector' if charge.round == Round.SELECT else 'release rule'} {charge.name}"


def _check_built(rule: ReleaseRule, plan: Plan, release: object) -> None:
    """Refuse what could not be written or read: this is the last step before a release is handed out.

    Over a closed domain items have the names of the public list, and no rule gives them others.
    """
    shape = None if plan.items is None else (plan.items,)
    if not isinstance(release, Release) or not _is_histogram(release.histogram, shape):
        raise InvalidPlan(
            f"the release rule {rule.name} did not build a release with a value for each item; nothing was released",
            allowed="a Release whose histogram is an array of finite floats, as many as the plan has items",
            code="bad-release",
        )
    numbers = (release.threshold, release.standard_error)
    if not all(is_number(number) and math.isfinite(number) for number in numbers):
        raise InvalidPlan(
            f"the release rule {rule.name} left the threshold or the standard error open; nothing was released",
            allowed="finite numbers for both",
            code="bad-release-numbers",
        )
    if shape and not (release.labels is None and release.keys is None):
        raise InvalidPlan(
            f"the release rule {rule.name} gave items names or numbers of its own; nothing was released",
            allowed="over a closed domain, a Release without labels and keys",
            code="items-of-its-own",
        )


def _is_histogram(values: object, shape: tuple[int] | None) -> bool:
    if not (isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == np.float64):
        return False
    return (shape is None or values.shape == shape) and bool(np.isfinite(values).all())


def private_instead(charge: Charge) -> str:
    """What to use instead of a method that is not private."""
    return "use --selector weighted-quantile" if charge.round == Round.SELECT else "leave --release out"


def _check_selection(plan: Plan, selection: object) -> None:
    """Refuse a selection outside of the plan's public range: what is charged and noised reckons with it."""
    if not (isinstance(selection, Selection) and isinstance(selection.threshold, Threshold)):
        raise InvalidPlan(
            f"the selector {plan.selector} returned no Selection with a Threshold",
            allowed="Selection(plan.at_steps(...))",
            code="no-selection",
        )
    scored = len(plan.candidate_steps if selection.candidates is None else selection.candidates)
    if not (_is_list(selection.scores, scored) and _is_list(selection.candidates, scored)):
        raise InvalidPlan(
            f"the selector {plan.selector} returned scores that are not one finite number a candidate",
            allowed="arrays of as many scores as candidates, or none",
            code="bad-scores",
        )
    if (selection.mechanism is not None) != plan.chooses_mechanism:
        raise InvalidPlan(
            f"the selector {plan.selector} chose a mechanism that the plan names, or none where it has to",
            allowed="a mechanism with the mechanism auto, and nowhere else",
            code="wrong-mechanism",
        )
    if selection.mechanism is not None:
        plan = plan.ways[selection.mechanism]
    low, high = plan.step_range
    chosen, each = selection.threshold, selection.item_thresholds
    inside = each is None or (_is_list(each, plan.items) and bool(((low <= each) & (each <= high)).all()))
    if chosen.bits != plan.grid_bits or not (inside and low <= chosen.steps <= high):
        raise InvalidPlan(
            f"the selector {plan.selector} chose a threshold outside of the plan's range",
            allowed="plan.at_steps(...), which stays inside",
            code="threshold-out-of-range",
        )


def _is_list(values: object, length: int | None) -> bool:
    """Whether this is an array of finite numbers with this length; or None, for nothing."""
    if values is None:
        return True
    if not (isinstance(values, np.ndarray) and values.shape == (length,)):
        return False
    return bool(np.issubdtype(values.dtype, np.number) and np.isfinite(values).all())


def _selection(handed: Handed) -> Selection:
    if not isinstance(handed, Selection):
        raise UnexpectedMessage(state="a release without a threshold", message=handed)
    return handed


def _settled(handed: Handed) -> Settled:
    return handed if isinstance(handed, Settled) else NOTHING_SETTLED
