"""The steps that a report plays, from a trace: who is asked, who answers, who drops out, and what the server sees.

A step holds what any trace may hold, a deployment's too: counts, names of participants, reasons, charges. Of a masked
message in a simulation it has the values that reached the server, which are noise; of what a user has, nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from fedhist.protocol.errors import ids_in_words
from fedhist.protocol.events import (
    TO_SERVER,
    WHOLE_ROUND,
    Charged,
    DroppedOut,
    Event,
    RoundEnded,
    RunEnded,
    StateEntered,
    Viewed,
)
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.rounds import Round
from fedhist.server.trace_file import Trace
from fedhist.server.words import round_words
from fedhist.simulations.report.charts import number
from fedhist.simulations.report.exchanges import Exchange, TraceLine, exchanges, number_of
from fedhist.simulations.report.narration import STAGES, in_words

MOST_DOTS = 200
"""With more participants, a dot stands for several."""

SILENT, REFUSED, LATE = "silent", "refused", "late"
"""How a dot is gone: nothing came in time; something came and is left out; it is gone, and in the sum all the same."""


@dataclass(frozen=True)
class MotionStep:
    """One step.

    Args:
        scene: what moves, a name that the script knows.
        title: a few words.
        caption: what happens, in plain words.
        counts: who answered, who dropped out and why.
        sees: what the server sees.
        round: the round's name, or empty.
        participants: of the round; 0 outside of one.
        dots: that stand for them.
        answered: the participants that answered in this step, if it asks them.
        missing: the participants that dropped out in this round so far.
        gone: the dots that drop out in this step, and how.
        summed: the participants whose answers are in the sum, once it is there.
        users: the users in the sum, if they are known.
        noise: heights of a masked message's values as they reached the server, -1 to 1; empty if the trace has none.
        spent: what the ledger was charged so far.
    """

    scene: str
    title: str
    caption: str
    sees: str
    counts: str = ""
    round: str = ""
    participants: int = 0
    dots: int = 0
    answered: int | None = None
    missing: int = 0
    gone: list[tuple[int, str]] = field(default_factory=list)
    summed: int | None = None
    users: int | None = None
    noise: list[float] = field(default_factory=list)
    spent: list[str] = field(default_factory=list)


class StageWords(NamedTuple):
    """A stage of a masked round for somebody who never saw one."""

    scene: str
    title: str
    why: str
    sees: str
    gone: str = ""
    """What becomes of those who drop out in it."""


MASKED_STAGES: Mapping[str, StageWords] = {
    MaskingStage.ADVERTISING: StageWords(
        "keys",
        "Advertise keys",
        "Two devices that have each other's public key can agree on a secret that the server can't read: from it they "
        "will make a mask that both know.",
        "Public keys. They say nothing of anybody's values.",
    ),
    MaskingStage.SHARING: StageWords(
        "shares",
        "Share keys",
        "If a device falls silent later, enough of its neighbours together can still remove its mask; no single one "
        "can.",
        "Encrypted shares, which it passes on and can't open.",
    ),
    MaskingStage.CHECKING: StageWords(
        "checks",
        "Check the shares",
        "So nobody masks with a neighbour whose mask could not be removed.",
        "Who could not open whose share.",
    ),
    MaskingStage.MASKING: StageWords(
        "masked",
        "Masked input",
        "Of each pair of neighbours, one adds their common mask and the other takes it away. In the sum they cancel.",
        "Numbers that tell nothing: each message by itself looks like noise.",
        "What was to cancel with somebody who drops out now is still to be removed.",
    ),
    MaskingStage.CONFIRMING: StageWords(
        "confirms",
        "Confirm",
        "So a server can't tell one half that a device is there and the other half that it is gone.",
        "Signatures under the list of those that are still there.",
    ),
    MaskingStage.UNMASKING: StageWords(
        "unmasks",
        "Unmask",
        "Left in the sum are each device's own mask, and the masks that it had in common with those who fell silent.",
        "What removes the masks that are left in the sum. It opens no single message.",
        "What those who drop out now had sent is in the sum all the same: the others are enough to unmask it.",
    ),
}

_QUESTIONS = {
    Round.DISCOVER: "Asks which items there are",
    Round.SELECT: "Asks for statistics",
    Round.RELEASE: "Sends the threshold",
}
_WHY = {
    "no-answer": "gave no answer",
    "error": "answered with an error",
    "malformed": "sent bytes that can't be read",
    "out-of-bounds": "sent values that no honest users can have",
}


_TOLD = (StateEntered, Charged, RunEnded)


@dataclass
class _Cohort:
    """The participants of a round as dots: who is gone so far."""

    participants: int
    numbers: set[int] = field(default_factory=set)
    blocks: Counter[int] = field(default_factory=Counter)
    missing: int = 0
    shown: dict[int, str] = field(default_factory=dict)

    @property
    def each(self) -> int:
        """The participants that a dot stands for, at most."""
        return max(1, -(-self.participants // MOST_DOTS))

    @property
    def dots(self) -> int:
        return -(-self.participants // self.each)

    def drop(self, named: Sequence[tuple[int, str]], missing: int) -> list[tuple[int, str]]:
        """The dots that are gone now: of every `each` missing participants one, where most of them are.

        Args:
            named: numbers of participants, and how each is gone.
            missing: how many are gone, whether they are named or not.
        """
        new = {one: look for one, look in named if one not in self.numbers}
        self.missing += max(missing - (len(named) - len(new)), len(new))
        self.numbers.update(new)
        looks: dict[int, str] = {}
        for one, look in new.items():
            self.blocks[(one - 1) // self.each] += 1
            looks[(one - 1) // self.each] = look
        due = max(0, -(-self.missing // self.each) - len(self.shown))
        left = [dot for dot in range(self.dots) if dot not in self.shown]
        found = sorted(left, key=lambda dot: (-self.blocks[dot], -dot))[:due]
        common = Counter(look for _, look in named).most_common(1)
        gone = [(dot, looks.get(dot, common[0][0] if common else SILENT)) for dot in sorted(found)]
        self.shown.update(gone)
        return gone


def motion_steps(trace: Trace, *, released: int, lying: Mapping[str, int]) -> list[MotionStep]:
    """The steps of a traced run.

    Args:
        trace: of the run.
        released: the number of values that it released.
        lying: the number of participants in each round's sum that made their answers up, where faults were simulated.
    """
    return list(_Player(trace, released, lying).steps())


class _Player:
    """Reads a trace from its beginning to its end."""

    def __init__(self, trace: Trace, released: int, lying: Mapping[str, int]) -> None:
        self._plan, self._released, self._lying = trace.plan, released, lying
        numbered = [TraceLine(place, at, event) for place, (at, event) in enumerate(trace.lines)]
        self._parts = list(exchanges(numbered))
        self._participants: dict[str, int] = {}
        for part in self._parts:
            if isinstance(part, Exchange):
                most = max(part.participants, self._participants.get(part.round, 0))
                self._participants[part.round] = most
        self._noise = {view.round: _heights(view) for view in trace.events if isinstance(view, Viewed)}
        self._cohort = _Cohort(0)
        self._spent: list[str] = []

    def steps(self) -> Iterator[MotionStep]:
        told = [part for part in self._parts if isinstance(part, Exchange) or isinstance(part.event, _TOLD)]
        for charged, parts in groupby(told, key=_is_charge):
            if charged:
                lines = (part.event for part in parts if isinstance(part, TraceLine))
                yield self._charges([event for event in lines if isinstance(event, Charged)])
                continue
            for part in parts:
                yield from self._exchange(part) if isinstance(part, Exchange) else self._event(part.event)

    def _event(self, event: Event) -> Iterator[MotionStep]:
        caption = in_words(event, self._plan)
        match event:
            case StateEntered(state="planned"):
                yield self._step("plan", "The plan", caption, "The plan, which is public.")
            case StateEntered(state="released"):
                values = f"{_counted(self._released, 'value')} with noise" if self._released else "no value"
                sees = f"From now on the same as everybody: {values}, and what was spent."
                yield self._step("released", "Released", caption, sees)
            case StateEntered(state=state):
                # A round begins, and everybody in it is there.
                round_ = next(one for one in Round if one.under_way == state)
                self._cohort = _Cohort(self._participants.get(round_.value, 0))
                yield self._in_round(round_, "asks", _QUESTIONS[round_], caption, "Nothing yet.")
            case RunEnded(outcome="failed"):
                yield self._step("failed", "Failed", caption, "Nothing that it could release.")

    def _charges(self, events: Sequence[Charged]) -> MotionStep:
        """What is charged at one time; equal charges are said once."""
        for event, equal in groupby(events):
            times, spent = len(list(equal)), _spent(event.charge)
            self._spent.append(spent if times == 1 else f"{times:,} × {spent}")
        words = list(dict.fromkeys(in_words(event, self._plan) for event in events))
        more = f" And {len(words) - 2:,} more charges." if len(words) > 2 else ""
        sees = "Nothing new. The cost is written down before any noise is drawn."
        return self._step("charge", "Charge the ledger", f"{' '.join(words[:2])}{more}", sees)

    def _exchange(self, exchange: Exchange) -> Iterator[MotionStep]:
        ended, gone = exchange.ended, self._drop(exchange)
        if exchange.asked is not None:
            yield self._in_round(
                exchange.round,
                *self._exchange_words(exchange),
                counts=self._counts(exchange),
                answered=None if ended is None else ended.answered,
                gone=gone,
                noise=self._noise.get(exchange.round, []) if exchange.stage == MaskingStage.MASKING else [],
            )
        if ended is not None and exchange.stage == WHOLE_ROUND:
            yield self._in_round(
                exchange.round,
                "sum",
                "The sum",
                *self._sum_words(exchange, ended),
                gone=[] if exchange.asked else gone,
                summed=ended.answered,
                users=ended.users,
            )

    def _step(self, scene: str, title: str, caption: str, sees: str, **more: Any) -> MotionStep:
        return MotionStep(scene, title, caption, sees, spent=list(self._spent), **more)

    def _in_round(
        self, round_: str, scene: str, title: str, caption: str, sees: str, **more: Any
    ) -> MotionStep:
        cohort = self._cohort
        known = {"participants": cohort.participants, "dots": cohort.dots, "missing": cohort.missing}
        return self._step(scene, title, caption, sees, round=round_, **known, **more)

    def _drop(self, exchange: Exchange) -> list[tuple[int, str]]:
        """The dots that are gone with this exchange."""
        heard = {message.participant for message in exchange.sent(TO_SERVER)}
        if exchange.asked is None:  # whom a masked round as a whole leaves out had answered in its stages
            heard |= {one.participant for one in exchange.dropped}
        late = exchange.stage == MaskingStage.UNMASKING
        named = [(number_of(one.participant), _look(one, heard, late=late)) for one in exchange.dropped]
        ended = exchange.ended if exchange.asked is not None else None
        return self._cohort.drop(named, 0 if ended is None else ended.participants - ended.answered)

    def _exchange_words(self, exchange: Exchange) -> tuple[str, str, str, str]:
        """The scene, the title, the caption and what the server sees."""
        if exchange.stage in MASKED_STAGES:
            words, does = MASKED_STAGES[exchange.stage], STAGES[exchange.stage]
            gone = f" {words.gone}" if exchange.dropped and words.gone else ""
            return words.scene, words.title, f"{does[:1].upper()}{does[1:]}. {words.why}{gone}", words.sees
        sees = (
            "One answer. In a deployment there is one of each device: without masks the server could read them "
            "all, and it uses only the sum."
            if self._cohort.participants == 1
            else "Each answer as it was sent. Without masks it could read every one; it uses only the sum."
        )
        return "answers", "Answers", round_words(self._plan)[Round(exchange.round)].detail, sees

    def _sum_words(self, exchange: Exchange, ended: RoundEnded) -> tuple[str, str]:
        """The caption and what the server sees, once answers are added up."""
        users = "their users" if ended.users is None else _counted(ended.users, "user")
        over = users if ended.participants == 1 else f"{_counted(ended.answered)} with {users}"
        lies = self._lying.get(exchange.round, 0)
        lying = f" {_counted(lies)} in it made their answers up: the server can't see which." if lies else ""
        if not self._plan.is_masked:
            begins = "The answer is" if ended.participants == 1 else "The answers are added up:"
            return f"{begins} the sum over {over}.{lying}", "The sum. From here on nothing else is used."
        left = f" {_gone_words(exchange.dropped)}" if exchange.dropped else ""
        noisy = " The noise is in it already." if self._plan.noise_by_devices else ""
        signed = self._plan.masking == "secagg-signed"
        trust = "even if it breaks the protocol" if signed else "as long as it follows the protocol"
        return (
            f"The masks are gone, and the sum over {over} remains.{noisy}{left}{lying}",
            f"The sum. It can't tell what any one of them sent, {trust}.",
        )

    def _counts(self, exchange: Exchange) -> str:
        """Who answered in this exchange, and what becomes of those who did not."""
        ended, stage = exchange.ended, exchange.stage
        if ended is None:
            return "The exchange did not end."
        if self._cohort.participants == 1:
            return "The process answers once, for all its users."
        of = "" if ended.participants == ended.answered else f" of {ended.participants:,}"
        said = f"{ended.answered:,}{of} {'answered' if stage else 'are in the sum'}."
        before = self._cohort.participants - ended.participants
        if stage == MaskingStage.ADVERTISING and before > 0:
            said += f" The keys of {before:,} came with the answers that ended the round before."
        missing = ended.participants - ended.answered
        if not missing:
            return said
        named = _gone_words(exchange.dropped)
        said += (
            f" {named}" if len(exchange.dropped) >= missing else f" {missing:,} dropped out. {named}".rstrip()
        )
        return said


def _is_charge(part: Exchange | TraceLine) -> bool:
    return isinstance(part, TraceLine) and isinstance(part.event, Charged)


def _spent(charge: Mapping[str, Any]) -> str:
    if charge["epsilon"] is None:
        return "not private"
    return f"ε {number(charge['epsilon'])}" if charge["epsilon"] else f"δ {charge['delta']:.3g}"


def _gone_words(dropped: Sequence[DroppedOut]) -> str:
    """How many dropped out for each reason, and who they are."""
    by_reason: dict[str, list[int]] = {}
    for one in dropped:
        why = _WHY.get(
            one.reason, f"left out, {one.reason}" if one.refusal is None else f"said no, {one.refusal}"
        )
        by_reason.setdefault(why, []).append(number_of(one.participant))
    said = [f"{len(ids):,} {why} ({ids_in_words(sorted(ids))})" for why, ids in by_reason.items()]
    return f"{'; '.join(said)}." if said else ""


def _look(one: DroppedOut, heard: set[str], *, late: bool) -> str:
    if late:
        return LATE
    return REFUSED if one.participant in heard or one.reason in ("malformed", "out-of-bounds") else SILENT


def _heights(view: Viewed) -> list[float]:
    """The values of a masked message as they reached the server, of the largest; nothing of one that is not masked."""
    most = max((abs(value) for value in view.seen), default=0.0)
    return [round(value / most, 3) for value in view.seen] if view.masked and most else []


def _counted(count: int, noun: str = "participant") -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
