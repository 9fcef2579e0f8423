"""What a network or a bad node does to a message."""

from __future__ import annotations

from random import Random
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from fuzz_mutations import mutated

from fedhist.protocol.wire.envelope import MASKING, RECORD

REFUSED_FIELDS = {
    "version": 9,
    "run": "another",
    "round": "other",
    "plan-digest": bytes(32),
    "status": "done",
}
"""Values of a reply's fields with which no server takes it."""


def status(reply: Message) -> object:
    """What the reply says it is."""
    return reply.content.config_records[RECORD].get("status") if reply.has_content() else None


def reply_bytes(reply: Message) -> bytes | None:
    """The bytes of an answer."""
    record = reply.content.array_records.get("fedhist-answer")
    return None if record is None else record["answer"].data


def corrupted_bytes(reply: Message, seed: int) -> Message:
    """The reply with some of its bytes changed, added or removed; one without bytes gets some."""
    data = mutated([reply_bytes(reply) or b"none"], Random(seed))
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    reply.content.array_records["fedhist-answer"] = ArrayRecord({"answer": array})
    return reply


def with_bad_field(reply: Message, seed: int) -> Message:
    """The reply with a header that no server takes."""
    name = Random(seed).choice(list(REFUSED_FIELDS))
    fields = dict(reply.content.config_records[RECORD]) | {name: REFUSED_FIELDS[name]}
    reply.content.config_records[RECORD] = ConfigRecord(fields)
    return reply


def corrupted_request(message: Message, seed: int) -> Message:
    """The request with one field changed."""
    random = Random(seed)
    fields: dict[str, Any] = dict(message.content.config_records[RECORD])
    name = random.choice(sorted(fields))
    value = fields[name]
    if isinstance(value, bytes):
        fields[name] = mutated([value], random)
    elif isinstance(value, int):
        fields[name] = value + random.choice((-1, 1, 2**40))
    elif isinstance(value, str):
        fields[name] = mutated([value.encode()], random).decode("utf-8", "replace")
    else:
        fields[name] = value[:-1]
    if name != MASKING and random.random() < 0.2:
        del fields[name]
    message.content.config_records[RECORD] = ConfigRecord(fields)
    return message
