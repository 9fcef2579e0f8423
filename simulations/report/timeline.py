"""A run as one timeline, in words: for `fedhist trace show`, for pages, and as it happens for --verbose.

A trace of 100 participants has hundreds of messages that differ in a name: those of a stage are said in two sentences,
what the server asked, and who answered and who dropped out why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, TypeVar

from fedhist.display.text import counted
from fedhist.protocol.errors import names_by_reason
from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    WHOLE_ROUND,
    Charged,
    DroppedOut,
    Event,
    MessageSent,
    MessagesLeftOut,
    Observer,
    PhaseEnded,
    RoundAsked,
    RoundEnded,
    RunEnded,
    Scored,
    StateEntered,
    Viewed,
)
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Round
from fedhist.server.trace import without_data
from fedhist.server.words import charged_ahead, discovery_words, method, release_words, round_words
from fedhist.simulations.report.run import RunData

FEW = 4
"""Up to this number of participants, each message is worth a line of its own."""

STAGES = {
    "advertising": "devices advertise fresh public keys",
    "sharing": "devices share the secrets of their masks with their neighbours, encrypted",
    "checking": "devices open what their neighbours shared, and name the neighbours whose shares do not open",
    "masking": "devices send their values under masks that cancel in the sum",
    "confirming": "devices sign the list of those that are still there",
    "unmasking": "the devices that are left hand over what removes the masks from the sum, and from nothing else",
}
"""What each stage of a masked round does."""

VIEW_WORDS = {
    False: ("Not masked: both sides see the same.", "the device sends", "the server sees"),
    True: ("Masked: the server sees numbers that tell nothing.", "before noise and masks", "sent and seen"),
}
"""How one device's message is shown, masked or not: a sentence, and the heads of both columns."""

RoundEvent = RoundAsked | MessageSent | MessagesLeftOut | DroppedOut | RoundEnded
Kind = TypeVar("Kind", bound=Event)


class TraceLine(NamedTuple):
    """A line of a trace: its number, the seconds since the run began if they may be known, and what happened."""

    number: int
    at: float | None
    event: Event


def timeline(
    lines: Iterable[TraceLine], plan: Plan, *, every_message: bool = False
) -> Iterator[tuple[TraceLine, str]]:
    """What happened in words, each with the line that gives its time and its kind; equal ones in a row once."""
    for words, same in groupby(_said(lines, plan, every_message=every_message), key=lambda said: said[1]):
        first, *more = (line for line, _ in same)
        yield first, f"{words} ({len(more) + 1:,} times)" if more else words


def lines_of(run: RunData) -> list[TraceLine]:
    """The lines of the run's trace; of a run without one, those that its result tells."""
    events: Iterable[tuple[float | None, Event]]
    events = ((None, event) for event in _events_of(run)) if run.trace is None else run.trace.lines
    return [TraceLine(number, at, event) for number, (at, event) in enumerate(events, start=1)]


def narrate(plan: Plan, say: Callable[[str], None], *, simulated: bool) -> Observer:
    """An observer that says each step as it happens, without single messages and times of phases.

    Unless `simulated`, times and sizes that depend on data are left out, as they are in a trace.
    """

    def observe(event: Event) -> None:
        if isinstance(event, StateEntered | Charged | RoundAsked | DroppedOut | RoundEnded):
            known = event if simulated else without_data(event, plan)
            if known is not None:
                say(in_words(known, plan))

    return observe


def in_words(event: Event, plan: Plan) -> str:
    """The event as a sentence or two."""
    match event:
        case StateEntered(state=state, threshold=threshold):
            words = _state(state, threshold, plan)
        case Charged(charge=charge):
            cost = "without any guarantee" if charge["epsilon"] is None else f"epsilon {charge['epsilon']:g}"
            what = f"{charge['name']}, {cost}, delta {charge['delta']:g}"
            words = f"Charged for round {charge['round']}: {what}, before any noise is drawn."
        case Scored(candidates=candidates, chosen=chosen):
            words = f"The selector saw {len(candidates)} candidates and drew {chosen:,.4g}. (not private)"
        case Viewed(participant=who, places=places, masked=masked):
            same = "the server saw them masked" if masked else "the server saw the same"
            words = f"Of {who}, {len(places)} values of one message; {same}. (not private)"
        case PhaseEnded(phase=phase, seconds=seconds):
            words = f"Phase {phase} is over." if seconds is None else f"Phase {phase} took {seconds:.3f} s."
        case RunEnded(outcome="released"):
            words = "The run is over: one release, and the ledger says what it cost."
        case RunEnded(reason=reason):
            words = f"The run failed ({reason}); nothing was released."
        case _:
            words = _of_round(event)
    return words


