"""The question of a masked sum: one text for one question, and whatever changes it changes the session."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from tests.support.api import (
    DecodeError,
    Layout,
    MaskingStage,
    Part,
    SumRequest,
    content_digest,
    read_sum_request,
)

LAYOUT = Layout((Part("model", "0", "float", (2, 3)), Part("model", "1", "int", ())), 8.0, 20, 1000)
REQUEST = SumRequest(
    name="aa",
    message_type="train",
    content="00",
    layout=LAYOUT,
    weighted_by="num-examples",
    participants=20,
    corrupt_share=0.05,
    dropout_share=0.2,
    signed=False,
)
OTHERS: dict[str, dict[str, Any]] = {
    "name": {"name": "ab"},
    "message type": {"message_type": "evaluate"},
    "content": {"content": "01"},
    "weight": {"weighted_by": "loss"},
    "participants": {"participants": 21},
    "corrupt share": {"corrupt_share": 0.1},
    "drop-out share": {"dropout_share": 0.1},
    "signed": {"signed": True},
    "bound": {"layout": replace(LAYOUT, bound=4.0)},
    "bits": {"layout": replace(LAYOUT, bits=19)},
    "largest weight": {"layout": replace(LAYOUT, max_weight=999)},
    "order": {"layout": replace(LAYOUT, parts=LAYOUT.parts[::-1])},
    "shape": {"layout": replace(LAYOUT, parts=(Part("model", "0", "float", (3, 2)), LAYOUT.parts[1]))},
}


def test_it_reads_what_it_wrote() -> None:
    fields = REQUEST.to_fields(MaskingStage.MASKING, b"bytes")
    assert read_sum_request(fields) == (REQUEST, MaskingStage.MASKING)
    assert fields["message"] == b"bytes"


@pytest.mark.parametrize("name", OTHERS)
def test_another_question_is_another_session(name: str) -> None:
    other = replace(REQUEST, **OTHERS[name])
    assert other.terms.session != REQUEST.terms.session


def test_terms_follow_from_the_question() -> None:
    terms = REQUEST.terms
    assert (terms.length, terms.width, terms.minimum_survivors, terms.participants) == (8, 64, 16, 20)
    plain = replace(REQUEST, weighted_by="", layout=replace(LAYOUT, max_weight=None, bits=16))
    assert (plain.terms.length, plain.terms.width) == (7, 32)


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_never_fewer_than_three(nodes: int) -> None:
    assert replace(REQUEST, participants=nodes, dropout_share=0.4).minimum_survivors == 3


def document(**changes: Any) -> str:
    read = json.loads(REQUEST.to_text()) | {name.replace("_", "-"): value for name, value in changes.items()}
    return json.dumps({name: value for name, value in read.items() if value != "gone"}, sort_keys=True)


@pytest.mark.parametrize(
    "asks",
    [
        document(bound="8"),
        document(bound=True),
        document(bound=-1.0),
        document(bound=10**400),
        document(bits=20.0),
        document(bits=99),
        document(max_weight=1.5),
        document(max_weight=None),
        document(participants=2),
        document(participants=2**40),
        document(signed=0),
        document(corrupt_share=0),
        document(name=""),
        document(name="x" * 65),
        document(name="gone"),
        document(parts=[]),
        document(parts=[["model", "0", "float", [2, 3]]] * 2),
        document(parts=[["model", "0", "text", [2, 3]]]),
        document(parts=[["model", "0", "float", [-1]]]),
        document(parts=[["model", "0", "float", [0]]]),
        document(parts=[["model", "0", "float", [2**20, 2**20]]]),
        document(parts=[["model", "0", "float"]]),
        document(more=1),
        REQUEST.to_text() + " ",
        REQUEST.to_text().replace("8.0", "8.00"),
        REQUEST.to_text().replace("8.0", "NaN"),
        "[]",
        "",
    ],
)
def test_what_is_no_question_is_refused(asks: str) -> None:
    with pytest.raises(DecodeError):
        read_sum_request(REQUEST.to_fields(MaskingStage.ADVERTISING, None) | {"asks": asks})


CONTENT = {
    "model": ArrayRecord({"w": Array(np.array([1.0, 2.0])), "b": Array(np.array([3.0]))}),
    "config": ConfigRecord({"rate": 0.1, "on": True, "key": b"k", "list": [1, 2]}),
    "metrics": MetricRecord({"n": 1}),
}
CHANGED = {
    "value": {"model": ArrayRecord({"w": Array(np.array([1.0, 2.5])), "b": Array(np.array([3.0]))})},
    "order of arrays": {
        "model": ArrayRecord({"b": Array(np.array([3.0])), "w": Array(np.array([1.0, 2.0]))})
    },
    "name": {"model": ArrayRecord({"w": Array(np.array([1.0, 2.0])), "c": Array(np.array([3.0]))})},
    "config": {"config": ConfigRecord({"rate": 0.2, "on": True, "key": b"k", "list": [1, 2]})},
    "type": {"config": ConfigRecord({"rate": 0.1, "on": 1, "key": b"k", "list": [1, 2]})},
    "list": {"config": ConfigRecord({"rate": 0.1, "on": True, "key": b"k", "list": [2, 1]})},
    "kind of record": {"metrics": ConfigRecord({"n": 1})},
    "one more": {"extra": ConfigRecord({})},
}


@pytest.mark.parametrize("name", CHANGED)
def test_the_digest_notices_any_change_of_the_content(name: str) -> None:
    changed = RecordDict(CONTENT | CHANGED[name])
    assert content_digest(changed) != content_digest(RecordDict(CONTENT))


def test_the_digest_does_not_mind_the_order_of_a_configuration() -> None:
    turned = ConfigRecord({"list": [1, 2], "key": b"k", "on": True, "rate": 0.1})
    assert content_digest(RecordDict(CONTENT | {"config": turned})) == content_digest(RecordDict(CONTENT))
