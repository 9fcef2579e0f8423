"""Tells an observer what happens in a round: who was asked, who answered how much, and who dropped out why."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fedhist.protocol.envelope import Envelope
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
from fedhist.server.collection import Fault, RoundReport

DIGEST_SHOWN = 16
"""How many hexadecimal digits of a plan's hash an event holds; all of them stand at the top of a trace."""


class RoundWatch:
    """One round, or one stage of it, over nodes.

    Nodes are called by their place in the round, "node 1" and so on, not by an id that outlives the run.

    Args:
        observe: who is told.
        envelope: what is asked.
        nodes: whoever is asked.
        stage: which stage of a round that has several.
    """

    def __init__(
        self,
        observe: Observer,
        envelope: Envelope,
        nodes: Sequence[Hashable],
        *,
        stage: str = WHOLE_ROUND,
    ) -> None:
        self._observe, self._stage = observe, stage
        self._round = envelope.request.round.value
        self._plan = plan_name(envelope.request.plan)
        self._names = {node: f"node {place}" for place, node in enumerate(nodes, start=1)}
        if observe is ignore:
            return
        observe(RoundAsked(self._round, stage, len(nodes), self._plan))
        size = envelope_size(envelope)
        for name in self._names.values():
            observe(MessageSent(self._round, stage, TO_DEVICE, name, size, self._plan))

    def answered(self, node: Hashable, data: bytes | None, fault: Fault | None, refusal: str | None) -> None:
        """A node's reply came; `fault` if it is not in the sum."""
        if data is not None:
            name = self._names[node]
            self._observe(MessageSent(self._round, self._stage, TO_SERVER, name, len(data), self._plan))
        if fault is not None:
            self.dropped(node, fault, refusal)

    def dropped(self, node: Hashable, fault: Fault, refusal: str | None = None) -> None:
        """A node adds nothing to the sum."""
        self._observe(DroppedOut(self._round, self._stage, self._names[node], fault.value, refusal))

    def end(self, report: RoundReport) -> None:
        """The round is over."""
        self._observe(
            RoundEnded(
                round=self._round,
                stage=self._stage,
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
