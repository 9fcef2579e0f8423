"""The two rounds, as states. Every engine runs this and nothing else.

Planned ──begin──▶ Selecting ──total──▶ Releasing ──total──▶ Released
└──────────────────begin (fixed)─────────▲
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fedhist.protocol.errors import InvalidPlan, RoundFailed, UnexpectedMessage
from fedhist.protocol.measurements.item_tail import read_item_tail
from fedhist.protocol.measurements.noisy_tail import read_noisy_tail
from fedhist.protocol.measurements.open_statistics import read_bucketed, read_plain
from fedhist.protocol.measurements.tail import read_tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import ReleaseRequest, Request, SelectRequest, Total
from fedhist.protocol.sketch.table_hash import SALT_BYTES
from fedhist.server.releases.release import Release, build_release, charged_ahead, release_charges
from fedhist.server.selection import Selection, selector_for
from fedhist.server.selection.contract import Statistic


class Transport(Protocol):
    """The cohort: asks every participant for a statistic and returns the sum."""

    @property
    def simulated(self) -> bool:
        """True when the whole population is at hand anyway, so that baselines which are not private may run."""

    def total(self, request: Request) -> Total:
        """The sum of the requested statistic over the cohort. Raises RoundFailed if there is none."""


@dataclass(frozen=True)
class Planned:
    """Nothing was asked yet."""

    plan: Plan


@dataclass(frozen=True)
class Selecting:
    """Round 1 is asked of the cohort."""

    request: SelectRequest


@dataclass(frozen=True)
class Releasing:
    """The threshold is chosen and round 2 is asked of the cohort."""

    request: ReleaseRequest
    selection: Selection


@dataclass(frozen=True)
class Released:
    """The end."""

    release: Release = field(repr=False)


@dataclass(frozen=True)
class Begin:
    """The event that starts a run."""


State = Planned | Selecting | Releasing | Released
Event = Begin | Total


def advance(state: State, event: Event, *, ledger: Ledger, source: Source, simulated: bool = False) -> State:
    """One step of the protocol. Whatever looks at data was charged just before.

    Where devices add the noise, their answers are results already: they are charged before they are asked for. So is a
    table of keys, which may fail to decode while the answers are read.
    `simulated` is the transport's: a release then has `keys`.
    """
    match state, event:
        case Planned(plan=plan), Begin() if selector_for(plan).needs_statistic:
            if plan.noise_by_devices:
                _charge_selection(plan, ledger)
            return Selecting(request=SelectRequest(plan=plan))
        case Planned(plan=plan), Begin():
            return _choose(plan, None, ledger, source)
        case Selecting(request=request), Total():
            _check_total(request, event)
            return _choose(request.plan, read_statistic(request.plan, event), ledger, source)
        case Releasing(request=request, selection=selection), Total():
            _check_total(request, event)
            draws = source.fork("server", "release")
            release = build_release(
                request.plan, selection, event, ledger=ledger, source=draws, simulated=simulated
            )
            return Released(release=release)
        case _:
            raise UnexpectedMessage(state=state, message=event)


def run_rounds(
    plan: Plan,
    transport: Transport,
    *,
    ledger: Ledger,
    source: Source,
    on_state: Callable[[State], None] = lambda state: None,
) -> Release:
    """The whole protocol: ask for round 1, choose the threshold, ask for round 2, release."""
    check_runnable(plan, simulated=transport.simulated)
    state: State = Planned(plan=plan)
    on_state(state)
    event: Event = Begin()
    while True:
        state = advance(state, event, ledger=ledger, source=source, simulated=transport.simulated)
        on_state(state)
        if isinstance(state, Released):
            return state.release
        assert isinstance(state, Selecting | Releasing)  # noqa: S101 - the only other states with a way on
        event = transport.total(state.request)


def check_runnable(plan: Plan, *, simulated: bool) -> None:
    """Refuse a plan that can't run here, before anything is asked or charged."""
    selector = selector_for(plan)
    if not selector.private and not simulated:
        raise InvalidPlan(
            f"the selector {selector.name} is not private",
            allowed="private selectors outside simulations",
            advice="use weighted-quantile",
        )


def planned_charges(plan: Plan) -> tuple[Charge, ...]:
    """All that a run of this plan will charge, known before it starts."""
    return (*selector_for(plan).charges(plan), *release_charges(plan, None))


def read_statistic(plan: Plan, total: Total) -> Statistic:
    """The sum of round 1 as the plan's selector reads it."""
    if plan.noise_by_devices:
        return read_noisy_tail(total.values, plan, users=total.users, shares=total.shares)
    if plan.per_item:
        return read_item_tail(total.values, plan.items or 0, users=total.users, width=total.width)
    if not plan.is_open:
        return read_tail(total.values, users=total.users, width=total.width)
    if total.keyed is None:
        return read_bucketed(total.values, plan.candidate_steps, users=total.users, width=total.width)
    return read_plain(total.values, total.keyed, plan.candidate_steps, users=total.users)


def _choose(plan: Plan, statistic: Statistic | None, ledger: Ledger, source: Source) -> Releasing:
    selector = selector_for(plan)
    if not plan.noise_by_devices:
        _charge_selection(plan, ledger)
    selection = selector.select(plan, statistic, source=source.fork("server", "select", selector.name))
    if charged_ahead(plan):
        for charge in release_charges(plan, selection.threshold):
            ledger.charge(charge)
    request = ReleaseRequest(
        plan=plan,
        threshold=selection.threshold,
        item_thresholds=selection.item_thresholds,
        table_salt=_table_salt(source) if plan.has_table else b"",
    )
    return Releasing(request=request, selection=selection)


def _table_salt(source: Source) -> bytes:
    """New for each run, and drawn only now that what users hold is fixed."""
    return source.fork("server", "table-salt").words(SALT_BYTES // 8).astype("<u8").tobytes()


def _charge_selection(plan: Plan, ledger: Ledger) -> None:
    for charge in selector_for(plan).charges(plan):
        ledger.charge(charge)


def _check_total(request: Request, total: Total) -> None:
    columns = 0 if total.keyed is None else total.keyed.values.shape[1]
    if (total.round, len(total.values), columns) != (request.round, request.length, request.keyed_columns):
        raise UnexpectedMessage(state=request, message=total)
    minimum = request.plan.minimum_cohort
    if total.users < minimum:
        raise RoundFailed(
            f"round {request.round}: {total.users} users answered and the plan asks for at least {minimum}; "
            "nothing was released"
        )
    if request.plan.noise_by_devices and total.shares < request.plan.minimum_survivors:
        raise RoundFailed(
            f"round {request.round}: {total.shares} participants' shares of noise are in the sum and the plan asks for "
            f"at least {request.plan.minimum_survivors}; nothing was released"
        )
