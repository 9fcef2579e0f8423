"""A node's replies: an answer, or the reason why there is none, with a line in the node's own log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedhist.client.node_log import line_of, outcome_of
from fedhist.protocol.wire.envelope import ANSWER, RECORD, Field, Status

log = logging.getLogger("fedhist")


class Question(Protocol):
    """What was asked: an `Envelope` or a `SumRequest`."""

    def reply_fields(self, status: Status, reason: str = "") -> dict[str, Field]:
        """The header of a reply."""


def answered(message: Message, question: Question, data: bytes) -> Message:
    """The reply with the answer's bytes."""
    reply = _reply(message, question.reply_fields(Status.ANSWER))
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    reply.content.array_records[ANSWER] = ArrayRecord({"answer": array})
    return reply


def not_answered(
    error: Exception,
    message: Message,
    context: Context,
    question: Question | None,
    *,
    about: Sequence[str],
    version: int,
) -> Message:
    """The reply with the reason, which stands in the node's log too.

    Args:
        error: why there is no answer.
        message: what is replied to.
        context: the node's.
        question: what was asked; None if it could not be read.
        about: the same in words, for the log.
        version: of the replies to such questions.
    """
    log_refusal(error, context, about)
    status, reason = outcome_of(error)
    if question is None:
        return _reply(message, {"version": version, "status": status.value, "reason": reason.value})
    return _reply(message, question.reply_fields(status, reason.value))


def log_refusal(error: Exception, context: Context, about: Sequence[str]) -> None:
    """Write the line to the node's log."""
    words = (f"Flower run {context.run_id}", *about)
    log.error("%s", line_of(error, about=words, config=context.node_config))


def _reply(message: Message, fields: dict[str, Field]) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord({**fields})}), reply_to=message)
