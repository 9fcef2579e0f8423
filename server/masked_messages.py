"""Sums of an app's own messages under masks: the ServerApp's side of `fedhist.masking`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedhist.protocol.errors import InvalidInput, MaskingFailed, RoundFailed, TooFewSurvivors, names_by_reason
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.summed_arrays import AnyArray, Layout, layout_parts
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.wire.envelope import Status, new_run_name
from fedhist.protocol.wire.sum_request import FEWEST_NODES, SUM_RECORD, SumRequest, content_digest
from fedhist.server.collection import Reply
from fedhist.server.drop_outs import Declined, by_reason
from fedhist.server.grid_messages import ask, enough_nodes
from fedhist.server.masked_exchange import NodeExchange
from fedhist.server.masked_round import masked_sum

log = logging.getLogger("fedhist")


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
    if node_ids is None:
        nodes, _ = enough_nodes(
            grid,
            minimum_nodes,
            timeout=node_timeout,
            declined=Declined(),
            otherwise="nobody was asked",
        )
    else:
        nodes = sorted(set(node_ids))
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
    exchange = NodeExchange(
        send=partial(_send, grid=grid, request=request, content=content, timeout=timeout),
        terms=request.terms,
        header=request.reply_fields(Status.ANSWER),
        nodes=nodes,
    )
    return _summed(request, exchange, directory)


def _send(
    stage: str,
    payloads: Sequence[tuple[int, bytes | None]],
    *,
    grid: Grid,
    request: SumRequest,
    content: RecordDict,
    timeout: float,
) -> tuple[dict[str, int], Iterator[Reply]]:
    """Send nodes their messages of a stage. The content travels when it is due, once."""

    def message(node: int, payload: bytes | None) -> Message:
        records = RecordDict(dict(content) if stage == MaskingStage.MASKING else {})
        records[SUM_RECORD] = ConfigRecord({**request.to_fields(MaskingStage(stage), payload)})
        # An answer that comes after the stage is of no use, so the message need not live longer.
        return Message(records, node, request.message_type, ttl=timeout, group_id=request.name)

    return ask(grid, (message(node, payload) for node, payload in payloads), timeout=timeout)


def _summed(request: SumRequest, exchange: NodeExchange, directory: Mapping[int, bytes] | None) -> NodeSum:
    started, asked = monotonic(), len(exchange.nodes)
    log.info("masked sum of %s: asking %d nodes", request.message_type, asked)
    try:
        outcome = masked_sum(
            exchange.terms,
            exchange,
            source=SystemSource(),
            directory=directory,
            on_ignored=exchange.ignored,
        )
    except MaskingFailed as failure:
        raise _failed(failure, exchange) from None
    included = exchange.nodes_of(outcome.included)
    left_out = _left_out(exchange, outcome.left_out, included)
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


def _failed(failure: MaskingFailed, exchange: NodeExchange) -> MaskingFailed:
    """The failure in terms of nodes: also those that never answered, and why."""
    problem = "mask secrets can't be rebuilt: the received shares are corrupt; nothing was unmasked"
    if isinstance(failure, TooFewSurvivors):
        problem = (
            f"the masked sum stopped after {failure.stage}: {failure.alive} {failure.of} are left where "
            f"{failure.needed} are needed, of {len(exchange.nodes)} nodes that were asked; nothing was unmasked. A "
            "larger dropout_share lets it go on with fewer"
        )
    told = MaskingFailed(problem, left_out=_left_out(exchange, failure.left_out))
    told.complaints = exchange.complaints(failure.complaints)
    return told


def _left_out(
    exchange: NodeExchange, by_session: Mapping[str, Iterable[int]], included: Sequence[int] = ()
) -> dict[str, tuple[int, ...]]:
    """The nodes that are not in the sum, by reason. The session's own reasons come first: they say more."""
    reasons = {node: reason for reason, nodes in by_reason(exchange.tally.dropped).items() for node in nodes}
    for reason, participants in by_session.items():
        reasons.update(dict.fromkeys(exchange.nodes_of(participants), reason))
    gone = sorted(reasons.keys() - set(included))
    return {
        reason: tuple(node for node in gone if reasons[node] == reason)
        for reason in sorted({reasons[node] for node in gone})
    }


def _arrays(record: ArrayRecord) -> dict[str, AnyArray]:
    return {name: array.numpy() for name, array in record.items()}


def _records(arrays: Mapping[str, Mapping[str, AnyArray]]) -> RecordDict:
    return RecordDict(
        {
            record: ArrayRecord({name: Array(np.asarray(array)) for name, array in named.items()})
            for record, named in arrays.items()
        }
    )
