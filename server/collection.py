"""Replies of a cohort, checked one by one and added up. What is wrong is dropped and counted, never repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import monotonic

import numpy as np

from fedhist.protocol.errors import DecodeError, OutOfBounds, RoundFailed, ids_in_words, names_by_reason
from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    WHOLE_ROUND,
    DroppedOut,
    MessageSent,
    Observer,
    RoundAsked,
    RoundEnded,
    ignore,
)
from fedhist.protocol.histograms import Integers
from fedhist.protocol.items import item_bytes, numbers_in
from fedhist.protocol.keyed import Keyed, KeyedSum
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Labels, Round, Total
from fedhist.protocol.wire.envelope import Envelope, Refusal, Status, decode

# Nodes that were asked and add nothing to the sum: how many, which, and why.


class Fault(StrEnum):
    """Why a node's reply, or its silence, adds nothing to the sum."""

    NO_ANSWER = "no-answer"
    ERROR = "error"
    REFUSED = "refused"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    STRANGER = "stranger"
    OTHER_RUN = "other-run"
    OTHER_PLAN = "other-plan"
    MALFORMED = "malformed"
    OUT_OF_BOUNDS = "out-of-bounds"


Dropped = Mapping[Fault, Mapping[str, tuple[int, ...]]]
"""The ids of nodes that were asked and added nothing, by fault and by the reason that they gave; "" is none."""


@dataclass
class Tally:
    """What was dropped so far: replies and nodes by fault, and the nodes by the reason that they gave."""

    faults: Counter[Fault] = field(default_factory=Counter)
    nodes: dict[Fault, dict[str, list[int]]] = field(default_factory=dict)

    def drop(self, fault: Fault, node: int | None, reason: Refusal | None) -> None:
        """Count a node that adds nothing; None for a message of no node that was asked."""
        self.faults[fault] += 1
        if node is not None:
            self.nodes.setdefault(fault, {}).setdefault(reason or "", []).append(node)

    @property
    def dropped(self) -> Dropped:
        """The nodes so far, in the order of their ids: that in which they came would tell how long each took."""
        return {
            fault: {reason: tuple(sorted(nodes)) for reason, nodes in by_reason.items()}
            for fault, by_reason in self.nodes.items()
        }


