from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan
from tests.asking import release_at
from tests.support.api import (
    Contribution,
    DecodeError,
    Keyed,
    Request,
    Round,
    UnexpectedMessage,
    decode,
    encode,
)

PLAN = Plan(users=1000, items=5, selector="fixed", threshold=40.0)
REQUEST = release_at(plan=PLAN, threshold=PLAN.at_steps(40 * 1024))
HEADER_BYTES = 45


def contribution(values, users=1):
    return Contribution(Round.RELEASE, PLAN.digest, users, np.array(values, dtype=np.int64))


@given(values=st.lists(st.integers(0, 40 * 1024), min_size=5, max_size=5), users=st.sampled_from([1, 10**6]))
@settings(max_examples=100)
def test_round_trip(values, users):
    sent = contribution(values, users)
    got, labels = decode(encode(sent, REQUEST), REQUEST)
    assert labels is None
    assert (got.values == sent.values).all()
    assert (got.users, got.round, got.plan_digest) == (users, Round.RELEASE, PLAN.digest)


def test_known_bytes():
    """The wire format is pinned: a change of it needs a new version."""
    data = encode(contribution([0, 1, 7, 40960, 2]), REQUEST)
    assert len(data) == HEADER_BYTES + 5 * 4
    expected = struct.pack("<2sBB32sIBI5i", b"FH", 1, 2, PLAN.digest, 1, 4, 5, 0, 1, 7, 40960, 2)
    assert data == expected


def test_the_plan_digest_is_pinned():
    """Two versions of fedhist that agree on a plan must agree on its name."""
    canonical = (
        '{"candidates":128,"corrupt_share":0.05,"debias":null,"delta":1e-06,"delta_select":1e-06,"domain":"closed","dropout_share":0.1,'
        '"epsilon":1.0,"epsilon_select":0.1,"items":5,"known_items":null,"masking":"none","max_item_bytes":32,"max_items":16384,"max_threshold":1500.0,"mechanism":"gaussian",'
        '"min_threshold":1.0,"minimum_cohort":1,"neighbours":"zero-out","noise_from":"server","participants":null,"release":null,"selector":"fixed","sparsity":5,'
        '"threshold":40.0,"users":1000,"version":2,"window":null}'
    )
    assert hashlib.sha256(b"fedhist/plan\0" + canonical.encode()).digest() == PLAN.digest


def test_many_users_take_wider_values():
    for users, width in ((1, 4), (10**6, 8)):
        assert len(encode(contribution([1] * 5, users), REQUEST)) == HEADER_BYTES + 5 * width


GOOD = encode(contribution([1, 2, 3, 4, 5]), REQUEST)
BAD = {
    "empty": b"",
    "only a header": GOOD[:HEADER_BYTES],
    "one byte short": GOOD[:-1],
    "one byte long": GOOD + b"\0",
    "wrong magic": b"XX" + GOOD[2:],
    "newer version": GOOD[:2] + b"\x02" + GOOD[3:],
    "other round": GOOD[:3] + b"\x01" + GOOD[4:],
    "no such round": GOOD[:3] + b"\x09" + GOOD[4:],
    "other plan": GOOD[:4] + bytes(32) + GOOD[36:],
    "no users": GOOD[:36] + bytes(4) + GOOD[40:],
    "wrong width": GOOD[:40] + b"\x08" + GOOD[41:],
    "negative value": GOOD[:45] + struct.pack("<i", -1) + GOOD[49:],
    "value above the bound": GOOD[:45] + struct.pack("<i", 40 * 1024 + 1) + GOOD[49:],
    "wrong length": GOOD[:41] + struct.pack("<I", 4) + GOOD[45:],
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_bad_bytes_are_refused(data):
    with pytest.raises(DecodeError):
        decode(data, REQUEST)


def test_an_answer_to_another_request_is_not_encoded():
    with pytest.raises(UnexpectedMessage):
        encode(contribution([1] * 5), Request(PLAN, "tail"))
    with pytest.raises(UnexpectedMessage):
        encode(contribution([1] * 4), REQUEST)


def test_no_number_of_a_user_is_printed():
    numbers = np.array([40960])
    assert "40960" not in repr([contribution([40960] * 5), Keyed(keys=numbers, values=numbers[:, None])])
