"""A trace by exchanges: what the server asked in one stage of a round, who answered, and who dropped out.

A trace of 100 participants has hundreds of messages that differ in a name. An exchange says them in two sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fedhist.protocol.errors import names_by_reason
from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    DroppedOut,
    Event,
    MessageSent,
    MessagesLeftOut,
    RoundAsked,
    RoundEnded,
    RunEnded,
)
from fedhist.simulations.report.narration import round_event_words

FEW = 4
"""Up to this number of participants, each message is worth a line of its own."""

RoundEvent = RoundAsked | MessageSent | MessagesLeftOut | DroppedOut | RoundEnded


class TraceLine(NamedTuple):
    """A line of a trace: its number, the seconds since the run began if they may be known, and what happened."""

    number: int
    at: float | None
    event: Event


@dataclass
class Exchange:
    """One stage of a round, or a whole round that has no stages.

    Args:
        round, stage: where in the protocol.
        lines: of the trace, in order.
    """

    round: str
    stage: str
    lines: list[TraceLine] = field(default_factory=list)

    @property
    def asked(self) -> RoundAsked | None:
        """What the server asks, in the first line; none where a masked round as a whole ends."""
        first = self.lines[0].event
        return first if isinstance(first, RoundAsked) else None

    @property
    def ended(self) -> RoundEnded | None:
        """How it ended; none in a run that failed before."""
        last = self.lines[-1].event
        return last if isinstance(last, RoundEnded) else None

    @property
    def dropped(self) -> list[DroppedOut]:
        """Those that the trace names as not in the sum."""
        return [line.event for line in self.lines if isinstance(line.event, DroppedOut)]

    def sent(self, to: str) -> list[MessageSent]:
        """The messages in this direction that the trace holds."""
        return [
            line.event for line in self.lines if isinstance(line.event, MessageSent) and line.event.to == to
        ]

    def left_out(self, to: str) -> MessagesLeftOut | None:
        """The messages in this direction that it only counts."""
        found = (line.event for line in self.lines if isinstance(line.event, MessagesLeftOut))
        return next((event for event in found if event.to == to), None)

    def messages(self, to: str) -> int:
        """The number of messages in this direction."""
        left = self.left_out(to)
        return len(self.sent(to)) + (0 if left is None else left.messages)

    @property
    def participants(self) -> int:
        """The number of participants that were asked."""
        if self.ended is not None:
            return self.ended.participants
        known = None if self.asked is None else self.asked.participants
        return self.messages(TO_DEVICE) if known is None else known

    def asked_words(self) -> str:
        """What the server asked of all of them."""
        if self.asked is None:
            return ""
        sizes = self._sizes(TO_DEVICE)
        known = replace(self.asked, participants=self.participants or None)
        return f"{round_event_words(known)}{f' {sizes}.' if sizes else ''}"

    def answered_words(self) -> str:
        """Who answered, when and with what, and who dropped out."""
        stage = f", stage {self.stage}" if self.stage else ""
        ended, heard = self.ended, self.messages(TO_SERVER)
        if ended is None:
            words = f"Round {self.round}{stage} did not end; the trace has {heard:,} answers"
        elif not heard:
            words = round_event_words(ended).removesuffix(".")
        else:
            done = "answered" if ended.stage else "are in the sum"
            words = (
                f"Round {self.round}{stage}: {ended.answered:,} of {ended.participants:,} participants {done}"
            )
            words += "" if ended.users is None else f", {ended.users:,} users"
            words += self._answers_words(ended, heard)
        return f"{words}{self.dropped_words()}."

    def _answers_words(self, ended: RoundEnded, heard: int) -> str:
        """When the answers came and how long they were; engines without nodes trace the answers of faulty ones only."""
        sizes, total = self._sizes(TO_SERVER), "" if ended.size is None else f", {ended.size:,} bytes in all"
        if heard < ended.answered:
            took = "" if ended.seconds is None else f", {ended.seconds:.3f} s"
            return f"{took} ({heard:,} of the answers in the trace{f', {sizes}' if sizes else ''})"
        answers = [
            line.at
            for line in self.lines
            if isinstance(line.event, MessageSent) and line.event.to == TO_SERVER
        ]
        first, last = answers[0], self.lines[-1].at if self.left_out(TO_SERVER) else answers[-1]
        when = "" if first is None or last is None else f", between {first:.4f} and {last:.4f} s"
        return f"{when}{f', {sizes}' if sizes else ''}{total}"

    def dropped_words(self) -> str:
        """How many dropped out, who, and why, as the end of a sentence; nothing if nobody did."""
        dropped = self.dropped
        missing = self.ended.participants - self.ended.answered if self.ended and self.asked else 0
        if not dropped:
            return f"; {missing:,} dropped out" if missing else ""
        by_reason: dict[str, list[int]] = {}
        for event in dropped:
            reason = event.reason if event.refusal is None else f"{event.reason} ({event.refusal})"
            by_reason.setdefault(reason, []).append(number_of(event.participant))
        names = names_by_reason({reason: sorted(numbers) for reason, numbers in by_reason.items()})
        unnamed = (
            f" and {missing - len(dropped):,} that the trace does not name" if missing > len(dropped) else ""
        )
        return f"; {max(missing, len(dropped)):,} dropped out: {names}{unnamed}"

    def _sizes(self, to: str) -> str:
        """The sizes of the messages in this direction; nothing where one of them is withheld or was not measured."""
        sent, left = self.sent(to), self.left_out(to)
        sizes = [message.size for message in sent if message.size is not None]
        if not sizes or len(sizes) < len(sent) or (left is not None and left.size is None):
            return ""
        low, high, more, rest = (
            min(sizes),
            max(sizes),
            left.messages if left else 0,
            left.size or 0 if left else 0,
        )
        if low == high and rest == more * low:
            return f"{low:,} bytes each"
        if left is None:
            return f"{low:,} to {high:,} bytes each"
        first = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return f"{first} bytes in the first {len(sizes)}, {(sum(sizes) + rest) / (len(sizes) + more):,.0f} on average"


def exchanges(lines: Iterable[TraceLine]) -> Iterator[Exchange | TraceLine]:
    """The lines of a trace, those of one exchange together. What happens meanwhile comes before it."""
    current: Exchange | None = None
    for line in lines:
        event = line.event
        if not isinstance(event, RoundEvent):
            if isinstance(event, RunEnded) and current is not None:
                yield current
                current = None
            yield line
            continue
        if current is not None and (current.round, current.stage) != (event.round, event.stage):
            yield current
            current = None
        current = current or Exchange(event.round, event.stage)
        current.lines.append(line)
        if isinstance(event, RoundEnded):
            yield current
            current = None
    if current is not None:
        yield current


def number_of(participant: str) -> int:
    """The number of a participant such as "node 3"; 0 if it has none."""
    number = participant.rpartition(" ")[2]
    return int(number) if number.isdecimal() else 0
