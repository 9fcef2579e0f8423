"""What happens in a run, as events, and its trace on disk: JSON lines, a header first, then one event a line.

A line has the second at which it happened.

    {"trace": 2, "engine": "in-process", "simulated": true, "plan_digest": "...", "plan": {...}}
    {"at": 0.0012, "event": "state", "state": "planned", "threshold": null}
    ...
    {"at": 0.8, "event": "end", "outcome": "released", "reason": null}

A trace stays small however many participants there are: of each round, stage and direction it has the first
few messages and the number of the others. A trace of a deployment never holds an event that is for simulations only,
and no time: every `at` and every `seconds` in it is null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fedhist.protocol.errors import DecodeError, InvalidFile, InvalidInput, OtherPlugin
from fedhist.protocol.events import (
    EVENTS,
    TO_SERVER,
    TRACE_VERSION,
    Charged,
    DroppedOut,
    Event,
    MessageSent,
    MessagesLeftOut,
    Observer,
    PhaseEnded,
    RoundEnded,
    Scored,
    StateEntered,
    read_event,
)
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.coordinator import Asking, Planned, Released, State
from fedhist.server.selection import Selection
from fedhist.server.steps import length_tells

TRACE_FILE = "trace.jsonl"
MESSAGES_KEPT = 20
"""The messages of each round, stage and direction that a trace holds; of drop-outs it holds ten times as many."""

_DROP_OUTS_KEPT = 10 * MESSAGES_KEPT
_MAX_LINE = 16_000_000

Key = tuple[str, str, str]


@dataclass
class Recorder:
    """An observer that keeps what a trace will hold.

    Unless `simulated`, everything that would reveal data is left out here: events that are for simulations only, times
    and the order in which answers came, and the sizes of messages whose length depends on what their users have.

    Args:
        plan: what is run.
        simulated: True in a simulation, which has the whole population.
        clock: seconds from any beginning.
    """

    plan: Plan
    simulated: bool
    clock: Callable[[], float] = perf_counter
    lines: list[tuple[float | None, Event]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._kept: Counter[Key] = Counter()
        self._left_out: dict[Key, MessagesLeftOut] = {}
        self._answers: list[MessageSent | DroppedOut] = []

    def __call__(self, event: Event) -> None:
        """Keep the event, or count it."""
        if event.kind not in EVENTS:
            return
        if self.simulated:
            self._keep(event)
            return
        public = without_data(event, self.plan)
        if isinstance(public, DroppedOut) or (isinstance(public, MessageSent) and public.to == TO_SERVER):
            self._answers.append(public)
        elif public is not None:
            # In the order of participants: the order in which answers came is a time, too.
            for answer in sorted(self._answers, key=lambda answer: _place(answer.participant)):
                self._keep(answer)
            self._answers.clear()
            self._keep(public)

    def _keep(self, event: Event) -> None:
        if isinstance(event, MessageSent):
            key = (event.round, event.stage, event.to)
            if not self._has_room(key, MESSAGES_KEPT):
                before = self._left_out.get(key, MessagesLeftOut(*key, messages=0, size=0))
                size = None if before.size is None or event.size is None else before.size + event.size
                self._left_out[key] = replace(before, messages=before.messages + 1, size=size)
                return
        elif isinstance(event, DroppedOut):
            if not self._has_room((event.round, event.stage, "drop-out"), _DROP_OUTS_KEPT):
                return
        elif isinstance(event, RoundEnded):
            now = self._now()
            self.lines += [(now, left) for left in self._left_out.values()]
            self._left_out.clear()
        self.lines.append((self._now(), event))

    @property
    def events(self) -> list[Event]:
        """All that is kept, in order."""
        return [event for _, event in self.lines]

    def _now(self) -> float | None:
        return round(self.clock() - self._began, 6) if self.simulated else None

    def _has_room(self, key: Key, most: int) -> bool:
        self._kept[key] += 1
        return self._kept[key] <= most


def without_data(event: Event, plan: Plan) -> Event | None:
    """The event without times and sizes that depend on data; None for one that only a simulation may tell.

    Every time depends on what users have: clipping takes longer the more users are clipped, and the exponential
    mechanism draws again more or less often depending on the scores. No plan and no masking changes that.
    """
    if event.simulation_only:
        return None
    if isinstance(event, PhaseEnded | RoundEnded):
        event = replace(event, seconds=None)
    if isinstance(event, RoundEnded) or (isinstance(event, MessageSent) and event.to == TO_SERVER):
        return replace(event, size=None) if length_tells(plan, event.round) else event
    return event


def _place(participant: str) -> tuple[int, str]:
    """Where a participant such as "node 3" stands among the others."""
    number = participant.rpartition(" ")[2]
    return (int(number) if number.isdecimal() else 0, participant)


@dataclass(frozen=True)
class Trace:
    """A trace as it was read.

    Args:
        plan: what was run.
        engine: where the devices were.
        simulated: whether it may hold what only a simulation knows.
        lines: seconds from the beginning, None unless simulated, and what happened then.
    """

    plan: Plan
    engine: str
    simulated: bool
    lines: tuple[tuple[float | None, Event], ...] = field(repr=False)

    @property
    def events(self) -> list[Event]:
        """What happened, in order."""
        return [event for _, event in self.lines]


def tell_states(observe: Observer, *, simulated: bool) -> Callable[[State], None]:
    """An `on_state` for `run_rounds`. Scores are reported only in a simulation, which has the whole population."""

    def report(state: State) -> None:
        match state:
            case Planned():
                observe(StateEntered(state="planned", threshold=None))
            case Asking(request=request, handed=Selection() as selection):
                if simulated and request.plan.threshold is None:
                    given = selection.candidates
                    steps = request.plan.candidate_steps if given is None else given
                    candidates = np.ldexp(steps.astype(np.float64), -selection.threshold.bits).tolist()
                    scores, base, chances = (
                        None if one is None else one.astype(np.float64).tolist()
                        for one in (selection.scores, selection.base, selection.chances)
                    )
                    observe(Scored(candidates, scores, base, chances, chosen=selection.threshold.value))
                observe(StateEntered(state=request.round.under_way, threshold=selection.threshold.value))
            case Asking(request=request):
                observe(StateEntered(state=request.round.under_way, threshold=None))
            case Released(release=release):
                observe(StateEntered(state="released", threshold=release.threshold))

    return report


def tell_charges(observe: Observer, journal: Callable[[Charge], None] | None) -> Callable[[Charge], None]:
    """A journal that also reports each charge. The persistent one comes first: what it refuses never happened."""

    def record(charge: Charge) -> None:
        if journal is not None:
            journal(charge)
        observe(Charged(charge=charge.to_json()))

    return record


def to_all(*observers: Observer) -> Observer:
    """One observer that passes each event on to all of these."""

    def pass_on(event: Event) -> None:
        for observe in observers:
            observe(event)

    return pass_on


def write_trace(path: Path, recorder: Recorder, *, engine: str) -> None:
    """The recorder's events as a trace."""
    plan = recorder.plan
    header = {
        "trace": TRACE_VERSION,
        "engine": engine,
        "simulated": recorder.simulated,
        "plan_digest": plan.digest.hex(),
        "plan": plan.to_json(),
    }
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for line in (header, *({"at": at} | event.to_json() for at, event in recorder.lines)):
            file.write(json.dumps(line, allow_nan=False) + "\n")


