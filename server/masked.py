"""A masked sum over a cohort: one driver of a session's stages, over any exchange of messages or that with nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedhist.protocol.masking.graph import MaskingTerms
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.server import CollectingAdvertisements, Messages, Stage
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.wire.envelope import PARTICIPANT_BYTES
from fedhist.server.collection import (
    Declined,
    Fault,
    Reply,
    RoundWatch,
    StageReport,
    Tally,
    header_fault,
    matched,
    refusal_in,
)

# A masked sum over a cohort: the one driver of the masking session's stages, over any exchange of messages.

Exchange = Callable[[MaskingStage, Messages | None], Iterable[tuple[int, bytes]]]
"""Sends each participant its message of a stage, and yields (participant, answer) as the answers come.

A participant that does not answer is left out. In the first stage the messages are None: all participants are asked to
advertise keys.
"""


def masked_sum(
    terms: MaskingTerms,
    exchange: Exchange,
    *,
    source: Source,
    directory: Mapping[int, bytes] | None = None,
    on_ignored: Callable[[int], None] = lambda sender: None,
) -> MaskedSum:
    """The sum over the participants that stayed. Raises RoundFailed when these are too few; then nothing was unmasked.

    Args:
        terms: what both sides agree on.
        exchange: carries the messages.
        source: for the salt of the graph.
        directory: in signed mode, the participants' public keys by id.
        on_ignored: called with the sender of each answer that the session does not take, before the next one comes.
    """
    stage: Stage = CollectingAdvertisements(terms, source=source, directory=directory)
    messages: Messages | None = None
    while True:
        for sender, answer in exchange(stage.name, messages):
            if not stage.add(sender, answer):
                on_ignored(sender)
        closed = stage.close()
        if isinstance(closed, MaskedSum):
            return closed
        stage, messages = closed


# A masked sum's messages over nodes: who is which participant, and who failed.

Send = Callable[[str, Sequence[tuple[int, bytes | None]]], tuple[dict[str, int], Iterator[Reply]]]
"""Sends a stage's payloads to nodes: the node of each message by its id, and the replies as they come."""


@dataclass(kw_only=True)
class NodeExchange:
    """Carries a masked sum's messages. Participants are nodes, or under signed masking the keys that nodes have.

    Args:
        send: carries the messages of a stage.
        terms: of the masking session.
        header: the fields of a node's answer, whichever node gives it.
        nodes: who takes part.
        declined: takes the nodes that refused, failed or sent nonsense; not those that only lost or gave up their
            session.
        watch: counts a stage, and tells others of it.
        first: whether keys are still being gathered.
        tally, size, stages: for the round's report.
        node_of: the node of each participant.
    """

    send: Send
    terms: MaskingTerms
    header: Mapping[str, object]
    nodes: Sequence[int]
    declined: Declined
    watch: Callable[[str, Tally], RoundWatch]
    first: bool = True
    tally: Tally = field(default_factory=Tally)
    size: int = 0
    node_of: dict[int, int] = field(default_factory=dict)
    stages: dict[str, StageReport] = field(default_factory=dict)

    def __call__(
        self, stage: str, messages: Iterable[tuple[int, bytes]] | None
    ) -> Iterator[tuple[int, bytes]]:
        """One stage, as `masked_sum` asks for it."""
        first = self.first = messages is None
        if messages is None:
            payloads: list[tuple[int, bytes | None]] = [(node, None) for node in self.nodes]
        else:
            payloads = [(self.node_of[participant], payload) for participant, payload in messages]
        watch = self.watch(stage, self.tally)
        watch.asked({node: len(payload or b"") for node, payload in payloads})
        participant_of = {node: participant for participant, node in self.node_of.items()}
        for node, reply in matched(*self.send(stage, payloads), watch.dropped):
            fields, data = reply.fields, reply.data
            fault = header_fault(self.header, fields)
            if fault is None and (data is None or (first and not self._register(node, data))):
                fault = Fault.MALFORMED
            refusal = self.declined.note(node, refusal_in(fields))
            watch.answered(node, data, fault, refusal)
            if fault is not None:
                if refusal is None:
                    self.declined.reasons[node] = fault
                continue
            assert data is not None  # noqa: S101 - a fault otherwise
            self.size += len(data)
            if first:
                number = int.from_bytes(data[:PARTICIPANT_BYTES], "little")
                yield number, data[PARTICIPANT_BYTES:]
                continue
            yield participant_of[node], data
        self.stages[stage] = watch.end()

    def ignored(self, sender: int) -> None:
        """Count a message that the session does not take.

        A node that claimed another's number has not taken it: the other may yet answer.
        """
        node = self.node_of[sender]
        self.tally.drop(Fault.MALFORMED, node, None)
        self.declined.reasons[node] = Fault.MALFORMED
        if self.first:
            del self.node_of[sender]

    def nodes_of(self, participants: Iterable[int]) -> tuple[int, ...]:
        """The nodes behind these participants."""
        return tuple(sorted(self.node_of[participant] for participant in participants))

    def complaints(self, by_session: Mapping[int, Iterable[int]]) -> dict[int, tuple[int, ...]]:
        """The nodes that are accused, by the node that complains."""
        return {self.node_of[accuser]: self.nodes_of(accused) for accuser, accused in by_session.items()}

    def _register(self, node: int, data: bytes) -> bool:
        """Note which participant the node is; False if it takes another's number."""
        number = int.from_bytes(data[:PARTICIPANT_BYTES], "little")
        return (self.terms.signed or number == node) and self.node_of.setdefault(number, node) == node