@dataclass
class Declined:
    """The nodes that gave a lasting reason why they do not answer, or sent nonsense. They are not asked again."""

    reasons: dict[int, Refusal | Fault] = field(default_factory=dict)

    def note(self, node: int, refusal: Refusal | None) -> Refusal | None:
        """Remember the node if its reason lasts. The same reason."""
        if refusal is not None and refusal.lasts:
            self.reasons[node] = refusal
        return refusal

    def among(self, connected: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Those of the connected nodes that declined, by reason."""
        found: dict[str, tuple[int, ...]] = {}
        for node in connected:
            if (reason := self.reasons.get(node)) is not None:
                found[reason.value] = (*found.get(reason.value, ()), node)
        return found


def faults_in_words(faults: Mapping[Fault, int], dropped: Dropped) -> str:
    """Faults with their counts, and the reasons that nodes gave: `1 no-answer, 2 refused (over-budget)`."""
    return ", ".join(
        f"{count} {fault.value}{_reasons_in_words(dropped.get(fault, {}))}"
        for fault, count in sorted(faults.items())
    )


def _reasons_in_words(by_reason: Mapping[str, Sequence[int]]) -> str:
    given = {reason: len(nodes) for reason, nodes in sorted(by_reason.items()) if reason}
    if not given:
        return ""
    counted = [f"{count} {reason}" for reason, count in given.items()]
    return f" ({', '.join(given if len(given) == 1 else counted)})"


def dropped_words(dropped: Dropped) -> list[str]:
    """Which nodes add nothing, and why: `over-budget 101, 102`."""
    return [
        f"{reason or fault.value} {ids_in_words(nodes)}"
        for fault, by_reason in sorted(dropped.items())
        for reason, nodes in sorted(by_reason.items())
    ]


def dropped_document(dropped: Dropped) -> dict[str, object]:
    """Which nodes add nothing, by the reason that they gave or else by the fault: a part of a document, or nothing."""
    found: dict[str, list[int]] = {}
    for fault, given in sorted(dropped.items()):
        for reason, nodes in sorted(given.items()):
            found.setdefault(reason or fault.value, []).extend(nodes)
    return {"dropped": found} if found else {}


@dataclass(frozen=True)
class StageReport:
    """One stage of a masked round: the nodes asked and answered, the bytes of their answers, and its seconds.

    `heard` has the ids of the nodes that answered, and `dropped` those of the others.
    """

    asked: int
    answered: int
    size: int
    seconds: float = field(repr=False)
    heard: tuple[int, ...] = ()
    dropped: Dropped = field(default_factory=dict)

    def to_json(self, *, truth: bool) -> dict[str, object]:
        """The report by name; its time only beside the truth."""
        seconds = self.seconds if truth else None
        document: dict[str, object] = {
            "asked": self.asked,
            "answered": self.answered,
            "bytes": self.size,
            "seconds": seconds,
        }
        return document | dropped_document(self.dropped)

    def in_words(self) -> str:
        """Who answered, and why others did not."""
        named = f" ({ids_in_words(self.heard)})" if self.heard else ""
        return f"{self.answered} of {self.asked}{named}" + "".join(
            f", {words}" for words in dropped_words(self.dropped)
        )


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round; no values.

    Args:
        round: which one.
        nodes: the number of nodes that were asked.
        answered: the number of nodes whose answers are in the sum.
        users: the number of users that those declared.
        faults: the number of dropped replies or nodes, by reason.
        size: the bytes of all answers in the sum; None where they were not measured, and where they would tell of data
            that the server does not have, see `length_tells`.
        seconds: from the first request to the sum.
        stages: the same for each stage of a masked round.
        left_out: in a masked round, the ids of the nodes that answered and are not in the sum, by reason, see
            `fedhist.protocol.masking.cohort`; of a round that failed also `corrupt-shares`, those whose masks could
            not be taken off.
        complaints: in a masked round, the nodes whose boxes did not open, by the node that says so.
        dropped: the ids of the nodes that add nothing because of a fault.
        not_asked: the ids of nodes that are connected and were not asked, because they declined earlier in the run, by
            the reason that they gave then.
    """

    round: Round
    nodes: int
    answered: int
    users: int
    faults: Mapping[Fault, int]
    size: int | None
    seconds: float = field(repr=False)
    stages: Mapping[str, StageReport] = field(default_factory=dict)
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    complaints: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=dict)
    not_asked: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[Refusal, tuple[int, ...]]:
        """The ids of the nodes that gave a reason why they do not answer, by that reason."""
        given: dict[Refusal, tuple[int, ...]] = {}
        for by_reason in self.dropped.values():
            for reason, nodes in by_reason.items():
                if reason:
                    given[Refusal(reason)] = tuple(sorted((*given.get(Refusal(reason), ()), *nodes)))
        return dict(sorted(given.items()))

    def in_words(self) -> str:
        """One line for a log."""
        faults = faults_in_words(self.faults, self.dropped)
        dropped = f"; dropped: {faults}" if faults else ""
        named = f"; left out: {names_by_reason(self.left_out)}" if self.left_out else ""
        earlier = f"; not asked again: {names_by_reason(self.not_asked)}" if self.not_asked else ""
        cohort = f"{self.answered} of {self.nodes} nodes, {self.users} users"
        return f"round {self.round.value}: {cohort}, {self.seconds:.2f} s{dropped}{named}{earlier}"

    def who_answered(self) -> str:
        """Who answered in a round that failed, and why others did not; a part of a sentence, empty if all did."""
        parts = [f"{stage}: {report.in_words()}" for stage, report in self.stages.items()]
        if not parts:
            parts = dropped_words(self.dropped)
        parts += [f"{reason.value}: {reason.in_words}" for reason in self.reasons]
        if self.not_asked:
            parts.append(f"not asked again: {names_by_reason(self.not_asked)}")
        return f"in round {self.round.value} {'; '.join(parts)}" if parts else ""

    def to_json(self, *, truth: bool) -> dict[str, object]:
        """The report by name; its times only beside the truth, because every time depends on data."""
        document: dict[str, object] = {
            "nodes": self.nodes,
            "answered": self.answered,
            "users": self.users,
            "faults": {fault.value: count for fault, count in sorted(self.faults.items())},
            "reasons": {reason.value: len(nodes) for reason, nodes in self.reasons.items()},
            "bytes": self.size,
            "seconds": self.seconds if truth else None,
        }
        document |= dropped_document(self.dropped)
        if self.not_asked:
            document["not_asked"] = {reason: list(nodes) for reason, nodes in self.not_asked.items()}
        if self.stages:
            document["stages"] = {stage: report.to_json(truth=truth) for stage, report in self.stages.items()}
        if self.left_out:
            document["left_out"] = {reason: list(nodes) for reason, nodes in self.left_out.items()}
        if self.complaints:
            document["complaints"] = {
                str(accuser): list(accused) for accuser, accused in self.complaints.items()
            }
        return document