def read_trace(path: Path) -> Trace:
    """The trace in this file, read strictly.

    InvalidFile, with the number of the line, for another version, an unknown event, a field too few or too many or of a
    wrong type, a line that is not JSON, time that runs backwards, and a file that ends without its end.
    """
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except OSError:
        raise InvalidFile(
            f"can't read {path}",
            allowed=f"a run's {TRACE_FILE}",
            advice="run it with --trace",
            code="missing-trace",
        ) from None
    if rest:
        raise _damaged(path, len(lines) + 1, DecodeError("the last line is cut off", code="cut-off"))
    number, before = 1, 0.0
    events: list[tuple[float | None, Event]] = []
    try:
        plan, engine, simulated = _header(path, _record(lines[0] if lines else b""))
        for line in lines[1:]:
            number += 1
            if events and events[-1][1].kind == "end":
                raise DecodeError("it comes after the end of the run", code="after-the-end")
            at, event = _event(_record(line), before=before, simulated=simulated)
            before = at or before
            events.append((at, event))
        if not events or events[-1][1].kind != "end":
            raise DecodeError("the trace ends before its run does", code="no-end")
    except DecodeError as error:
        raise _damaged(path, number, error) from None
    return Trace(plan=plan, engine=engine, simulated=simulated, lines=tuple(events))


