"""Releases by a calendar: a file with one plan, many windows and one total, and running what is due of it, once.

A window's run has a label in the ledger, `name/window`. It is reserved there, charges it before each draw, writes its
folder whole, and is then marked as released. So what is found after a crash, at any point, is one of these:

| folder | entry in the ledger        | what happened                                           | status       |
|--------|----------------------------|---------------------------------------------------------|--------------|
| no     | none, or without a charge  | nothing was drawn                                       | due, waiting |
| no     | with charges               | noise was drawn, and its result is gone                 | lost         |
| no     | open                       | one of these two, or a run that goes on                 | reserved     |
| yes    | with charges               | it is released, even if nobody came to say so           | done         |
| yes    | none, or without a charge  | not ours, or the ledger is another one                  | refused      |
| no     | released                   | the folder was taken away, or is a copy of an older one | refused      |

**No window is run twice for one charge.** To run a lost one again is a second charge, which the operator asks for by
name (`--again`) and which has to fit. The draw can't be made repeatable instead: the same noise over data that has
changed meanwhile would show the change exactly, and the secret that repeats it would take the noise off every release.

**Windows add up.** They are about the same people, and a later plan may depend on earlier releases (known items). So
all of them are counted as the ledger's filter counts (`Limit`), which holds for that, and every window has the same
budget: the largest epsilon with which all have room, and deltas of 0.1 D / n, so that their failures stay within what
the limit has for them.

**Clocks.** A window is due when its last day is over, in UTC, and the delay after it. A clock that is behind the last
run was set back, and nothing runs. One that is ahead runs windows that are not over, with what rows there are; none of
them is run again when it is right.
"""

from __future__ import annotations

import csv
import fcntl
import json
import math
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import (
    BudgetExceeded,
    HeldByAnother,
    InvalidFile,
    InvalidInput,
    InvalidPlan,
    RoundFailed,
)
from fedhist.protocol.item_lists import read_items
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.calibration import check_epsilon
from fedhist.protocol.privacy.ledger import Limit, Spending, check_same_neighbours
from fedhist.server.disk import HIDDEN, forget_interrupts, new_folder, raise_interrupts, write_text
from fedhist.server.ledger.file import BudgetFile, OpenRun, RunRecord, check_place
from fedhist.server.steps import planned_charges
from fedhist.server.totals import default_choice, deltas_for, rounded_down

SCHEDULE_FILE, ITEMS_FILE, KIND = "schedule.toml", "items.txt", "schedule"
MAX_WINDOWS, MOST_DAYS = 1000, 3650
CLOCKS_APART = timedelta(minutes=5)
"""Clocks that are set right may go back by this much."""
SOME_USERS, SOME_ITEMS = 1_000_000, 64
"""Stand in for the numbers of a population that nobody has read: no cost depends on them."""

