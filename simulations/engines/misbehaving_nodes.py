"""Virtual nodes of Flower that fall silent, fail or lie: what goes round a node's handlers in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.masking.encoding import read_residues, residue_bytes, to_residues
from fedhist.protocol.masking.masked_vector import terms_of
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.wire import masked_body
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import ANSWER, RECORD, Envelope
from fedhist.simulations.engines.fault_cast import Cast
from fedhist.simulations.engines.faulty_answers import spoiled, taken_away
from fedhist.simulations.engines.lost_nodes import silent_at
from fedhist.simulations.faults import UNHEARD, FaultKind

if TYPE_CHECKING:
    from flwr.app import Context, Message


def misbehave(
    cast: Cast, message: Message, context: Context, answer: Callable[[Message, Context], Message]
) -> Message:
    """Goes before a node's handlers: one that gives no answer fails instead, others answer and spoil it."""
    node, round_ = number_of(context), Round(message.metadata.group_id)
    stage = message.metadata.message_type.removeprefix("query.")
    if stage != round_.value:
        if node in silent_at(stage, cast.silent[round_]):
            raise _gone()
        reply = answer(message, context)
        lies = cast.faulty.get(node) is FaultKind.OUT_OF_BOUNDS and stage == MaskingStage.MASKING
        return _changed(reply, lambda data: _masked_lie(data, _asked(message), cast, node)) if lies else reply
    kind = cast.missing(round_, masked=False).get(node)
    if kind in UNHEARD:
        raise _gone()
    reply = answer(message, context)
    return (
        reply if kind is None else _changed(reply, lambda data: spoiled(kind, data, _asked(message).request))
    )


def number_of(context: Context) -> int:
    """The node's number in the simulation."""
    return int(context.node_config["partition-id"])


def _gone() -> RoundFailed:
    return RoundFailed("a drop-out of the simulation")


def _asked(message: Message) -> Envelope:
    return Envelope.from_fields(message.content.config_records[RECORD])


def _masked_lie(data: bytes, envelope: Envelope, cast: Cast, node: int) -> bytes:
    """A masked input with a lie on it: what is added to a masked value is added to the sum."""
    terms = terms_of(envelope)
    body = masked_body(data, terms)
    lie = np.full(terms.length, taken_away(envelope.request, cast.users_of([node])))
    lie[0] = 0
    changed = read_residues(body, terms.width) + to_residues(lie, terms.width)
    return data[: len(data) - len(body)] + bytes(residue_bytes(changed))


def _changed(reply: Message, change: Callable[[bytes], bytes]) -> Message:
    """The reply with other bytes; one that refuses has none."""
    from flwr.app import Array, ArrayRecord

    record = reply.content.array_records.get(ANSWER)
    if record is not None:
        data = change(record["answer"].data)
        array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
        reply.content.array_records[ANSWER] = ArrayRecord({"answer": array})
    return reply