def refusal_in(fields: Mapping[str, object]) -> Refusal | None:
    """The reason that a node gave for not answering; None if it answered or gave no known reason."""
    if fields.get("status") not in (Status.REFUSED, Status.FAILED):
        return None
    return next((refusal for refusal in Refusal if refusal.value == fields.get("reason")), None)


class LabelTable:
    """Numbers for labels as they turn up. Text and integers that are written alike are one item.

    A label that was not known beforehand is a text from then on: its form must not tell which of two users wrote it
    as a number. Of known ones that are written alike the text stands for both. `labels` are in the order of numbers.
    """

    def __init__(self, known: Labels = ()) -> None:
        self.labels: list[str | int] = list(known)
        self._numbers: dict[bytes, int] = {}
        for number, label in enumerate(self.labels):
            if isinstance(label, str) or item_bytes(label) not in self._numbers:
                self._numbers[item_bytes(label)] = number

    def numbers(self, labels: Labels) -> Integers:
        """The number of each label; a new label gets the next one."""
        numbers = np.empty(len(labels), dtype=np.int64)
        for place, label in enumerate(labels):
            number = self._numbers.setdefault(item_bytes(label), len(self.labels))
            if number == len(self.labels):
                self.labels.append(str(label))
            numbers[place] = number
        return numbers


@dataclass
class Collector:
    """The sum of one round's answers.

    Args:
        envelope: what was asked.
        table: numbers of an open domain's labels.
        tally: what was dropped, for the error if nothing is left.
    """

    envelope: Envelope
    table: LabelTable
    tally: Tally = field(default_factory=Tally)
    users: int = 0
    answered: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self._header = self.envelope.reply_fields(Status.ANSWER)
        shape = self.envelope.request.measurement.shape
        self._values = np.zeros(shape.length, dtype=np.int64)
        self._keyed = KeyedSum(shape.columns) if shape.columns else None

    def add(self, fields: Mapping[str, object], data: bytes | None) -> Fault | None:
        """Add an answer, or drop it; why it was dropped."""
        fault = header_fault(self._header, fields)
        if fault is None:
            try:
                self._add(data)
            except OutOfBounds:
                fault = Fault.OUT_OF_BOUNDS
            except DecodeError:
                fault = Fault.MALFORMED
        return fault

    def total(self) -> Total:
        """The sum of the answers. RoundFailed if they are of more users than the plan has room for, or of none."""
        request = self.envelope.request
        if self.answered == 0:
            reasons = faults_in_words(self.tally.faults, self.tally.dropped)
            raise RoundFailed(
                f"round {request.round}: no node gave an answer ({reasons or 'none was asked'}); "
                "nothing was released",
                code="no-answer",
            )
        if self.users > request.plan.users:
            raise RoundFailed(
                f"round {request.round}: the nodes declare {self.users} users and the plan is for "
                f"{request.plan.users}; nothing was released. Make a plan for all of them",
                code="too-many-users",
            )
        return Total(
            users=self.users,
            values=self._values,
            keyed=None if self._keyed is None else self._keyed.total(),
            labels=None if self._keyed is None else self.table.labels,
        )

    def _add(self, data: bytes | None) -> None:
        request = self.envelope.request
        if data is None:
            raise DecodeError("an answer without its bytes")
        contribution, labels = decode(data, request)
        if contribution.users > request.plan.users:
            raise OutOfBounds(
                f"{contribution.users} users in one contribution; the plan is for {request.plan.users} in all"
            )
        request.measurement.check(contribution.summed, contribution.users)
        if self._keyed is not None and contribution.keyed is not None:
            self._keyed.add(self._renumbered(contribution.keyed, labels or ()))
        self._values += contribution.values
        self.users += contribution.users
        self.answered += 1
        self.size += len(data)

    def _renumbered(self, keyed: Keyed, labels: Labels) -> Keyed:
        """The same sums under the numbers of our own table."""
        bins = self.envelope.request.measurement.shape.bins
        items, places = np.divmod(keyed.keys, bins)
        return Keyed(keys=self.table.numbers(labels)[items] * bins + places, values=keyed.values)