def _of_round(event: Event) -> str:
    """An event of a round as a sentence."""
    place = _round(*_place(event)).removeprefix("Round ")
    match event:
        case RoundAsked(participants=participants, stage=stage):
            who = "the cohort" if participants is None else counted(participants, "participant")
            return (
                f"The server asks {who} for round {place}{f': {STAGES[stage]}' if stage in STAGES else ''}."
            )
        case RoundEnded(size=size, seconds=seconds):
            sent = "" if size is None else f", {size:,} bytes"
            return f"{_ended(event)}{sent}{'' if seconds is None else f', {seconds:.3f} s'}."
        case MessagesLeftOut(to=to, messages=messages, size=size):
            way = "to devices" if to == TO_DEVICE else "to the server"
            sent = "" if size is None else f" with {size:,} bytes"
            return f"... and {messages:,} more messages {way}{sent}, round {place}."
        case MessageSent(participant=who, size=size):
            way = f"server → {who}" if event.to == TO_DEVICE else f"{who} → server"
            return f"{way}: round {place}{'' if size is None else f', {size:,} bytes'}, plan {event.plan}."
        case DroppedOut(participant=who, reason=reason, refusal=refusal):
            return f"{who} drops out of round {place} ({reason}{'' if refusal is None else f': {refusal}'})."
    return event.kind


def _state(state: str, threshold: float | None, plan: Plan) -> str:
    if state == "planned":
        where = "an open domain" if plan.items is None else counted(plan.items, "item")
        return (
            f"The plan is fixed: {counted(plan.users, 'user')} over {where}, {method(plan)}, epsilon "
            f"{plan.epsilon_select:g} for the threshold and {plan.epsilon:g} for the histogram."
        )
    round_ = next((one for one in Round if one.under_way == state), None)
    if round_ is None and plan.discovers and threshold == 0:
        return "No item was found: nothing was released."
    if round_ is None:
        return f"{release_words(plan).detail} The result is released, once; nothing else leaves the server."
    rounds = round_words(plan)
    words = rounds[round_]
    begins = f"Round {round_.value}"
    if round_ is Round.RELEASE:
        how = "fixed by the plan" if plan.selector == "fixed" else f"chosen by {plan.selector}"
        which = "The largest threshold" if plan.thresholds > 1 else "The threshold"
        begins = f"{which} is {threshold or 0.0:,.4g}, {how}. {begins}"
    if [Round.DISCOVER, round_] == [*rounds][:2]:
        begins = f"{discovery_words(plan).detail} {begins}"
    masked = ", masked" if plan.is_masked else ""
    return (
        f"{begins}: the server asks for {words.asks}, and uses only the sum. {words.detail} "
        f"An answer holds {words.sends}{masked}."
    )


class _Exchange(list[TraceLine]):
    """The lines of one stage of a round, or of a whole round that has no stages."""

    def of(self, kind: type[Kind], to: str = "") -> list[Kind]:
        """The events of this kind, of messages those in this direction."""
        events = (line.event for line in self)
        return [one for one in events if isinstance(one, kind) and to in ("", getattr(one, "to", ""))]

    @property
    def place(self) -> tuple[str, str]:
        """Its round and stage."""
        return _place(self[0].event)

    @property
    def participants(self) -> int:
        """The number of participants that were asked."""
        known = [end.participants for end in self.of(RoundEnded)]
        known += [ask.participants for ask in self.of(RoundAsked) if ask.participants is not None]
        return known[0] if known else self._messages(TO_DEVICE)

    def said(self, plan: Plan) -> Iterator[tuple[TraceLine, str]]:
        """What the server asked of all of them, and what became of it."""
        for asked in self.of(RoundAsked):
            sizes = self._sizes(TO_DEVICE)
            words = in_words(replace(asked, participants=self.participants or None), plan)
            yield self[0], f"{words} {sizes}." if sizes else words
        drop_outs = self.of(DroppedOut)
        yield self[-1]._replace(event=drop_outs[0]) if drop_outs else self[-1], self._answered(plan)

    def _messages(self, to: str) -> int:
        """The number of messages in this direction, with those that the trace only counts."""
        return len(self.of(MessageSent, to)) + sum(left.messages for left in self.of(MessagesLeftOut, to))

    def _answered(self, plan: Plan) -> str:
        """Who answered, when and with what, and who dropped out."""
        ends, heard = self.of(RoundEnded), self._messages(TO_SERVER)
        if not ends:
            words = f"{_round(*self.place)} did not end; the trace has {heard:,} answers"
        elif not heard or heard < ends[0].answered:
            # Engines without nodes have one answer, of all of them.
            words = in_words(ends[0], plan).removesuffix(".")
        else:
            times = [line.at for line in self if getattr(line.event, "to", "") == TO_SERVER]
            first, last = times[0], self[-1].at if self.of(MessagesLeftOut, TO_SERVER) else times[-1]
            when = "" if first is None or last is None else f"between {first:.4f} and {last:.4f} s"
            total = "" if ends[0].size is None else f"{ends[0].size:,} bytes in all"
            words = ", ".join(filter(None, [_ended(ends[0]), when, self._sizes(TO_SERVER), total]))
        return f"{words}{self._dropped()}."

    def _dropped(self) -> str:
        """How many dropped out, who, and why, as the end of a sentence; nothing if nobody did."""
        by_reason: dict[str, list[int]] = {}
        for one in self.of(DroppedOut):
            reason = one.reason if one.refusal is None else f"{one.reason} ({one.refusal})"
            number = one.participant.rpartition(" ")[2]
            by_reason.setdefault(reason, []).append(int(number) if number.isdecimal() else 0)
        named = sum(map(len, by_reason.values()))
        ends = self.of(RoundEnded) if self.of(RoundAsked) else []
        missing = max([named, *(end.participants - end.answered for end in ends)])
        if not named:
            return f"; {missing:,} dropped out" if missing else ""
        names = names_by_reason({reason: sorted(numbers) for reason, numbers in by_reason.items()})
        more = f" and {missing - named:,} that the trace does not name" if missing > named else ""
        return f"; {missing:,} dropped out: {names}{more}"

    def _sizes(self, to: str) -> str:
        """The sizes of the messages in this direction; nothing where one of them is withheld or was not measured."""
        first = [one.size for one in self.of(MessageSent, to) if one.size is not None]
        rest = [left.size for left in self.of(MessagesLeftOut, to)]
        sizes = [*first, *(size for size in rest if size is not None)]
        if not first or len(sizes) < len(self.of(MessageSent, to)) + len(rest):
            return ""
        low, high, mean = min(first), max(first), sum(sizes) / self._messages(to)
        each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        if not rest or low == mean == high:
            return f"{each} bytes each"
        return f"{each} bytes in the first {len(first)}, {mean:,.0f} on average"


