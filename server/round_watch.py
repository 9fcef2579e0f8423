"""Counts who answers in a round and who drops out why, and tells an observer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

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
from fedhist.protocol.plan import Plan
from fedhist.protocol.wire.envelope import Envelope, Refusal
from fedhist.server.collection import RoundReport, StageReport
from fedhist.server.drop_outs import Fault, Tally

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
