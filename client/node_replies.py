"""A node's replies: an answer, or the reason why there is none, with a line in the node's own log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedhist.client.node_log import line_of, outcome_of
from fedhist.protocol.wire.envelope import ANSWER, ENVELOPE_VERSION, RECORD, Envelope, Field, Status

log = logging.getLogger("fedhist")


def answered(message: Message, envelope: Envelope, data: bytes) -> Message:
    """The reply with the answer's bytes."""
    reply = _reply(message, envelope.reply_fields(Status.ANSWER))
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    reply.content.array_records[ANSWER] = ArrayRecord({"answer": array})
    return reply


def not_answered(
    error: Exception,
    message: Message,
    context: Context,
    envelope: Envelope | None,
    *,
    about: Sequence[str],
) -> Message:
    """The reply with the reason, which stands in the node's log too.

    Args:
        error: why there is no answer.
        message: what is replied to.
        context: the node's.
        envelope: what was asked; None if it could not be read.
        about: the same in words, for the log.
    """
    words = (f"Flower run {context.run_id}", *about)
    log.error("%s", line_of(error, about=words, config=context.node_config))
    status, reason = outcome_of(error)
    if envelope is None:
        return _reply(message, {"version": ENVELOPE_VERSION, "status": status.value, "reason": reason.value})
    return _reply(message, envelope.reply_fields(status, reason.value))


def _reply(message: Message, fields: dict[str, Field]) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord({**fields})}), reply_to=message)
