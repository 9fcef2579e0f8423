"""Sums of an app's own messages under masks: the ServerApp's side of `fedhist.masking`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedhist.protocol.errors import InvalidInput, MaskingFailed, RoundFailed, TooFewSurvivors, names_by_reason
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.summed_arrays import AnyArray, Layout, layout_parts
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.wire.envelope import PARTICIPANT_BYTES, Status, new_run_name
from fedhist.protocol.wire.sum_request import (
    FEWEST_NODES,
    HANDLER,
    SUM_RECORD,
    SUM_VERSION,
    SumRequest,
    content_digest,
)
from fedhist.server.app import GridTransport
from fedhist.server.collection import matched, refusal_in
from fedhist.server.drop_outs import Fault
from fedhist.server.masked_round import masked_sum

log = logging.getLogger("fedhist")
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class NodeSum:
    """The sum over the nodes that stayed.

    Args:
        sums: the sums, by the records and names of the arrays that the nodes answered. Whole numbers are 64-bit
            integers, others 64-bit floats.
        weight: the sum of the nodes' weights; without weights the number of nodes.
        nodes: the nodes in the sum.
        left_out: the other nodes that were asked, by the reason why they are not in it.
        complaints: the nodes whose boxes did not open, by the node that says so, see docs/masking.md.
        step: floats are in multiples of this. A float of the sum is within `weight * step / 2` of the exact one.
    """

    sums: RecordDict
    weight: int
    nodes: tuple[int, ...]
    left_out: Mapping[str, tuple[int, ...]]
    complaints: Mapping[int, tuple[int, ...]]
    step: float

    def mean(self) -> RecordDict:
        """The sums over the weight: a weighted mean is within `step / 2` of the exact one."""
        if self.weight == 0:
            raise RoundFailed(
                f"the weights of all {len(self.nodes)} nodes in the sum are 0, so it has no mean"
            )
        return _records(
            {
                record: {name: array.numpy() / self.weight for name, array in arrays.items()}
                for record, arrays in self.sums.array_records.items()
            }
        )


def sum_on_grid(
    grid: Grid,
    content: RecordDict,
    node_ids: Iterable[int] | None = None,
    *,
    bound: float,
    bits: int = 20,
    weighted_by: str | None = None,
    max_weight: int | None = None,
    like: RecordDict | None = None,
    message_type: str = "train",
    dropout_share: float = 0.2,
    corrupt_share: float = 0.05,
    timeout: float = 600.0,
    minimum_nodes: int = FEWEST_NODES,
    node_timeout: float = 60.0,
    directory: Mapping[int, bytes] | None = None,
) -> NodeSum:
    """Send the content to every node's handler, and add up the arrays that it answers, under masks.

    The nodes' handler has `fedhist.masking.mod`. Raises RoundFailed when too few nodes stay; nothing is unmasked then.

    Args:
        grid: what Flower hands to a ServerApp's main function.
        content: what each node's handler gets, the same for all.
        node_ids: the nodes to ask; None for all that are connected, once these are enough.
        bound: the largest absolute value of an answer's number. Nodes clamp others to it. Public.
        bits: floats are rounded to multiples of 2^-bits. Public.
        weighted_by: the name of a metric in the nodes' answers by which their arrays are weighted, such as
            "num-examples"; None for a plain sum.
        max_weight: the largest weight. Nodes clamp others to it. Public.
        like: records with the names, shapes and types of the arrays that nodes answer; their values do not matter. None
            for the array records of the content.
        message_type: of the handler.
        dropout_share: the share of nodes that may fall silent. With more, nothing is unmasked.
        corrupt_share: the share of nodes that may collude with the server.
        timeout: seconds that each of the five exchanges, six if signed, waits for answers. One of them includes the
            handler's own work.
        minimum_nodes: without node_ids, the number of nodes to wait for.
        node_timeout: seconds to wait for those nodes; after that the sum fails.
        directory: for signed masks, the nodes' public keys, see `fedhist.protocol.masking.identities`.
    """
    if SUM_RECORD in content:
        raise InvalidInput(
            f"the content has a record {SUM_RECORD!r}", allowed="another name: this one is ours"
        )
    nodes = _connected(grid, minimum_nodes, node_timeout) if node_ids is None else sorted(set(node_ids))
    template = content if like is None else like
    parts = layout_parts({record: _arrays(arrays) for record, arrays in template.array_records.items()})
    request = SumRequest(
        name=new_run_name(source=SystemSource()),
        message_type=message_type,
        content=content_digest(content),
        layout=Layout(parts, bound if isinstance(bound, int) else float(bound), bits, max_weight),
        weighted_by=weighted_by or "",
        participants=len(nodes),
        corrupt_share=float(corrupt_share),
        dropout_share=float(dropout_share),
        signed=directory is not None,
    )
    request.check_graph()
    return _summed(_Exchange(GridTransport(grid=grid, timeout=timeout), request, content, nodes), directory)


def _connected(grid: Grid, due: int, timeout: float) -> list[int]:
    """The nodes that are connected, once they are enough."""
    until = monotonic() + timeout
    while len(nodes := sorted(set(grid.get_node_ids()))) < due:
        if monotonic() >= until:
            raise RoundFailed(f"{len(nodes)} nodes are connected and {due} are needed; nobody was asked")
        sleep(_POLL_SECONDS)
    return nodes


def _summed(exchange: _Exchange, directory: Mapping[int, bytes] | None) -> NodeSum:
    request, started, asked = exchange.request, monotonic(), len(exchange.nodes)
    log.info("masked sum of %s: asking %d nodes", request.message_type, asked)
    try:
        outcome = masked_sum(
            request.terms,
            exchange,
            source=SystemSource(),
            directory=directory,
            on_ignored=exchange.ignored,
        )
    except MaskingFailed as failure:
        raise _failed(failure, exchange) from None
    included = exchange.nodes_of(outcome.included)
    left_out = exchange.left_out(outcome.left_out, included)
    sums, weight = request.layout.from_vector(outcome.values, nodes=len(included))
    log.info(
        "masked sum of %s: %d of %d nodes, %.2f s%s",
        request.message_type,
        len(included),
        asked,
        monotonic() - started,
        f"; left out: {names_by_reason(left_out)}" if left_out else "",
    )
    complaints = exchange.complaints(outcome.complaints)
    return NodeSum(_records(sums), weight, included, left_out, complaints, step=2.0**-request.layout.bits)


def _failed(failure: MaskingFailed, exchange: _Exchange) -> MaskingFailed:
    """The failure in terms of nodes: also those that never answered, and why."""
    problem = "mask secrets can't be rebuilt: the received shares are corrupt; nothing was unmasked"
    if isinstance(failure, TooFewSurvivors):
        problem = (
            f"the masked sum stopped after {failure.stage}: {failure.alive} {failure.of} are left where "
            f"{failure.needed} are needed, of {len(exchange.nodes)} nodes that were asked; nothing was unmasked. A "
            "larger dropout_share lets it go on with fewer"
        )
    told = MaskingFailed(problem, left_out=exchange.left_out(failure.left_out))
    told.complaints = exchange.complaints(failure.complaints)
    return told


@dataclass
class _Exchange:
    """Carries the messages of one masked sum. Participants are nodes, or with signatures the keys that nodes have."""

    transport: GridTransport
    request: SumRequest
    content: RecordDict = field(repr=False)
    nodes: Sequence[int]
    reasons: dict[int, str] = field(default_factory=dict)
    node_of: dict[int, int] = field(default_factory=dict)
    closed: bool = False
    """Whether the first stage is over."""

    def __call__(
        self, stage: MaskingStage, messages: Iterable[tuple[int, bytes]] | None
    ) -> Iterator[tuple[int, bytes]]:
        if messages is None:
            asked = [self._message(stage, node, None) for node in self.nodes]
        else:
            asked = [self._message(stage, self.node_of[number], sent) for number, sent in messages]
        number_of = {node: number for number, node in self.node_of.items()}
        for node, reply in matched(*self.transport.ask(asked), self._dropped):
            reason, data = _problem(self.request, reply.fields), reply.data
            if reason is None and data is not None and messages is None:
                number, data = int.from_bytes(data[:PARTICIPANT_BYTES], "little"), data[PARTICIPANT_BYTES:]
                taken = self.node_of.setdefault(number, node) != node
                reason = "malformed" if taken or not (self.request.signed or number == node) else None
                number_of[node] = number
            if reason is not None or data is None:
                self.reasons.setdefault(node, reason or "malformed")
                continue
            yield number_of[node], data
        self.closed = True

    def ignored(self, participant: int) -> None:
        """Note a node whose message the session does not take, for which the session itself has the reason.

        One that claimed another's number has not taken it: the other may yet answer.
        """
        node = self.node_of[participant] if self.closed else self.node_of.pop(participant)
        self.reasons.setdefault(node, "malformed")

    def nodes_of(self, participants: Iterable[int]) -> tuple[int, ...]:
        """The nodes behind these participants."""
        return tuple(sorted(self.node_of[participant] for participant in participants))

    def complaints(self, by_session: Mapping[int, Iterable[int]]) -> dict[int, tuple[int, ...]]:
        """The nodes that are accused, by the node that complains."""
        return {self.node_of[accuser]: self.nodes_of(accused) for accuser, accused in by_session.items()}

    def left_out(
        self, by_session: Mapping[str, Iterable[int]], included: Sequence[int] = ()
    ) -> dict[str, tuple[int, ...]]:
        """The nodes that are not in the sum, by reason. The session's own reasons come first: they say more."""
        reasons = dict(self.reasons)
        for reason, participants in by_session.items():
            reasons.update(dict.fromkeys(self.nodes_of(participants), reason))
        gone = [node for node in self.nodes if node in reasons and node not in set(included)]
        return {
            reason: tuple(node for node in gone if reasons[node] == reason)
            for reason in sorted({reasons[node] for node in gone})
        }

    def _dropped(self, fault: Fault, node: int | None) -> None:
        if node is not None:
            self.reasons.setdefault(node, fault.value)

    def _message(self, stage: MaskingStage, node: int, sent: bytes | None) -> Message:
        """A node's message of a stage. The content travels when it is due, once."""
        records = RecordDict(dict(self.content) if stage is MaskingStage.MASKING else {})
        records[SUM_RECORD] = ConfigRecord({**self.request.to_fields(stage, sent)})
        # An answer that comes after the stage is of no use, so the message need not live longer.
        ttl = self.transport.timeout
        return Message(records, node, self.request.message_type, ttl=ttl, group_id=self.request.name)


def _problem(request: SumRequest, fields: Mapping[str, object]) -> str | None:
    """Why a reply adds nothing to the sum, in words of ours; None if it does."""
    status = fields.get("status")
    if fields.get("version") != SUM_VERSION:
        return "malformed"
    if status == Status.REFUSED:
        return refusal_in(fields) or "refused"
    if status == Status.FAILED:
        return HANDLER if fields.get("reason") == HANDLER else refusal_in(fields) or "error"
    return None if status == Status.ANSWER and fields.get("session") == request.name else "malformed"


def _arrays(record: ArrayRecord) -> dict[str, AnyArray]:
    return {name: array.numpy() for name, array in record.items()}


def _records(arrays: Mapping[str, Mapping[str, AnyArray]]) -> RecordDict:
    return RecordDict(
        {
            record: ArrayRecord({name: Array(np.asarray(array)) for name, array in named.items()})
            for record, named in arrays.items()
        }
    )
