from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import Plan
from tests.asking import first_request, release_at, select_request
from tests.support.api import MOST_KEYS, DecodeError, Envelope, Salt, Settled, items_digest

PLAN = Plan(users=100, items=3)
DEBIASED = Plan(users=100, items=3, debias="poisson", mechanism="laplace")
MASKED_OPEN = Plan(users=100, domain="open", masking="secagg", participants=5, max_threshold=9)
FINDING = Plan(users=100, domain="open", mechanism="gaussian")
SHARE = FINDING.discovery.shares[0]
FOUND = Settled(keys=("a", 5, "é"), share=SHARE)
NOISY_FINDING = Plan(users=100, domain="open", masking="secagg", participants=5, noise_from="devices")
NOISY = Plan(users=100, items=3, masking="secagg", participants=5, noise_from="devices")


def table(salt: bytes) -> Envelope:
    return Envelope("r", replace(first_request(MASKED_OPEN), given=Salt(salt)))


LOW = PLAN.at_steps(0)
BOUNDS = np.array([LOW.steps, LOW.steps + 1, LOW.steps + 2])
ENVELOPES = {
    "select": Envelope("r", select_request(PLAN)),
    "another run": Envelope("s", select_request(PLAN)),
    "another plan": Envelope("r", select_request(DEBIASED)),
    "open, with items": Envelope(
        "r", select_request(Plan(users=9, domain="open", release="truncated-laplace")), items_digest=b"x"
    ),
    "release": Envelope("r", release_at(PLAN, LOW)),
    "another threshold": Envelope("r", release_at(PLAN, PLAN.at_steps(LOW.steps + 1))),
    "items": Envelope("r", release_at(DEBIASED, LOW, BOUNDS)),
    "other items": Envelope("r", release_at(DEBIASED, LOW, BOUNDS + 1)),
    "noisy": Envelope("r", select_request(NOISY)),
    "discovery": Envelope("r", first_request(FINDING)),
    "select, found": Envelope("r", select_request(FINDING, FOUND)),
    "select, found others": Envelope("r", select_request(FINDING, Settled(keys=("a", 5), share=SHARE))),
    "release, found": Envelope("r", release_at(FINDING, FINDING.at_steps(0), settled=FOUND)),
    "noisy, found": Envelope(
        "r",
        select_request(NOISY_FINDING, Settled(keys=("a",), share=NOISY_FINDING.discovery.shares[0])),
    ),
    "table": table(bytes(32)),
    "another salt": table(bytes(31) + b"1"),
}


def test_different_requests_have_different_fingerprints() -> None:
    assert len({envelope.fingerprint for envelope in ENVELOPES.values()}) == len(ENVELOPES)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("release", {"version": 1}),
        ("release", {"run": ""}),
        ("release", {"run": "x" * 65}),
        ("release", {"run": 7}),
        ("release", {"round": "third"}),
        ("release", {"round": "select"}),
        ("release", {"asks": "everything"}),
        ("release", {"asks": "tail"}),
        ("release", {"plan": "{}"}),
        ("release", {"plan": "not JSON"}),
        ("release", {"plan": "[" * 100_000}),
        ("release", {"plan": "null"}),
        ("release", {"plan-digest": b"\0" * 32}),
        ("release", {"items-digest": "text"}),
        ("release", {"threshold-steps": 0}),
        ("release", {"item-thresholds": BOUNDS.tolist()}),
        ("release", {"table-salt": bytes(32)}),
        ("select", {"threshold-steps": LOW.steps}),
        ("select", {"column": "counts"}),
        ("noisy", {"column": "median"}),
        ("noisy", {"asks": "tail"}),
        ("table", {"asks": "kept-items"}),
        ("select", {"keys": '["a"]', "discovery-share": repr(SHARE)}),
        ("select, found", {"discovery-share": "0.5"}),
        ("select, found", {"discovery-share": SHARE}),
        ("table", {"keys": '["a"]', "discovery-share": repr(SHARE)}),
        ("discovery", {"keys": '["a"]', "discovery-share": repr(SHARE)}),
        ("discovery", {"asks": "key-weights-table", "table-salt": bytes(32)}),
        *(
            ("select, found", {"keys": keys})
            for keys in (
                "",
                "null",
                '"a"',
                "{}",
                "[]",
                "[" * 100_000,
                "[null]",
                "[true]",
                "[1.0]",
                '[["a"]]',
                '["a", "a"]',
                '["5", 5]',
                f'["{"x" * 1025}"]',
                f"[{'9' * 5000}]",
                "[NaN]",
                b'["a"]',
                ["a"],
                json.dumps(list(range(MOST_KEYS + 1))),
            )
        ),
    ],
)
def test_wrong_fields_are_refused(name: str, change: dict[str, Any]) -> None:
    """Also those that the request's measurement does not take, and measurements without the noise of the plan."""
    with pytest.raises(DecodeError):
        Envelope.from_fields(ENVELOPES[name].to_fields() | change)


def test_a_missing_field_is_refused() -> None:
    for name in ENVELOPES["table"].to_fields():
        fields = ENVELOPES["table"].to_fields()
        del fields[name]
        with pytest.raises(DecodeError):
            Envelope.from_fields(fields)


@pytest.mark.parametrize("name", ["select, found", "release, found", "noisy, found"])
def test_no_round_after_a_discovery_is_asked_without_the_list_of_what_was_found(name: str) -> None:
    """Not even where devices add the noise."""
    fields = ENVELOPES[name].to_fields()
    assert Envelope.from_fields(fields).request.settled == ENVELOPES[name].request.settled
    del fields["keys"], fields["discovery-share"]
    with pytest.raises(DecodeError):
        Envelope.from_fields(fields)


def test_the_digest_of_items_knows_order_and_borders() -> None:
    lists = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""], ["a"]]
    assert len({items_digest(labels) for labels in lists}) == len(lists)
    assert items_digest(None) == b""
    assert items_digest(["1"]) == items_digest([1])
