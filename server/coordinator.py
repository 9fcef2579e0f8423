"""A run, as states. Every engine runs this and nothing else.

    Planned ──begin──▶ Asking ──total──▶ Asking ──total──▶ ... ──total──▶ Released

A run is a list of steps (`server/steps.py`), each of which asks for one measurement. A step that asks for nothing is
passed on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from fedhist.protocol.errors import FedhistError, InvalidPlan, RoundFailed, UnexpectedMessage
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Total
from fedhist.server.releases.contract import Release
from fedhist.server.steps import Handed, Step, check_runnable, steps_of


class Transport(Protocol):
    """The cohort: asks every participant for a measurement and returns the sum."""

    @property
    def simulated(self) -> bool:
        """True when the whole population is on this machine, so that baselines which are not private may run."""

    def total(self, request: Request) -> Total:
        """The sum of the requested measurement over the cohort. Raises RoundFailed if there is none."""


@dataclass(frozen=True)
class Planned:
    """Nothing was asked yet."""

    plan: Plan


@dataclass(frozen=True)
class Asking:
    """A round is asked of the cohort.

    Args:
        request: what is asked.
        step: what will be made of the sum.
        after: the steps that follow.
        handed: what the step before made.
    """

    request: Request
    step: Step = field(repr=False)
    after: tuple[Step, ...] = field(repr=False)
    handed: Handed = field(repr=False)


@dataclass(frozen=True)
class Released:
    """The end."""

    release: Release = field(repr=False)


@dataclass(frozen=True)
class Begin:
    """The event that starts a run."""


State = Planned | Asking | Released
Event = Begin | Total


def advance(state: State, event: Event, *, ledger: Ledger, source: Source) -> State:
    """One step of the protocol. A mechanism that looks at data was charged just before.

    Where the answers are results already, because devices added noise or because they may fail to decode, they are
    charged before they are asked for.
    """
    match state, event:
        case Planned(plan=plan), Begin():
            return _ask(plan, steps_of(plan), None, ledger, source)
        case Asking(request=request, step=step, after=after, handed=handed), Total():
            _check_total(request, event)
            if not _charged_ahead(request):  # audited: charged first
                _charge(request.plan, step, handed, ledger)
            with _plugins_words_hidden(source):
                reading = request.measurement.read(event)
                draws = source.fork("server")
                made = step.conclude(request.plan, reading, handed, ledger=ledger, source=draws)
            return _ask(request.plan, after, made, ledger, source)  # audited: round over
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
    """The whole protocol: ask for each round, and release."""
    simulated = transport.simulated
    check_runnable(plan, simulated=simulated)
    state: State = Planned(plan=plan)
    on_state(state)
    event: Event = Begin()
    while True:
        state = advance(state, event, ledger=ledger, source=source)
        if not (ledger.private or simulated):
            # Checked before the run by the same question; a method may still answer it otherwise the second time.
            raise InvalidPlan(
                "a method declared its charges before the run and none in it; nothing was released",
                allowed="charges that follow from the plan and the threshold alone",
                code="charges-not-declared",
            )
        if isinstance(state, Released) and not simulated:
            # A key's number in a transport tells how many others there are: for simulations only.
            state = Released(release=state.release.without_numbers())
        on_state(state)
        match state:
            case Released(release=release):
                return release
            case Asking(request=request):
                event = transport.total(request)
            case Planned():
                raise UnexpectedMessage(state=state, message=event)


def _ask(plan: Plan, steps: tuple[Step, ...], handed: Handed, ledger: Ledger, source: Source) -> State:
    """The next round that is asked, or the end."""
    if isinstance(handed, Release):
        return Released(release=handed)
    step, *after = steps
    draws = source.fork("server")
    request = step.request(plan, handed, source=draws)
    if request is None or _charged_ahead(request):
        _charge(plan, step, handed, ledger)
    if request is not None:
        return Asking(request=request, step=step, after=tuple(after), handed=handed)
    made = step.conclude(plan, None, handed, ledger=ledger, source=draws)
    return _ask(plan, tuple(after), made, ledger, source)


@contextmanager
def _plugins_words_hidden(source: Source) -> Iterator[None]:
    """An error of a method from outside that has seen the sum: where it failed, and nothing of its text.

    With a seed the error itself is the cause, for those who write the method: such a run is no release.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        from fedhist.protocol.plugins import blamed

        if not (blame := blamed(error)):
            raise
        cause = error if source.seeded else None
        raise FedhistError(
            f"{blame}; run it in Python with a seed to see more", code="plugin-failed"
        ) from cause


def _charged_ahead(request: Request) -> bool:
    """Whether the answers are results already: noisy ones always, and others where the measurement says so."""
    return request.measurement.share is not None or request.measurement.charged_ahead(request.plan)


def _charge(plan: Plan, step: Step, handed: Handed, ledger: Ledger) -> None:
    for charge in step.charges(plan, handed):
        ledger.charge(charge)


def _check_total(request: Request, total: Total) -> None:
    """Refuse a sum of another form, of too few users, or with too few shares of noise in it."""
    shape = request.measurement.shape
    columns = 0 if total.keyed is None else total.keyed.values.shape[1]
    if (len(total.values), columns) != (shape.length, shape.columns):
        raise UnexpectedMessage(state=request, message=total)
    minimum = request.plan.minimum_cohort
    if total.users < minimum:
        raise RoundFailed(
            f"round {request.round}: {total.users} users answered and the plan asks for at least {minimum} "
            "(--minimum-cohort); nothing was released",
            code="too-few-users",
        )
    if request.measurement.share is not None and total.shares < request.plan.minimum_survivors:
        raise RoundFailed(
            f"round {request.round}: {total.shares} participants' shares of noise are in the sum and the plan asks for "
            f"at least {request.plan.minimum_survivors}; nothing was released",
            code="too-few-noise-shares",
        )
