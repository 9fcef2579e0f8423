"""What a network or a bad node does to a message."""

from __future__ import annotations

from random import Random
from typing import Any

from flwr.app import ConfigRecord, Message
from fuzz_mutations import mutated
from local_grid import data_of, with_data, with_field

from tests.support.api import MASKING, RECORD

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


def corrupted_bytes(reply: Message, seed: int) -> Message:
    """The reply with some of its bytes changed, added or removed; one without bytes gets some."""
    return with_data(reply, mutated([data_of(reply) or b"none"], Random(seed)))


def with_bad_field(reply: Message, seed: int) -> Message:
    """The reply with a header that no server takes."""
    name = Random(seed).choice(list(REFUSED_FIELDS))
    return with_field(reply, **{name: REFUSED_FIELDS[name]})


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
