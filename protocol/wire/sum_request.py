"""What a server asks when it wants arrays of an app's own messages summed under masks, and the answers' header.

    request   version · stage · asks (JSON, the whole question) · message, what a stage of the session adds
    reply     version · session · status · reason · the session's bytes apart

The question is the same in every message of a sum. Its digest names the masking session, so it is bound into every key,
box and mask: nodes that were asked different questions can't be in one sum. The question has the digest of the content
that the app's handler gets, so nodes in one sum were given the same content, too: no node can be shown a model of its
own.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.masking.encoding import width_for
from fedhist.protocol.masking.graph import parameters_for, share_of
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.summed_arrays import Layout, Part
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.measurements.given import take
from fedhist.protocol.wire.envelope import Field, Status

SUM_RECORD = "fedhist-sum"
"""The name of our record in an app's message. A message without it is the app's own."""

SUM_VERSION = 1
FEWEST_NODES = 3
"""With two, each knows the other's values once it sees the sum."""
HANDLER = "handler"
"""Why a node failed when its app's handler did, or returned something else than what was asked for."""
MAX_NAME = 64
_SESSION_TAG = b"fedhist/1/sum/session\x00"
_CONTENT_TAG = b"fedhist/1/sum/content\x00"
_SIZE = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class SumRequest:
    """The public question of one masked sum.

    Args:
        name: new for every sum.
        message_type: of the app's messages, such as "train".
        content: the digest of what the app's handler gets.
        layout: what is summed.
        weighted_by: the name of the metric that is a node's weight; empty without weights.
        participants: the number of nodes that are asked.
        corrupt_share, dropout_share, signed: as in `MaskingTerms`.
    """

    name: str
    message_type: str
    content: str
    layout: Layout
    weighted_by: str
    participants: int
    corrupt_share: float
    dropout_share: float
    signed: bool

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= MAX_NAME:
            raise InvalidInput(f"a sum's name of {len(self.name)} characters", allowed=f"1 to {MAX_NAME}")
        if (self.weighted_by != "") != (self.layout.max_weight is not None):
            raise InvalidInput(
                "weighted_by without max_weight, or max_weight without weighted_by",
                allowed="both, or neither",
                advice="max_weight is the largest weight that a node may have",
            )
        if self.participants < FEWEST_NODES:
            raise InvalidInput(
                f"a masked sum over {self.participants} nodes", allowed=f"{FEWEST_NODES} nodes or more"
            )
        # Made once, and refused if they can't be.
        _ = self.terms

    def check_graph(self) -> None:
        """InvalidInput if these nodes have no safe graph. For the server: a node checks the one that it gets."""
        try:
            for nodes in {self.participants, self.minimum_survivors}:
                parameters_for(nodes, self.terms)
        except InvalidInput as problem:
            raise InvalidInput(
                problem.problem,
                allowed=problem.allowed,
                advice="ask more nodes, or lower corrupt_share or dropout_share",
            ) from None

    @property
    def minimum_survivors(self) -> int:
        """A sum of fewer nodes is never unmasked."""
        return max(self.participants - share_of(self.participants, self.dropout_share), FEWEST_NODES)

    @cached_property
    def terms(self) -> MaskingTerms:
        """The terms of the one masking session that this question may have."""
        return MaskingTerms(
            session=hashlib.sha256(_SESSION_TAG + self.to_text().encode()).digest(),
            length=self.layout.length,
            width=width_for(self.layout.largest, self.participants),
            corrupt_share=self.corrupt_share,
            dropout_share=self.dropout_share,
            minimum_survivors=self.minimum_survivors,
            signed=self.signed,
            participants=self.participants,
        )

    def to_text(self) -> str:
        """The question as JSON: one text for one question."""
        document = {
            "name": self.name,
            "message-type": self.message_type,
            "content": self.content,
            "parts": [astuple(part) for part in self.layout.parts],
            "bound": self.layout.bound,
            "bits": self.layout.bits,
            "max-weight": self.layout.max_weight,
            "weighted-by": self.weighted_by,
            "participants": self.participants,
            "corrupt-share": self.corrupt_share,
            "dropout-share": self.dropout_share,
            "signed": self.signed,
        }
        return json.dumps(document, sort_keys=True, allow_nan=False)

    def to_fields(self, stage: MaskingStage, message: bytes | None) -> dict[str, Field]:
        """The question and the session's message as flat fields."""
        fields: dict[str, Field] = {"version": SUM_VERSION, "stage": stage.value, "asks": self.to_text()}
        return fields if message is None else fields | {"message": message}

    def reply_fields(self, status: Status, reason: str = "") -> dict[str, Field]:
        """The fields of a reply to this question."""
        return {"version": SUM_VERSION, "session": self.name, "status": status.value, "reason": reason}