@dataclass(frozen=True)
class Reply:
    """What came back from the network.

    Args:
        asked: the id of the message that it replies to.
        node: where it comes from. An error may come from elsewhere than the node that it is about.
        failed: whether it is an error.
        fields: its header.
        data: its answer.
    """

    asked: str
    node: int
    failed: bool
    fields: Mapping[str, object] = field(repr=False)
    data: bytes | None = field(repr=False)


def matched(
    asked: Mapping[str, int], replies: Iterable[Reply], drop: Callable[[Fault, int | None], None]
) -> Iterator[tuple[int, Reply]]:
    """Each node's one reply, matched by the id of the message that the node was asked with.

    `drop` is called with each fault and the node that it concerns; None if it concerns none that was asked.
    """
    heard: set[str] = set()
    for reply in replies:
        if reply.asked not in asked:
            drop(Fault.STRANGER, None)
        elif reply.asked in heard:  # audited: heard
            drop(Fault.DUPLICATE, None)
        elif reply.failed:
            heard.add(reply.asked)
            drop(Fault.ERROR, asked[reply.asked])
        elif reply.node != asked[reply.asked]:
            drop(Fault.STRANGER, None)
        else:
            heard.add(reply.asked)
            yield reply.node, reply
    for message in [message for message in asked if message not in heard]:
        drop(Fault.NO_ANSWER, asked[message])


_OTHERS = {
    "run": Fault.OTHER_RUN,
    "round": Fault.OTHER_RUN,
    "plan-digest": Fault.OTHER_PLAN,
    "session": Fault.MALFORMED,
}
"""What is wrong with a reply in which one of these fields is not as it is due."""


def header_fault(due: Mapping[str, object], fields: Mapping[str, object]) -> Fault | None:
    """What is wrong with the header of a reply; None if nothing is.

    Args:
        due: the header of an answer: `reply_fields` of what was asked.
        fields: the header that came.
    """
    status = fields.get("status")
    checks = (
        (fields.get("version") != due["version"], Fault.MALFORMED),
        (status == Status.REFUSED, Fault.REFUSED),
        (status == Status.FAILED, Fault.FAILED),
        *((name in due and fields.get(name) != due[name], fault) for name, fault in _OTHERS.items()),
        (status != Status.ANSWER, Fault.MALFORMED),
    )
    return next((fault for wrong, fault in checks if wrong), None)


def numbered(total: Total, known: Labels) -> Total:
    """The total under the numbers of these labels, with new ones for labels that are not among them.

    Of known ones that are written alike a text stands for both, as in a `LabelTable`. The known ones are read once and
    in order, because they may be on disk; those that came are few.
    """
    if total.keyed is None or total.labels is None:
        return total
    came = [str(total.labels[key]) for key in total.keyed.keys.tolist()]
    numbers: dict[str, int] = {}
    places = numbers_in(came, known)
    for number in np.flatnonzero(places >= 0).tolist():
        if isinstance(known[number], str) or came[places[number]] not in numbers:
            numbers[came[places[number]]] = number
    new = [name for name in dict.fromkeys(came) if name not in numbers]
    numbers |= {name: len(known) + place for place, name in enumerate(new)}
    listed = np.array([numbers[name] for name in came], dtype=np.int64)
    order = np.argsort(listed)
    keyed = Keyed(keys=listed[order], values=total.keyed.values[order])
    return replace(total, keyed=keyed, labels=[*known, *new] if new else known)


# Counts who answers in a round and who drops out why, and tells an observer.

DIGEST_SHOWN = 16
"""The hexadecimal digits of a plan's hash in an event; the top of a trace has all of them."""


