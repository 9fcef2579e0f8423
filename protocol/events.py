"""What happens in a run: one frozen record for each event, and its form in a trace.

    run       StateEntered · Charged · PhaseEnded · RunEnded
    round     RoundAsked · MessageSent · MessagesLeftOut · DroppedOut · RoundEnded
    secrets   Scored · Viewed              simulations only: a deployment never writes them

Each part of the protocol calls an `Observer` with its events. Records that are not marked `simulation_only` hold what
the plan fixes, what is released, and which participants answered: no sum, no score, nothing of a user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from fedhist.protocol.errors import DecodeError

TRACE_VERSION = 3
"""The version of the records below. A change of a field or of its meaning is a new version."""

TO_DEVICE, TO_SERVER = "device", "server"
WHOLE_ROUND = ""
"""The stage of a round that has only one: ask, and be answered."""

VALUES_SHOWN = 12
"""How many values of a message a `Viewed` shows."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    kind: ClassVar[str]
    simulation_only: ClassVar[bool]

    def __init_subclass__(cls, *, kind: str, simulation_only: bool = False) -> None:
        cls.kind, cls.simulation_only = kind, simulation_only

    def to_json(self) -> dict[str, Any]:
        """The record by name, its kind first."""
        return {"event": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class StateEntered(Event, kind="state"):
    """The coordinator entered a state: planned, selecting, releasing or released. Releasing knows the threshold."""

    state: str
    threshold: float | None


@dataclass(frozen=True)
class Charged(Event, kind="charge"):
    """The ledger was charged, before any noise was drawn. `charge` is what `Charge.to_json` writes."""

    charge: dict[str, Any]


@dataclass(frozen=True)
class PhaseEnded(Event, kind="phase"):
    """A phase of the program ended. Its seconds are known only in a run with the truth."""

    phase: str
    seconds: float | None


@dataclass(frozen=True)
class RunEnded(Event, kind="end"):
    """The end: released, or failed with the name of the error."""

    outcome: str
    reason: str | None


@dataclass(frozen=True)
class RoundAsked(Event, kind="asked"):
    """The server asks the cohort; `participants` is their number if it is known beforehand."""

    round: str
    stage: str
    participants: int | None
    plan: str


@dataclass(frozen=True)
class MessageSent(Event, kind="message"):
    """One message between the server and a participant.

    Args:
        round, stage: where in the protocol.
        to: "device" or "server": the receiver.
        participant: its name in this run.
        size: in bytes; None where it would reveal data, or was not measured.
        plan: the beginning of the hash of the plan that the message names.
    """

    round: str
    stage: str
    to: str
    participant: str
    size: int | None
    plan: str


@dataclass(frozen=True)
class MessagesLeftOut(Event, kind="left-out"):
    """The number of messages of a round and direction that are not in the trace, and their bytes if known."""

    round: str
    stage: str
    to: str
    messages: int
    size: int | None


@dataclass(frozen=True)
class DroppedOut(Event, kind="drop-out"):
    """A participant whose answer is not in the sum, and why; `refusal` is the reason that it gave, if any."""

    round: str
    stage: str
    participant: str
    reason: str
    refusal: str | None


@dataclass(frozen=True)
class RoundEnded(Event, kind="round"):
    """A round, or a stage of it, is over; bytes and seconds are None where they would reveal data."""

    round: str
    stage: str
    participants: int
    answered: int
    users: int | None
    size: int | None
    seconds: float | None


@dataclass(frozen=True)
class Scored(Event, kind="scores", simulation_only=True):
    """What the selector saw: candidates in counts, their scores if it scored them, and the choice. NOT private.

    Where one was drawn by its score, `base` is the base measure of each candidate relative to the largest, which does
    not depend on data, and `chances` the probability that both give it.
    """

    candidates: list[float]
    scores: list[float] | None
    base: list[float] | None
    chances: list[float] | None
    chosen: float


@dataclass(frozen=True)
class Viewed(Event, kind="view", simulation_only=True):
    """One device's message from both sides: what it had, and what reached the server. NOT private.

    Args:
        round: the round of the message.
        participant: its sender.
        places: what each value counts: an item, or a bin of round 1.
        data: round 2: the user's own counts of these items, before clipping.
        had: the values of the message before it left the device.
        seen: the values as the server received them.
        masked: whether the two differ by a mask.
    """

    round: str
    participant: str
    places: list[str]
    data: list[float] | None
    had: list[float]
    seen: list[float]
    masked: bool


@dataclass(frozen=True)
class Heard(Event, kind="heard"):
    """The number of participants that have answered so far. For progress bars; a trace does not keep it."""

    answered: int
    asked: int


@dataclass(frozen=True)
class Read(Event, kind="read"):
    """The number of users that a pass has read so far. For progress bars; a trace does not keep it."""

    users: int
    of: int


Observer = Callable[[Event], None]

EVENTS: Mapping[str, type[Event]] = {
    event.kind: event for event in Event.__subclasses__() if event not in (Heard, Read)
}
"""What a trace keeps, by kind."""


def ignore(event: Event) -> None:
    """The observer that does nothing."""


def read_event(record: Mapping[str, Any]) -> Event:
    """The event in this record. DecodeError if its kind is unknown, or its fields are not exactly the expected ones."""
    kind = record.get("event")
    if not isinstance(kind, str) or kind not in EVENTS:
        raise DecodeError("a record of no known event", code="unknown-event")
    event = EVENTS[kind]
    due = {f.name: str(f.type) for f in fields(event)}
    given = set(record) - {"event"}
    if given != set(due):
        missing, more = sorted(set(due) - given), sorted(given - set(due))
        raise DecodeError(
            f"a record of {kind!r} has missing fields {missing} and unknown fields {more}",
            code="wrong-fields",
        )
    for name, annotation in due.items():
        if not any(_is(record[name], option) for option in annotation.split(" | ")):
            raise DecodeError(
                f"the field {name} of a record of {kind!r} is not of type {annotation}",
                code="field-of-wrong-type",
            )
    return event(**{name: record[name] for name in due})


def _is(value: object, kind: str) -> bool:
    """Whether a value from JSON is of this type, as annotations write it."""
    if kind.startswith("list["):
        inner = kind.removeprefix("list[").removesuffix("]")
        return isinstance(value, list) and all(_is(one, inner) for one in value)
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, _TYPES.get(kind, dict))


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "None": type(None),
    "bool": bool,
    "str": str,
    "int": int,
    "float": (int, float),
}