def read_sum_request(fields: Mapping[str, object]) -> tuple[SumRequest, MaskingStage]:
    """The question in these fields and its stage; DecodeError if they are none."""
    if fields.get("version") != SUM_VERSION:
        raise DecodeError(f"a masked sum of another version; this side speaks version {SUM_VERSION}")
    text, stage = take(fields, "asks", str), take(fields, "stage", str)
    try:
        request = _read(json.loads(text))
        if request.to_text() != text:
            raise DecodeError("the question of a masked sum is not written as it should be")
        return request, MaskingStage(stage)
    except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise DecodeError("the question of a masked sum is not a valid one") from None


def _read(document: dict[str, Any]) -> SumRequest:
    numbers = {
        "bits": int,
        "participants": int,
        "corrupt-share": float,
        "dropout-share": float,
        "signed": bool,
    }
    texts = dict.fromkeys(("name", "message-type", "content", "weighted-by"), str)
    found = {name: take(document, name, kind) for name, kind in (numbers | texts).items()}
    bound, weight = document["bound"], document["max-weight"]
    if type(bound) not in (int, float) or (weight is not None and type(weight) is not int):
        raise DecodeError("the bound or the largest weight is not a number")
    return SumRequest(
        name=found["name"],
        message_type=found["message-type"],
        content=found["content"],
        layout=Layout(tuple(map(_read_part, document["parts"])), bound, found["bits"], weight),
        weighted_by=found["weighted-by"],
        participants=found["participants"],
        corrupt_share=found["corrupt-share"],
        dropout_share=found["dropout-share"],
        signed=found["signed"],
    )


def _read_part(entry: list[Any]) -> Part:
    record, name, kind, shape = entry
    if {type(record), type(name), type(kind)} != {str} or type(shape) is not list:
        raise DecodeError("a part is not a record, a name, a kind and a shape")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise DecodeError("a shape has sides that are no whole numbers")
    return Part(record, name, kind, tuple(shape))


def content_digest(content: Mapping[str, Mapping[str, Any]]) -> str:
    """The digest of a message's records: kinds, names, types, shapes and values, and the order of arrays and records.

    The fields of configurations and metrics count in the order of their names: their own is nobody's concern.
    """
    digest = hashlib.sha256(_CONTENT_TAG)

    def add(*pieces: str | bytes) -> None:
        for piece in pieces:
            data = piece.encode() if isinstance(piece, str) else piece
            digest.update(_SIZE.pack(len(data)))
            digest.update(data)

    for name, record in content.items():
        add("record", name, type(record).__name__, str(len(record)))
        holds_arrays = all(hasattr(value, "stype") for value in record.values())
        for key in record if holds_arrays else sorted(record):
            value = record[key]
            if holds_arrays:
                add(key, "array", str(value.dtype), repr(tuple(value.shape)), value.stype, value.data)
            elif isinstance(value, bytes):
                add(key, "bytes", value)
            else:
                add(key, type(value).__name__, repr(value))
    return digest.hexdigest()