class RoundWatch:
    """Counts one round, or one stage of a masked one, over nodes, and tells an observer.

    Args:
        observe: called with each event.
        envelope: what is asked.
        names: what each node is called, see `names_of`.
        tally: counts what adds nothing to the sum.
        stage: which stage of a round that has several.
    """

    def __init__(
        self,
        observe: Observer,
        envelope: Envelope,
        names: Mapping[int, str],
        tally: Tally,
        *,
        stage: str = WHOLE_ROUND,
    ) -> None:
        self._observe, self._envelope, self._names, self._stage = observe, envelope, names, stage
        self._round = envelope.request.round.value
        self._plan = plan_name(envelope.request.plan)
        self._tally, self._here = tally, Tally()
        self._began = monotonic()
        self._asked = self._size = 0
        self._heard: list[int] = []

    def asked(self, payloads: Mapping[int, int]) -> None:
        """Note a request to these nodes, with the bytes that each gets besides the request itself."""
        self._asked = len(payloads)
        if self._observe is ignore:
            return
        self._observe(RoundAsked(self._round, self._stage, len(payloads), self._plan))
        size = envelope_size(self._envelope)
        for node, more in payloads.items():
            self._sent(TO_DEVICE, node, size + more)

    def answered(self, node: int, data: bytes | None, fault: Fault | None, refusal: Refusal | None) -> None:
        """Note a node's reply; `fault` says why it is not in the sum."""
        if data is not None:
            self._sent(TO_SERVER, node, len(data))
        if fault is not None:
            self.dropped(fault, node, refusal)
        else:
            self._heard.append(node)
            self._size += len(data or b"")

    def dropped(self, fault: Fault, node: int | None, refusal: Refusal | None = None) -> None:
        """Count a node that adds nothing to the sum; None for a message of no node that was asked."""
        self._tally.drop(fault, node, refusal)
        self._here.drop(fault, node, refusal)
        if node is not None:
            reason = None if refusal is None else refusal.value
            self._observe(DroppedOut(self._round, self._stage, self._names[node], fault.value, reason))

    def end(self) -> StageReport:
        """What was counted."""
        report = StageReport(
            asked=self._asked,
            answered=len(self._heard),
            size=self._size,
            seconds=monotonic() - self._began,
            heard=tuple(sorted(self._heard)),
            dropped=self._here.dropped,
        )
        tell_stage(self._observe, self._round, self._stage, report)
        return report

    def _sent(self, to: str, node: int, size: int) -> None:
        self._observe(MessageSent(self._round, self._stage, to, self._names[node], size, self._plan))


def names_of(nodes: Sequence[int]) -> dict[int, str]:
    """Nodes by their place in the round, "node 1" and so on, not by an id that outlives the run."""
    return {node: f"node {place}" for place, node in enumerate(nodes, start=1)}


def tell_left_out(
    observe: Observer, envelope: Envelope, left_out: Mapping[str, Sequence[int]], names: Mapping[int, str]
) -> None:
    """Report the nodes that answered in a masked round and are not in the sum."""
    for reason, nodes in left_out.items():
        for node in nodes:
            observe(DroppedOut(envelope.request.round.value, WHOLE_ROUND, names[node], reason, None))


def tell_stage(observe: Observer, round_: str, stage: str, report: StageReport) -> None:
    """Report the end of a stage."""
    counts = {"participants": report.asked, "answered": report.answered, "size": report.size}
    observe(RoundEnded(round=round_, stage=stage, users=None, seconds=report.seconds, **counts))


def tell_round(observe: Observer, report: RoundReport) -> None:
    """Report the end of a whole round."""
    observe(
        RoundEnded(
            round=report.round.value,
            stage=WHOLE_ROUND,
            participants=report.nodes,
            answered=report.answered,
            users=report.users,
            size=report.size,
            seconds=report.seconds,
        )
    )


def plan_name(plan: Plan) -> str:
    """The beginning of the plan's hash."""
    return plan.digest.hex()[:DIGEST_SHOWN]


def envelope_size(envelope: Envelope) -> int:
    """The bytes of a request's fields, names and values, without what the carrier wraps round them."""
    size = 0
    for name, value in envelope.to_fields().items():
        match value:
            case bytes():
                length = len(value)
            case str():
                length = len(value.encode())
            case list():
                length = 8 * len(value)
            case _:
                length = 8
        size += len(name) + length
    return size