def trace_in(folder: Path, plan: Plan) -> Trace | None:
    """The trace in a result folder, None if there is none. InvalidFile for one that is damaged or of another plan."""
    path = folder / TRACE_FILE
    if not path.exists():
        return None
    trace = read_trace(path)
    if trace.plan != plan:
        other = DecodeError("the plan is not that of the result beside it", code="of-another-result")
        raise _damaged(path, 1, other)
    return trace


def _header(path: Path, head: dict[str, Any]) -> tuple[Plan, str, bool]:
    version = head.get("trace")
    if not isinstance(version, int) or isinstance(version, bool):
        raise DecodeError("it is not the header of a trace", code="no-header")
    if version != TRACE_VERSION:
        raise InvalidFile(
            f"{path} is a trace of version {version}",
            allowed=f"version {TRACE_VERSION}",
            advice="read it with the fedhist that wrote it",
            code="other-version",
        )
    if set(head) != {"trace", "engine", "simulated", "plan_digest", "plan"}:
        raise DecodeError("the header lacks a field or has one too many", code="wrong-header")
    engine, simulated = head["engine"], head["simulated"]
    if not isinstance(engine, str) or not isinstance(simulated, bool):
        raise DecodeError("a field of the header is of the wrong type", code="wrong-header")
    try:
        plan = Plan.recorded(head["plan"])
    except OtherPlugin:
        raise
    except (InvalidInput, TypeError, ValueError, AttributeError, KeyError):
        raise DecodeError("the plan is not a valid one", code="bad-plan") from None
    if plan.digest.hex() != head["plan_digest"]:
        raise DecodeError("the plan is not the one that its digest names", code="other-plan")
    return plan, engine, simulated


def _event(record: dict[str, Any], *, before: float, simulated: bool) -> tuple[float | None, Event]:
    """When a line happened, None in the trace of a deployment, which says null, and what."""
    at = record.pop("at", "")
    if at == "" or (simulated and (not isinstance(at, int | float) or isinstance(at, bool))):
        raise DecodeError("it does not say when", code="no-time")
    if not simulated and at is not None:
        raise DecodeError("a time in the trace of a deployment", code="not-of-a-deployment")
    if simulated and not at >= before:
        raise DecodeError("it is earlier than the line before", code="time-runs-back")
    event = read_event(record)
    if not simulated and (event.simulation_only or getattr(event, "seconds", None) is not None):
        what = f"an event {event.kind!r}" if event.simulation_only else "a time"
        raise DecodeError(f"{what} in the trace of a deployment", code="not-of-a-deployment")
    return at, event


def _record(line: bytes) -> dict[str, Any]:
    if len(line) > _MAX_LINE:
        raise DecodeError("it is longer than any line of a trace", code="too-long")
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise DecodeError("it is not UTF-8 text", code="not-utf8") from None
    except (ValueError, RecursionError):
        raise DecodeError("it is not JSON", code="not-json") from None
    if not isinstance(record, dict):
        raise DecodeError("it is not a JSON object", code="not-an-object")
    return record


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _damaged(path: Path, number: int, error: DecodeError) -> InvalidFile:
    return InvalidFile(
        f"line {number} of {path} can't be read: {error}",
        allowed=f"a trace of version {TRACE_VERSION}, as a run wrote it",
        advice="run it again with --trace",
        code=error.code,
    )
