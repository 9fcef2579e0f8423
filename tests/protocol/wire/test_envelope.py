from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.grid import Threshold
from fedhist.protocol.plan import Plan
from fedhist.protocol.wire.envelope import Envelope, items_digest
from tests.asking import release_at, select_request

PLAN = Plan(users=100, items=3)
DEBIASED = Plan(users=100, items=3, debias="poisson", mechanism="laplace")
STEPS = PLAN.step_range[0] + 5


def envelopes() -> list[Envelope]:
    bounds = np.array([STEPS, STEPS + 1, STEPS + 2])
    return [
        Envelope(run="r", request=select_request(PLAN)),
        Envelope(run="r", request=select_request(Plan(users=9, domain="open")), items_digest=b"x"),
        Envelope(run="r", request=release_at(PLAN, Threshold(STEPS, PLAN.grid_bits))),
        Envelope(run="r", request=release_at(DEBIASED, Threshold(STEPS + 2, DEBIASED.grid_bits), bounds)),
    ]


@pytest.mark.parametrize("envelope", envelopes(), ids=["select", "open", "release", "items"])
def test_fields_hold_the_whole_request(envelope: Envelope) -> None:
    again = Envelope.from_fields(envelope.to_fields())
    assert again.to_fields() == envelope.to_fields()
    assert again.fingerprint == envelope.fingerprint
    assert again.request.plan == envelope.request.plan


def test_different_requests_have_different_fingerprints() -> None:
    assert len({envelope.fingerprint for envelope in envelopes()}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"run": ""},
        {"run": "x" * 65},
        {"run": 7},
        {"round": "third"},
        {"plan": "{}"},
        {"plan": "not JSON"},
        {"plan": "[" * 100_000},
        {"plan": "null"},
        {"plan-digest": b"\0" * 32},
        {"items-digest": "text"},
        {"threshold-steps": 0},
        {"threshold-steps": 2**40},
        {"threshold-steps": True},
        {"threshold-steps": 1.5},
    ],
    ids=str,
)
def test_wrong_fields_are_refused(change: dict[str, Any]) -> None:
    fields = envelopes()[2].to_fields() | change
    with pytest.raises(DecodeError):
        Envelope.from_fields(fields)


@pytest.mark.parametrize("bounds", [None, [], [STEPS] * 4, [0, STEPS, STEPS + 2], [STEPS] * 3, [1.0] * 3])
def test_wrong_thresholds_of_items_are_refused(bounds: Any) -> None:
    with pytest.raises(DecodeError):
        Envelope.from_fields(envelopes()[3].to_fields() | {"item-thresholds": bounds})


def test_a_missing_field_is_refused() -> None:
    for name in envelopes()[2].to_fields():
        fields = envelopes()[2].to_fields()
        del fields[name]
        with pytest.raises(DecodeError):
            Envelope.from_fields(fields)


def test_the_digest_of_items_knows_order_and_borders() -> None:
    lists = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""], ["a"]]
    assert len({items_digest(labels) for labels in lists}) == len(lists)
    assert items_digest(None) == b""
    assert items_digest(["1"]) == items_digest([1])


@pytest.mark.parametrize("bound", [2**63, -(2**63) - 1, 10**30])
def test_thresholds_of_items_beyond_64_bits_are_refused_as_any_other(bound: int) -> None:
    with pytest.raises(DecodeError):
        Envelope.from_fields(envelopes()[3].to_fields() | {"item-thresholds": [STEPS, STEPS, bound]})


def test_a_plan_that_is_nested_without_end_is_refused_as_any_other() -> None:
    with pytest.raises(DecodeError):
        Envelope.from_fields(envelopes()[0].to_fields() | {"plan": "[" * 100_000})


class TestSaltOfATable:
    """A request for a table carries the salt of its run, and no other request does."""

    OPEN = Plan(users=100, domain="open", masking="secagg", participants=5, max_threshold=9)

    def request(self, salt: bytes = bytes(32), plan: Plan = OPEN) -> ReleaseRequest:
        return release_at(plan, Threshold(3, 0), table_salt=salt)

    def test_it_is_part_of_what_is_asked(self) -> None:
        one, other = (Envelope(run="r", request=self.request(bytes([n]) * 32)) for n in (1, 2))
        assert one.fingerprint != other.fingerprint
        again = Envelope.from_fields(one.to_fields()).request
        assert isinstance(again, ReleaseRequest) and again.table_salt == bytes([1]) * 32

    @pytest.mark.parametrize("salt", [None, b"", bytes(31), bytes(33), "0" * 32, [0] * 32], ids=str)
    def test_one_of_another_length_or_kind_is_refused(self, salt: Any) -> None:
        fields = dict(Envelope(run="r", request=self.request()).to_fields())
        fields |= {} if salt is None else {"table-salt": salt}
        if salt is None:
            del fields["table-salt"]
        with pytest.raises(DecodeError, match=r"table-salt|table's salt"):
            Envelope.from_fields(fields)

    @pytest.mark.parametrize("request_", [select_request(OPEN), select_request(PLAN), envelopes()[2].request])
    def test_one_that_is_not_due_is_refused(self, request_: Any) -> None:
        fields = Envelope(run="r", request=request_).to_fields()
        assert "table-salt" not in fields
        with pytest.raises(DecodeError, match="asks for no table"):
            Envelope.from_fields(fields | {"table-salt": bytes(32)})

    def test_nor_can_such_a_request_be_made(self) -> None:
        for salt, plan in (
            (b"", self.OPEN),
            (bytes(16), self.OPEN),
            (bytes(32), Plan(users=9, domain="open")),
        ):
            with pytest.raises(InvalidInput, match="a table's salt"):
                self.request(salt, plan)