_BUDGETS = ("epsilon", "delta", "epsilon_select", "delta_select")
_DELTA_SHARE, _LEAST_SHARE, _MOST_TIMES, _SEARCH_STEPS = 0.1, 1e-6, 8.0, 30
_CALENDAR = "2026-W40..2026-W52, 2026-W40x13, or single windows such as 2026-11, with commas between them"
_LAST = Window.parse("9998")
_ENTRIES = {
    **dict.fromkeys(("name", "ledger", "items", "data"), str),
    **{"windows": list, "delay": int, "total": dict, "columns": dict, "plan": dict},
}
_MAY_LACK = ("items", "data")
_TABLES = {
    "total": ("epsilon", "delta"),
    "columns": ("user", "item", "count", "time", "separator", "bins", "strict", "normalise"),
    "plan": tuple(FIELDS),
}


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class WindowState:
    """How far a window has come.

    Args:
        window: the window.
        label: of its runs in the ledger.
        folder: where its release lies, or will lie.
        due_from: the first moment at which it is due.
        runs: in the ledger, in order.
        document: what its result.json holds; None before it is released.
        status: done, reserved, lost, due or waiting. Reserved is a run that goes on, or whose process died and nobody
            has looked since.
    """

    window: Window
    label: str
    folder: Path
    due_from: datetime
    runs: tuple[RunRecord, ...]
    document: dict[str, Any] | None
    status: str

    @property
    def counted(self) -> Spending:
        """What all its runs count."""
        return Spending.total(run.counted for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class ScheduleFile:
    """What a schedule's file says; the folder that it lies in also holds the releases.

    Args:
        folder: that folder.
        name: what the ledger calls it.
        windows: the calendar, in order.
        ledger: the file that all windows are charged to.
        total: what they may cost together, for one user, ever.
        plan: fields of each window's plan, except for its window and the size of the data.
        columns: how a table is read.
        items: the file with the public list of a closed domain, if there is one.
        data: the table, if it is always the same.
        delay: days after a window's end before it is due, for data that comes late.
    """

    folder: Path
    name: str
    windows: tuple[Window, ...]
    ledger: Path
    total: Limit
    plan: Mapping[str, Any]
    columns: Mapping[str, Any]
    items: Path | None = None
    data: Path | None = None
    delay: int = 0

    def open_ledger(self, *, moved: bool = False) -> BudgetFile:
        """Its ledger, which has to know the schedule, here; with `moved`, from now on here."""
        budget = BudgetFile.open(self.ledger, create=False)
        if not (places := self.places_in(budget.runs())):
            raise InvalidFile(
                f"the ledger {self.ledger} does not know the schedule {self.name}; it was replaced, or is old",
                allowed="the ledger that the schedule was made with",
                advice="put it back; a new one would count from zero",
                code="ledger-replaced",
            )
        if places[-1] != self.folder:
            copied = (places[-1] / SCHEDULE_FILE).exists()
            if copied or not moved:
                raise InvalidFile(
                    f"the schedule in {self.folder} was made in {places[-1]}{', and still lies there' * copied}: two "
                    "copies of it would both run",
                    allowed="a schedule where it was made",
                    advice="if it was moved, and no copy is left behind, say so once with --moved",
                    code="schedule-moved",
                )
            self.note_in(budget)
        return budget

    def places_in(self, runs: Iterable[RunRecord]) -> list[Path]:
        """Where it lay, as a ledger knows."""
        return [
            Path(run.plan["place"]) for run in runs if run.label == self.name and run.plan.get("kind") == KIND
        ]

    def note_in(self, budget: BudgetFile) -> None:
        """Tell a ledger where it lies, with an entry that costs nothing."""
        about = {"kind": KIND, "place": str(self.folder), "windows": [window.text for window in self.windows]}
        budget.begin("", about, Spending(), self.name, now()).released()

    def runs_in(self, runs: Iterable[RunRecord], window: Window | str = "") -> tuple[RunRecord, ...]:
        """The runs of this window, or of all windows: their labels in the ledger are name/window."""
        label = f"{self.name}/{window}"
        return tuple(
            run for run in runs if run.label == label or (not window and run.label.startswith(label))
        )

    def states(self, runs: Sequence[RunRecord], at: datetime | None = None) -> list[WindowState]:
        """Every window of the calendar; InvalidFile if the folder and the ledger contradict each other.

        Args:
            runs: of the ledger.
            at: the time at which windows are due; None is now.
        """
        states = []
        for window in self.windows:
            folder, own = self.folder / window.text.replace("/", "--"), self.runs_in(runs, window)
            document = _document_in(folder, window)
            released = any(run.status == "released" for run in own)
            ours = document and any(run.charges and run.plan == document["plan"] for run in own)
            if (document and not ours) or (released and not document):
                raise InvalidFile(
                    f"{folder} holds a release that the ledger {self.ledger} does not know"
                    if document
                    else f"by the ledger {self.ledger} the window {window} was released, and {folder} is not there",
                    allowed="all releases of this schedule and no others, as its ledger says",
                    advice="put back what was removed, or replaced by an older copy",
                    code="unknown-release" if document else "release-gone",
                )
            due_from = datetime.fromtimestamp(min(window.end + 86_400 * self.delay, _LAST.end), UTC)
            facts = {
                "done": document is not None,
                "reserved": any(run.status == "open" for run in own),
                "lost": any(run.charges for run in own),
                "due": (at or now()) >= due_from,
                "waiting": True,
            }
            status = next(name for name, holds in facts.items() if holds)
            states.append(
                WindowState(window, f"{self.name}/{window}", folder, due_from, own, document, status)
            )
        return states

    def spent(self, runs: Iterable[RunRecord]) -> Spending:
        """What all its windows count."""
        return Spending.total(run.counted for run in self.runs_in(runs))

    def plan_for(self, window: Window, **sizes: Any) -> Plan:
        """The plan of a window; without sizes, for a population that nobody has read."""
        items = SOME_ITEMS if self.plan["domain"] == "closed" else None
        return Plan(
            **{"users": SOME_USERS, "items": items} | dict(self.plan) | sizes | {"window": window.text}
        )

    def fields_of(self, window: Window, runs: Sequence[RunRecord]) -> dict[str, Any]:
        """The fields of the window's plan. Items that other windows released are known: to use them costs nothing.

        Budgets that the file leaves out are those that `check_room` counts: a plan would fill them in by its users.
        """
        counted = self.plan_for(window)
        fields = (
            dict(self.plan) | {"window": window.text} | {name: getattr(counted, name) for name in _BUDGETS}
        )
        if fields["domain"] == "open" and fields.get("release") in (None, "discover"):
            found = [_keys_in(state.folder) for state in self.states(runs) if state.document is not None]
            known = dict.fromkeys(chain((fields.get("known_items") or "").split("\n"), *found))
            fields["known_items"] = "\n".join(filter(None, known)) or None
        return fields

    def check_room(self, window: Window, runs: Iterable[RunRecord]) -> None:
        """Refuse a window that the total has no room for, before anything is spent."""
        spent = self.spent(runs)
        if not self.total.has_room(spent + Spending.of(planned_charges(self.plan_for(window)))):
            raise BudgetExceeded(
                f"the schedule's total, epsilon {self.total.epsilon:g} at delta {self.total.delta:g}, has no room for "
                f"the window {window}: epsilon {self.total.claimed(spent):.4g} is spent. Nothing was spent",
                code="no-room-for-window",
            )


Runner = Callable[[ScheduleFile, WindowState, Mapping[str, Any]], None]
"""Runs a window of a schedule, as its file is now, whose plan has these fields: charges the ledger under the window's
label before each draw, and writes its folder whole or not at all."""


def read_schedule(folder: Path, *, place: Path | None = None) -> ScheduleFile:
    """The schedule in this folder; InvalidFile for anything else.

    Args:
        folder: where its file lies.
        place: where that folder is going to lie.
    """
    try:
        said = tomllib.loads((folder / SCHEDULE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidFile(
            f"{folder} is no schedule: {SCHEDULE_FILE} can't be read ({getattr(problem, 'strerror', None) or problem})",
            allowed="a folder that 'fedhist campaign new' made",
            code="not-a-schedule",
        ) from None
    kinds = [name for name, value in said.items() if type(value) is not _ENTRIES.get(name)]
    wrong = kinds + [name for name in _ENTRIES if name not in said and name not in _MAY_LACK]
    if not wrong:
        wrong += [
            f"{table}.{one}" for table, known in _TABLES.items() for one in said[table] if one not in known
        ]
        wrong += [f"total.{name}" for name in _TABLES["total"] if name not in said["total"]]
        wrong += ["delay"] * (not 0 <= said["delay"] <= MOST_DAYS)
        wrong += ["columns.bins"] * (type(said["columns"].get("bins", "")) is not str)
        wrong += [name for name in ("name", "ledger", *_MAY_LACK) if "\0" in said.get(name, "")]
    if wrong:
        raise InvalidFile(
            f"{(place or folder) / SCHEDULE_FILE} has entries that are wrong, unknown or missing: {', '.join(wrong)}",
            allowed=f"the entries that 'fedhist campaign new' writes, and a delay of at most {MOST_DAYS:,} days",
            code="bad-schedule",
        )
    place = place or folder.resolve()
    said |= {name: place / said[name] for name in ("ledger", "items", "data") if name in said}
    said |= {"windows": windows_in(said["windows"]), "total": Limit(**said["total"])}
    made = ScheduleFile(folder=place, **said | {"plan": {"domain": "closed"} | said["plan"]})
    made.plan_for(made.windows[0])
    return made


def new_schedule(
    folder: Path,
    *,
    windows: Iterable[str],
    ledger: Path,
    total: Limit | None,
    plan: Mapping[str, Any],
    columns: Mapping[str, Any],
    items: Sequence[str] | None = None,
    data: Path | None = None,
    spare: int = 0,
    delay: int = 0,
) -> ScheduleFile:
    """Make a schedule: check everything, split the total, tell the ledger, write the folder whole or not at all.

    A ledger without a limit gets the total as its limit; one with a limit may stand for the total. Other runs in it
    count.

    Args:
        folder: a new one.
        windows: the calendar, see `windows_in`.
        ledger: the file, made if missing.
        total: what all windows may cost together; None is the ledger's limit.
        plan: fields of the windows' plans, without budgets but maybe epsilon_select.
        columns: how a table is read.
        items: the public list of a closed domain.
        data: the table, if it is always the same.
        spare: windows that there is room for beside the calendar, to repeat some that are lost.
        delay: days after a window's end before it is due.
    """
    if os.path.lexists(folder) or folder.resolve() == ledger.resolve():
        raise InvalidFile(
            f"{folder} exists already, or is the ledger", allowed="a new folder", code="exists-already"
        )
    folder, ledger = folder.resolve(), ledger.absolute()
    check_place(ledger, create=True)
    if type(spare) is not int or not 0 <= spare <= MAX_WINDOWS:
        raise InvalidInput(f"--spare is {spare!r}", allowed=f"0 to {MAX_WINDOWS:,} windows", code="bad-value")
    old = BudgetFile.open(ledger, create=True) if ledger.exists() else None
    limit = None if old is None else old.limit
    total = total or limit
    if total is None:
        raise InvalidInput(
            "a schedule without a total, whose ledger has no limit",
            allowed="--epsilon and --delta, or a ledger with a limit",
            code="no-limit",
        )
    calendar = windows_in(texts := list(map(str, windows)))
    fields = {"domain": "closed"} | {
        name: getattr(value, "value", value) for name, value in plan.items() if value is not None
    }
    if fields["domain"] == "open" and fields.get("release", "discover") == "discover":
        # A choice between two mechanisms costs other windows more than it saves in one.
        fields = {"mechanism": "gaussian"} | fields
    elif total.delta == 0:
        fields = {"mechanism": "laplace"} | fields
    sizes = {"users": SOME_USERS, "items": SOME_ITEMS if fields["domain"] == "closed" else None}
    rooms = [(total, Spending()), (limit or total, Spending() if old is None else old.counted())]
    fields |= even_split(sizes | fields, windows=len(calendar) + spare, total=total, rooms=rooms)
    said = {
        **{"name": folder.name, "windows": texts, "delay": delay, "ledger": str(ledger)},
        **{
            "data": None if data is None else str(data.absolute()),
            "items": None if items is None else ITEMS_FILE,
        },
        **{"total": {"epsilon": total.epsilon, "delta": total.delta}, "columns": columns, "plan": fields},
    }
    with new_folder(folder) as partial:
        # What can't be written is found when it is read.
        write_text(partial / SCHEDULE_FILE, _toml(said))
        if items is not None:
            write_text(partial / ITEMS_FILE, "".join(f"{item}\n" for item in items))
            if read_items(partial / ITEMS_FILE) != list(items):
                raise InvalidInput(
                    "the name of an item is empty, or has more than one line",
                    allowed="names of one line each",
                    code="bad-name",
                )
        made = read_schedule(partial, place=folder)
        _note_new(made, BudgetFile.open(ledger, create=True))
    return made


def _toml(said: Mapping[str, Any]) -> str:
    """A TOML document: what JSON writes for a text, a number or a list means the same there."""
    tables = {name: value for name, value in said.items() if isinstance(value, Mapping)}
    lines = []
    for heading, values in (("", said), *tables.items()):
        lines += [f"\n[{heading}]"] * bool(heading)
        lines += [
            f"{name} = {json.dumps(value, ensure_ascii=False)}"
            for name, value in values.items()
            if value is not None and name not in tables
        ]
    return "\n".join(lines) + "\n"


def run_due(
    folder: Path,
    run: Runner,
    *,
    again: Iterable[str] = (),
    until: str | date | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Window]:
    """Run what is due, in order, and last what has failed before; the windows that were released.

    The first window that fails ends it, unless it had failed before: nodes that have answered it may refuse it
    for ever, which is only told.

    Args:
        folder: of the schedule.
        run: runs one window.
        again: lost windows that are to be charged and run once more.
        until: runs windows that were due then; None for now.
        tell: called with what the operator should know.

    Raises:
        HeldByAnother: somebody else is running it.
        InvalidInput: folder, ledger or clock can't be right; nothing was spent.
        BudgetExceeded: a window does not fit into the ledger's limit or the schedule's total.
        RoundFailed: a round of a window failed.
    """
    schedule = read_schedule(folder)
    wanted = [Window.parse(text.strip()) for text in again]
    with only_operator(folder):
        budget = schedule.open_ledger()
        at = _time(schedule, budget.runs(), until)
        _settle(schedule, budget, tell)
        for left in schedule.folder.glob(HIDDEN):
            # Only who holds the lock writes here.
            shutil.rmtree(left, ignore_errors=True)
        states = schedule.states(budget.runs(), at)
        by_window = {state.window: state.status for state in states}
        for window in wanted:
            if (status := by_window.get(window, "not in the calendar")) != "lost":
                raise InvalidInput(
                    f"the window {window} is {status} and can't be run again",
                    allowed="--again with windows that are lost: charged, and not released",
                    advice="no window is released twice",
                    code="not-run-again",
                )
        done: list[Window] = []
        forget_interrupts()
        for state in sorted(states, key=lambda state: any(one.status == "failed" for one in state.runs)):
            raise_interrupts()
            lost = state.status == "lost"
            if lost and state.window not in wanted:
                tell(lost_words(state))
            elif lost or state.status == "due":
                schedule.check_room(state.window, budget.runs())
                try:
                    run(schedule, state, schedule.fields_of(state.window, budget.runs()))
                    done.append(state.window)
                except RoundFailed as failure:
                    if not state.runs or lost:
                        raise
                    tell(f"the window {state.window} failed again: {failure}")
        return done


def lost_words(state: WindowState) -> str:
    """What an operator should know of a lost window."""
    return (
        f"{state.window} is lost: it was charged and not released, and the charge stays. 'fedhist campaign run "
        f"{state.folder.parent.name} --again {state.window}' charges and runs it once more, if there is room"
    )


@contextmanager
def only_operator(folder: Path) -> Iterator[None]:
    """Hold the schedule in this folder; HeldByAnother at once if somebody else does.

    The lock is that of an open file: threads of one process exclude each other, too, and the system gives it back when
    the process dies. Processes that this one forks for their cores put their copy down.
    """
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldByAnother(
                f"another process or thread is running the schedule in {folder}: nothing was read, charged or written "
                "here. Try again when it has ended"
            ) from None
        os.register_at_fork(after_in_child=file.close)
        yield


def _time(schedule: ScheduleFile, runs: Sequence[RunRecord], until: str | date | None) -> datetime:
    """Until when windows are due, if the clock is not before anything that the schedule did."""
    known = [*schedule.runs_in(runs), *(run for run in runs if run.label == schedule.name)]
    moment, last = now(), max(run.time for run in known)
    if moment < last - CLOCKS_APART:
        raise InvalidInput(
            f"the clock says {moment:%Y-%m-%d %H:%M %Z}, and the schedule's last run was at {last:%Y-%m-%d %H:%M %Z}",
            allowed="a clock that does not go back",
            advice="set it right; if it was ahead at that run, wait until it is past that time",
            code="clock-went-back",
        )
    try:
        at = moment if until is None else datetime.fromisoformat(str(until))
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        at = None
    if at is None or at > moment:
        raise InvalidInput(
            f"--until is {until!r}, which is no time, or still to come",
            allowed="a time that is past, as in 2026-11-18 or 2026-11-18T09:30",
            advice="a window that is run before it is over stays without the rest of its rows",
            code="not-past",
        )
    return at


def _settle(schedule: ScheduleFile, budget: BudgetFile, tell: Callable[[str], None]) -> None:
    """End the runs of processes that died, for somebody who holds the lock.

    One whose folder is there is released. Any other is closed, so that it counts what it charged: a run that charged
    nothing has drawn nothing, and counts nothing. Should its process live after all, in a copy of the folder, it can
    charge no more, and so draws no more.
    """
    for state in schedule.states(budget.runs()):
        for run in (one for one in state.runs if one.status == "open"):
            if state.document is not None and run.plan == state.document["plan"]:
                OpenRun(budget.path, run.id, run.plan_hash, run.time, run.reserved).released()
                continue
            budget.close(run.id)
            if not run.charges:
                tell(
                    f"a run of {state.window} ended before it charged anything: it cost nothing, and is made again"
                )


def _note_new(made: ScheduleFile, budget: BudgetFile) -> None:
    """Tell a ledger of a new schedule, and of its total where it has no limit; refuse a name that it knows."""
    runs = budget.runs()
    if made.runs_in(runs) or any((place / SCHEDULE_FILE).exists() for place in made.places_in(runs)):
        raise InvalidInput(
            f"the ledger {made.ledger} knows a schedule called {made.name} already",
            allowed="a name for each schedule",
            advice="name another folder, or another ledger",
            code="name-taken",
        )
    check_same_neighbours(planned_charges(made.plan_for(made.windows[0]))[0], budget.charges()[:1])
    if budget.limit is None:
        budget.set_limit(made.total)
    made.note_in(budget)


def _document_in(folder: Path, window: Window) -> dict[str, Any] | None:
    """The document of the release in this folder, None if there is no folder."""
    if not os.path.lexists(folder):
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if document["plan"]["window"] == window.text:
            return dict(document)
    raise InvalidFile(
        f"{folder} is not a release of the window {window}",
        allowed="releases that the schedule wrote itself",
        advice="move it somewhere else",
        code="not-this-release",
    )


def _keys_in(folder: Path) -> list[str]:
    """The names of a release's items that a list of known items can hold."""
    try:
        with (folder / "histogram.csv").open(newline="", encoding="utf-8", errors="surrogatepass") as file:
            return [row["item"] for row in csv.DictReader(file) if not {"\n", "\r"} & set(row["item"])]
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        raise InvalidFile(
            f"{folder / 'histogram.csv'} is missing or damaged",
            allowed="the release as the schedule wrote it",
            advice="restore it from a copy",
        ) from None


def windows_in(texts: Iterable[str]) -> tuple[Window, ...]:
    """The calendar that these texts name, in order; an InvalidPlan if windows overlap or there are none.

    | text | windows |
    |---|---|
    | `2026-W40..2026-W52` | all weeks from the first to the last, and likewise days, months and years |
    | `2026-W40x13` | thirteen of them, from the first one on |
    | `2026-11-18` | one window of any kind, see `Window` |

    Several of these, with commas between them, make one calendar.
    """
    parts = ",".join(map(str, texts)).split(",")
    found = [window for part in parts if part.strip() for window in _windows(part.strip())]
    if not 0 < len(found) <= MAX_WINDOWS:
        raise InvalidPlan(
            f"the calendar has {len(found):,} windows",
            allowed=f"1 to {MAX_WINDOWS:,}: {_CALENDAR}",
            code="too-many-windows" if found else "no-windows",
        )
    found.sort(key=lambda window: (window.first, window.last))
    for earlier, later in pairwise(found):
        if earlier.overlaps(later):
            raise InvalidPlan(
                f"the calendar has {earlier} and {later}, which share a day",
                allowed="windows that share no day: what one user adds is counted once in each",
                code="windows-overlap",
            )
    return tuple(found)


def _windows(text: str) -> list[Window]:
    start, dots, stop = text.partition("..")
    if numbered := re.fullmatch(r"(.+)x([1-9][0-9]{0,5})", text, re.ASCII):
        return list(islice(_from(Window.parse(numbered[1].strip())), min(int(numbered[2]), MAX_WINDOWS + 1)))
    if not dots:
        return [Window.parse(text)]
    last = Window.parse(stop.strip())
    listed = list(islice(_from(Window.parse(start.strip()), last), MAX_WINDOWS + 1))
    if last not in listed and len(listed) <= MAX_WINDOWS:
        raise InvalidPlan(
            f"the calendar {text} never comes to {last}: it ends before it begins, or has two kinds of windows",
            allowed="two weeks, two days, two months or two years, the earlier one first",
            code="never-ends",
        )
    return listed


def _from(window: Window, last: Window = _LAST) -> Iterator[Window]:
    """The window and those that follow it, of the same kind, up to the last."""
    while window.first <= last.first:
        yield window
        if window == last:
            return
        first = window.last + timedelta(days=1)
        text = {4: f"{first:%Y}", 7: f"{first:%Y-%m}"}.get(len(window.text))
        window = Window.parse(text) if text else Window(first, first + (window.last - window.first))


def even_split(
    fields: Mapping[str, Any], *, windows: int, total: Limit, rooms: Sequence[tuple[Limit, Spending]]
) -> dict[str, float]:
    """The budgets of each of these windows' plans: the largest with which all windows have room.

    Args:
        fields: of their plan, without budgets but maybe epsilon_select.
        windows: their number, with spare ones.
        total: of all of them together.
        rooms: the limits to keep, the total's among them, each with what is counted under it already.
    """
    check_epsilon(total.epsilon, "total-epsilon")
    delta = rounded_down(_DELTA_SHARE * total.delta / windows)

    def plan(epsilon: float) -> Plan:
        chosen = {name: value for name, value in fields.items() if value is not None}
        if "epsilon_select" not in chosen:
            chosen["epsilon_select"] = default_choice(epsilon, **chosen | ({"delta": delta} if delta else {}))
        return Plan(**chosen | deltas_for(epsilon, delta, chosen) | {"epsilon": epsilon})

    def fits(epsilon: float) -> bool:
        try:
            cost = Spending.of(planned_charges(plan(epsilon))).times(windows)
        except InvalidPlan:  # so little noise, or so much, that no sampler draws it
            return False
        return all(limit.has_room(counted + cost) for limit, counted in rooms)

    # A window of Gaussian noise may have a larger epsilon at its small delta than all windows have at theirs.
    low = _MOST_TIMES * total.epsilon
    while not fits(rounded_down(low)):
        low /= 2
        if low <= _LEAST_SHARE * total.epsilon:
            plan(min(total.epsilon, 1.0))
            raise InvalidPlan(
                f"the total has no room for {windows:,} windows of this plan, however much noise they have",
                allowed="private methods; a larger --epsilon and --delta, a smaller --epsilon-select, or fewer windows",
                advice="'fedhist ledger show' says what other runs have taken of the ledger's limit",
                code="total-too-small",
            )
    high = 2 * low
    for _ in range(_SEARCH_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(rounded_down(middle)) else (low, middle)
    return {name: getattr(plan(rounded_down(low)), name) for name in _BUDGETS}