def _said(lines: Iterable[TraceLine], plan: Plan, *, every_message: bool) -> Iterator[tuple[TraceLine, str]]:
    for part in _exchanges(lines):
        if part.participants > FEW and not every_message:
            yield from part.said(plan)
        else:
            yield from ((line, in_words(line.event, plan)) for line in part)


def _exchanges(lines: Iterable[TraceLine]) -> Iterator[_Exchange]:
    """The lines of each exchange together, and every other line by itself. What happens meanwhile comes before it."""
    current = _Exchange()
    for line in lines:
        in_round = isinstance(line.event, RoundEvent)
        if current and (
            _place(line.event) != current.place if in_round else isinstance(line.event, RunEnded)
        ):
            yield current
            current = _Exchange()
        if not in_round:
            yield _Exchange([line])
            continue
        current.append(line)
        if isinstance(line.event, RoundEnded):
            yield current
            current = _Exchange()
    if current:
        yield current


def _events_of(run: RunData) -> Iterator[Event]:
    """What happened in a run, from its result alone: no bytes and no times, which may be withheld."""
    yield StateEntered("planned", None)
    for name, report in run.document.get("rounds", {}).items():
        charges = [Charged(one) for one in run.document["ledger"] if one["round"] == name]
        ahead, stages = Round(name) in charged_ahead(run.plan), report.get("stages", {})
        yield StateEntered(Round(name).under_way, run.threshold)
        yield from charges if ahead else ()
        for stage, part in (*stages.items(), (WHOLE_ROUND, report)):
            asked, whole = part["asked" if stage else "nodes"], not stage and bool(stages)
            if not whole:
                yield RoundAsked(name, stage, asked, "")
            for reason, ids in part.get("left_out" if whole else "dropped", {}).items():
                yield from (DroppedOut(name, stage, f"node {one}", reason, None) for one in ids)
            yield RoundEnded(name, stage, asked, part["answered"], part.get("users"), None, None)
        yield from () if ahead else charges
    yield StateEntered("released", run.threshold)


def _ended(event: RoundEnded) -> str:
    users = "" if event.users is None else f", {counted(event.users, 'user')}"
    done = "answered" if event.stage else "is in the sum" if event.answered == 1 else "are in the sum"
    cohort = f"{event.answered:,} of {counted(event.participants, 'participant')} {done}"
    return f"{_round(event.round, event.stage)}: {cohort}{users}"


def _round(name: str, stage: str) -> str:
    return f"Round {name}, stage {stage}" if stage else f"Round {name}"


def _place(event: Event) -> tuple[str, str]:
    """The round and the stage of an event; empty where it has none."""
    return getattr(event, "round", ""), getattr(event, "stage", "")
