"""Making campaigns, and running what is due. The rounds themselves are run by whom the caller names.

**No window is run twice for one charge.** A run that was charged and whose result is lost is not run again by itself.
Its charge stays counted. To run the window again is a second charge, which the operator asks for by name (`--again`)
and which has to fit. The draw can't be made repeatable instead: the same noise over data that has changed meanwhile
would show the change exactly, and the secret that repeats it would take the noise off every release.

**Clocks.** A window is due when its last day is over, in UTC, and the delay after it. A clock can't be checked, but for
this: one that is behind the last run of the campaign was set back, and nothing runs. One that is ahead runs windows
that are not over, with what rows there are; none of them is run again when it is right.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import BudgetExceeded, InvalidFile, InvalidInput, InvalidPlan, RoundFailed
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Limit, Spending
from fedhist.protocol.privacy.ledger import check_same_neighbours
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.wire.envelope import new_run_name
from fedhist.server.campaign.budget import (
    SOME_ITEMS,
    SOME_USERS,
    Rooms,
    WindowBudget,
    even_split,
    split_of_later,
)
from fedhist.server.campaign.carried_over import earlier_of, like_later, next_window
from fedhist.server.campaign.definition import Definition, check_choices, check_list, read_definition
from fedhist.server.campaign.lock import only_operator
from fedhist.server.campaign.state import KIND, WindowState, ledger_of, opened, settle, states_of
from fedhist.server.ledger.budget_file import BudgetFile
from fedhist.server.ledger.ledger_database import check_place
from fedhist.server.result_folder import check_target, forget_interrupts, raise_interrupts
from fedhist.server.steps import planned_charges

MOST_SPARE, MOST_DELAY = 1000, 3650
NAME_DIGITS = 16
CLOCKS_APART = timedelta(minutes=5)
"""Clocks that are set right may go back by this much."""


@dataclass(frozen=True, kw_only=True)
class WindowRun:
    """One window that is to be run.

    Args:
        window: the window.
        fields: of its plan, without users and, for a closed domain with a list, items.
        items: the public list of its items; None for an open domain or bins.
        target: the new folder of its release.
        ledger: the file to charge.
        label: what the ledger is to call it.
        cost: the most that it may charge.
    """

    window: Window
    fields: Mapping[str, Any]
    items: tuple[str, ...] | None
    target: Path
    ledger: Path
    label: str
    cost: Spending

    def check(self, plan: Plan) -> None:
        """Refuse a plan that costs more than the campaign has for a window, before anything is spent."""
        cost = Spending.of(planned_charges(plan))
        if not cost.within(self.cost):
            raise InvalidPlan(
                f"the window {self.window} would cost (epsilon {cost.epsilon:.6g}, delta {cost.delta:.3g}), and the "
                f"campaign has (epsilon {self.cost.epsilon:.6g}, delta {self.cost.delta:.3g}) for it",
                allowed="windows that cost what was planned",
                advice="was the campaign made with another version of a plugin, or for other participants?",
            )


Runner = Callable[[WindowRun], None]
"""Runs a window: charges its ledger before each draw, and writes its folder whole or not at all."""


def new_campaign(
    folder: Path,
    *,
    windows: Sequence[Window],
    plan: Mapping[str, Any],
    ledger: Path,
    total: Limit | None,
    reading: Mapping[str, Any],
    items: Sequence[str] | None = None,
    thresholds: str = "choose",
    discover: str = "each",
    spare: int = 0,
    delay: int = 0,
    now: datetime | None = None,
) -> Definition:
    """Define a campaign: check everything, split the total, note it in the ledger, write its folder.

    A ledger without a limit gets the total as its limit. Other runs in it count.

    Args:
        folder: a new one.
        windows: the calendar, see `windows_in`.
        plan: fields of the windows' plans, without budgets but maybe epsilon_select; `users` if it is known.
        ledger: the file, made if missing.
        total: what all windows may cost together; None is the ledger's limit.
        reading: how data is read, for who reads it.
        items: the public list of a closed domain.
        thresholds: how later windows get their threshold, see `carried_over`.
        discover: in which windows items are found.
        spare: windows that there is room for beside the calendar.
        delay: days after a window's end before it is due.
        now: the time.
    """
    _check_new(folder, ledger)
    _check_count("--spare", spare, MOST_SPARE)
    _check_count("--delay", delay, MOST_DELAY)
    name = new_run_name(source=SystemSource())[:NAME_DIGITS]
    fields = _plan_fields(plan)
    check_choices(thresholds, discover, fields)
    if items is not None:
        check_list(items)
    budget = BudgetFile.open(ledger, create=True) if ledger.exists() else None
    limit = None if budget is None else budget.limit
    if total is None and limit is None:
        raise InvalidInput(
            "a campaign without a total, whose ledger has no limit",
            allowed="--total-epsilon and --total-delta, or a ledger with a limit",
            code="no-limit",
        )
    total = total or limit or Limit(0, 0)
    if total.delta == 0 and fields["domain"] == "closed":
        fields = {"mechanism": "laplace"} | fields
    counted = Spending() if budget is None else budget.counted()
    rooms: Rooms = [(total, Spending()), (limit or total, counted)]
    number = len(windows) + spare
    size = {"users": SOME_USERS} if fields.get("users") is None else {}
    closed = {"items": SOME_ITEMS if items is None else len(items)} if fields["domain"] == "closed" else {}
    kind = closed | fields | size | {"window": windows[0].text}
    like = like_later(kind, thresholds=thresholds, discover=discover)
    first, later = _budgets(kind, like, number, total, rooms)
    definition = Definition(
        name=name,
        made=now or datetime.now(UTC),
        place=folder.resolve(),
        windows=tuple(windows),
        delay=delay,
        spare=spare,
        ledger=ledger.absolute(),
        total=total,
        plan=fields,
        first=first,
        later=later,
        thresholds=thresholds,
        discover=discover,
        reading=dict(reading),
        items=None if items is None else tuple(items),
    )
    charge = planned_charges(Plan(**kind | dict(first.fields)))[0]
    definition.write(lambda: _note_in_ledger(definition, charge))
    return definition


def run_due(
    folder: Path,
    run: Runner,
    *,
    again: Collection[Window] = (),
    until: datetime | None = None,
    moved: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    tell: Callable[[str], None] = lambda text: None,
) -> list[Window]:
    """Run what is due, in order; the windows that were released.

    The first window that fails is the last one. But for one that has failed before: nodes that have answered it may
    refuse it for ever, and later windows do not wait for that.

    Args:
        folder: of the campaign.
        run: runs one window.
        again: windows that broke off and are to be charged and run once more.
        until: runs windows that were due then; None for now.
        moved: the folder lies somewhere else than it did, and there is no other copy.
        clock: the time.
        tell: called with what the operator should know.

    Raises:
        HeldByAnother: somebody else is running it.
        InvalidFile: folder and ledger do not agree, or are not what they were.
        BudgetExceeded: a window does not fit into the ledger's limit or the campaign's total.
        RoundFailed: a round of a window failed, for the first time, or with nothing else to run.
    """
    # Before the lock, which would leave a file in a folder of somebody else's.
    read_definition(folder)
    with only_operator(folder):
        definition = opened(folder, moved=moved)
        budget = ledger_of(definition)
        states = states_of(definition, budget.runs())
        now = _checked_clock(clock(), definition, budget)
        at = _checked_until(until, now)
        closed = settle(budget, states)
        _remove_leftovers(definition.place)
        states = states_of(definition, budget.runs())
        _tell_closed(closed, states, tell)
        wanted = _wanted(states, at, again, definition, tell)
        done: list[Window] = []
        failures: list[RoundFailed] = []
        forget_interrupts()
        for state in wanted:
            raise_interrupts()
            try:
                _run_one(definition, budget, state, run)
                done.append(state.window)
            except RoundFailed as failure:
                if not state.runs:
                    raise
                failures.append(failure)
                tell(f"the window {state.window} failed again: {failure}")
        if failures and not done:
            raise failures[0]
        return done


def _run_one(definition: Definition, budget: BudgetFile, state: WindowState, run: Runner) -> None:
    states = states_of(definition, budget.runs())
    fields, items, window_budget = next_window(definition, state.window, earlier_of(states))
    counted = Spending.total(one.counted for one in states)
    if not definition.total.has_room(counted + window_budget.cost):
        raise BudgetExceeded(
            f"the campaign's total, epsilon {definition.total.epsilon:g} at delta {definition.total.delta:g}, has no "
            f"room for the window {state.window}: epsilon {definition.total.claimed(counted):.4g} is spent. Nothing "
            "was spent",
            code="no-room-for-window",
        )
    run(
        WindowRun(
            window=state.window,
            fields=fields,
            items=items,
            target=state.folder,
            ledger=definition.ledger,
            label=definition.label,
            cost=window_budget.cost,
        )
    )


def _wanted(
    states: Sequence[WindowState],
    at: datetime,
    again: Collection[Window],
    definition: Definition,
    tell: Callable[[str], None],
) -> list[WindowState]:
    """The windows to run now, in order."""
    by_window = {state.window: state for state in states}
    for window in again:
        status = by_window[window].status(at) if window in by_window else "not in the calendar"
        if status != "broken off":
            raise InvalidInput(
                f"the window {window} is {status} and can't be run again",
                allowed="--again with windows that were charged and not released",
                advice="no window is released twice",
                code="not-run-again",
            )
    wanted = []
    for state in states:
        status = state.status(at)
        if status == "due" or (status == "broken off" and state.window in again):
            wanted.append(state)
        elif status == "broken off":
            charged = state.counted
            tell(
                f"the window {state.window} was charged (epsilon {charged.epsilon:.4g}, delta {charged.delta:.3g}) and "
                f"not released: it broke off. The charge stays. 'fedhist campaign run {definition.place.name} --again "
                f"{state.window}' charges and runs it once more, if there is room"
            )
    return wanted


def _tell_closed(closed: Sequence[int], states: Sequence[WindowState], tell: Callable[[str], None]) -> None:
    for state in states:
        for entry in state.runs:
            if entry.id in closed and not entry.charges:
                tell(
                    f"a run of the window {state.window} broke off before it charged anything: it cost nothing, and "
                    "the window is run again"
                )


def _checked_clock(now: datetime, definition: Definition, budget: BudgetFile) -> datetime:
    """The time, if it is not before anything that the campaign did."""
    last = max([definition.made, *(run.time for run in budget.runs() if run.label == definition.label)])
    if now < last - CLOCKS_APART:
        raise InvalidInput(
            f"the clock says {_text(now)}, and the campaign's last run was at {_text(last)}",
            allowed="a clock that does not go back",
            advice="set it right; if it was ahead at that run, wait until it is past that time",
            code="clock-went-back",
        )
    return now


def _checked_until(until: datetime | None, now: datetime) -> datetime:
    if until is None:
        return now
    if until > now:
        raise InvalidInput(
            f"--until is {until:%Y-%m-%d %H:%M %Z}, which is still to come",
            allowed="a time that is past",
            advice="a window that is run before it is over stays without the rest of its rows",
            code="still-to-come",
        )
    return until


def _remove_leftovers(place: Path) -> None:
    """Remove what killed runs had begun to write. Only who holds the lock writes here."""
    for left in place.glob(".fedhist-*.partial"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _budgets(
    kind: Mapping[str, Any],
    like: Mapping[str, Any],
    windows: int,
    total: Limit,
    rooms: Rooms,
) -> tuple[WindowBudget, WindowBudget]:
    """The budgets of a first window and of a later one, whose plan has these fields."""
    first = even_split(kind, windows=windows, total=total, rooms=rooms)
    if like == kind:
        return first, first
    return first, split_of_later(like, first, windows=windows, total=total, rooms=rooms)


def _plan_fields(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with those of a window left out, and with defaults that later rules read."""
    fields = {name: value for name, value in plan.items() if value is not None}
    for name in ("window", "epsilon", "delta", "delta_select"):
        if name in fields:
            raise InvalidPlan(
                f"a campaign with {name.replace('_', '-')} of its own",
                allowed="--windows for the calendar, and --total-epsilon and --total-delta for all of it",
                code="fields-of-the-campaign",
            )
    fields.setdefault("domain", "closed")
    for name in ("min_threshold", "max_threshold"):
        fields.setdefault(name, FIELDS[name].default)
    if fields["domain"] == "open" and fields.get("release", "discover") == "discover":
        # A choice between two mechanisms costs other windows more than it saves in one.
        fields.setdefault("mechanism", "gaussian")
    return {name: getattr(value, "value", value) for name, value in fields.items()}


def _note_in_ledger(definition: Definition, charge: Any) -> None:
    """Tell the ledger of the campaign, with an entry that costs nothing; and its limit, if it has none."""
    budget = BudgetFile.open(definition.ledger, create=True)
    check_same_neighbours(charge, budget.charges()[:1])
    if budget.limit is None:
        budget.set_limit(definition.total)
    about = {"kind": KIND, "windows": [window.text for window in definition.windows]}
    entry = budget.begin(definition.digest, about, Spending(), definition.label, definition.made)
    entry.released()


def _check_new(folder: Path, ledger: Path) -> None:
    check_place(ledger.absolute(), create=True)
    if ledger.resolve() == folder.resolve():
        raise InvalidInput(
            f"{folder} is the campaign's folder and its ledger",
            allowed="a new folder, and a file beside it for --ledger",
        )
    try:
        check_target(folder)
    except InvalidFile as problem:
        raise InvalidFile(
            problem.problem, allowed=problem.allowed, advice="name another folder", code="exists-already"
        ) from None


def _check_count(flag: str, value: int, most: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 0 <= value <= most:
        raise InvalidInput(
            f"{flag} is {value!r}", allowed=f"a whole number from 0 to {most:,}", code="bad-value"
        )


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
