"""Keys as bytes: every label comes back as it was written, and bad bytes are refused as such."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan, SeededSource
from tests.asking import release_at, select_request
from tests.support.api import (
    MAX_LABEL_BYTES,
    DecodeError,
    InvalidPopulation,
    Keyed,
    UnexpectedMessage,
    answer,
    decode,
    decode_keyed,
    encode,
    encode_keyed,
    label_bytes,
)
from tests.support.refusals import refused

BINS, COLUMNS = 3, 2
STRANGE = [
    "", " ", "\0", "a\0b", "naïve", "nai\u0308ve", "été", "語", "👩‍👩‍👧", "\ud800", "\udfff\ud800", "\U0010ffff",
    "7", "07", "-0", 7, -7, 0, 2**31, 2**70, -(10**1000), "a,b\r\n\"c\"", "x" * 1024, "é" * 512, "🙂" * 256,
]  # fmt: skip


def keyed_of(rows):
    """Rows as (item, bin, values), in rising order."""
    keys = np.array([item * BINS + place for item, place, _ in rows], dtype=np.int64)
    return Keyed(keys=keys, values=np.array([v for *_, v in rows], dtype=np.int64).reshape(-1, COLUMNS))


def by_label(keyed, labels):
    return {
        (type(labels[key // BINS]), labels[key // BINS], key % BINS): row
        for key, row in zip(keyed.keys.tolist(), keyed.values.tolist(), strict=True)
    }


def back(keyed, labels):
    return decode_keyed(encode_keyed(keyed, BINS, labels), COLUMNS, BINS)


def test_strange_labels_come_back_as_written():
    keyed = keyed_of([(item, item % BINS, [item, 2**40]) for item in range(len(STRANGE))])
    got, labels = back(keyed, STRANGE)
    assert labels == STRANGE
    assert [type(label) for label in labels] == [type(label) for label in STRANGE]
    assert (got.keys == keyed.keys).all()
    assert (got.values == keyed.values).all()


label = st.one_of(
    st.text(max_size=20), st.text(st.characters(categories=["Cs", "So", "Mn"]), max_size=5), st.integers()
)


@given(
    labels=st.lists(label, min_size=1, max_size=8, unique_by=lambda one: (type(one), one)),
    data=st.data(),
)
@settings(max_examples=100)
def test_round_trip(labels, data):
    places = data.draw(st.sets(st.tuples(st.integers(0, len(labels) - 1), st.integers(0, BINS - 1))))
    values = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=COLUMNS, max_size=COLUMNS)
    keyed = keyed_of([(item, place, data.draw(values)) for item, place in sorted(places)])
    got, used = back(keyed, labels)
    assert by_label(got, used) == by_label(keyed, labels)
    # A label travels once, and only if somebody has it.
    assert len(used) == len({item for item, _ in places})


def test_items_without_labels_travel_as_their_numbers():
    got, labels = back(keyed_of([(4, 0, [1, 2]), (4, 2, [3, 4]), (900, 1, [5, 6])]), None)
    assert labels == [4, 900]
    assert got.keys.tolist() == [0, 2, BINS + 1]


def test_nothing_at_all():
    got, labels = back(keyed_of([]), None)
    assert labels == []
    assert got.values.shape == (0, COLUMNS)


@pytest.mark.parametrize("long", ["secret" * 200, "é" * 513, "🙂" * 257, 10**1024])
def test_a_label_that_is_too_long_is_left_out_with_its_rows_and_never_shown(long):
    assert len(str(long).encode()) > MAX_LABEL_BYTES
    keyed = keyed_of([(0, 0, [1, 1]), (1, 0, [2, 3]), (1, 2, [4, 5]), (2, 1, [6, 7])])
    got, labels = back(keyed, ["a", long, "b"])
    assert by_label(got, labels) == {(str, "a", 0): [1, 1], (str, "b", 1): [6, 7]}
    with pytest.raises(InvalidPopulation) as caught:
        label_bytes(long)
    assert str(long)[:6] not in str(caught.value)


def raw(labels=((0, b"ab"), (1, b"7")), rows=((0, 1, (5, 6)), (1, 0, (7, 8))), *, count=None, row_count=None):
    """The bytes by hand: labels as (kind, text), rows as (label, bin, values)."""
    return b"".join(
        [
            struct.pack(
                "<II", len(labels) if count is None else count, len(rows) if row_count is None else row_count
            ),
            bytes(kind for kind, _ in labels),
            *(struct.pack("<H", len(text)) for _, text in labels),
            *(text for _, text in labels),
            *(struct.pack("<I", item) for item, _, _ in rows),
            *(struct.pack("<H", place) for _, place, _ in rows),
            *(struct.pack(f"<{len(v)}q", *v) for *_, v in rows),
        ]
    )


def test_known_bytes():
    """The wire format is pinned: a change of it needs a new version."""
    keyed = keyed_of([(0, 1, [5, 6]), (1, 0, [7, 8])])
    assert encode_keyed(keyed, BINS, ["ab", 7]) == raw()
    got, labels = decode_keyed(raw(), COLUMNS, BINS)
    assert labels == ["ab", 7]
    assert got.keys.tolist() == [1, BINS]
    assert got.values.tolist() == [[5, 6], [7, 8]]


GOOD_ROW = ((0, 0, (1, 1)),)
BAD = {
    "empty": b"",
    "half a count": b"\0\0\0",
    "one byte short": raw()[:-1],
    "one byte left over": raw() + b"\0",
    "more labels than there are": raw(count=3),
    "fewer labels than there are": raw(count=1),
    "more rows than there are": raw(row_count=3),
    "fewer rows than there are": raw(row_count=1),
    "four thousand million labels": raw(count=2**32 - 1),
    "four thousand million rows": raw(row_count=2**32 - 1),
    "row of no label": raw(rows=((0, 1, (5, 6)), (2, 0, (7, 8)))),
    "row of no label, far out": raw(rows=((0, 1, (5, 6)), (2**32 - 1, 0, (7, 8)))),
    "row of no bin": raw(rows=((0, BINS, (5, 6)), (1, 1, (7, 8)))),
    "items that fall": raw(rows=((1, 0, (5, 6)), (0, 1, (7, 8)))),
    "bins that fall": raw(rows=((0, 2, (5, 6)), (0, 1, (7, 8)))),
    "a row twice": raw(rows=((0, 1, (5, 6)), (0, 1, (5, 6)))),
    "a text twice": raw(labels=((0, b"ab"), (0, b"ab"))),
    "an integer twice": raw(labels=((1, b"7"), (1, b"7"))),
    "unknown kind": raw(labels=((2, b"ab"), (1, b"7"))),
    "text that is not UTF-8": raw(labels=((0, b"\xff"),), rows=GOOD_ROW),
    "half a character": raw(labels=((0, "é".encode()[:1]),), rows=GOOD_ROW),
    "an integer that is a word": raw(labels=((1, b"seven"),), rows=GOOD_ROW),
    "an integer that is empty": raw(labels=((1, b""),), rows=GOOD_ROW),
    "an integer with a leading zero": raw(labels=((1, b"07"),), rows=GOOD_ROW),
    "an integer with a plus": raw(labels=((1, b"+7"),), rows=GOOD_ROW),
    "an integer with a space": raw(labels=((1, b" 7"),), rows=GOOD_ROW),
    "an integer with an underscore": raw(labels=((1, b"1_000"),), rows=GOOD_ROW),
    "minus zero": raw(labels=((1, b"-0"),), rows=GOOD_ROW),
    "digits of another script": raw(labels=((1, "٧".encode()),), rows=GOOD_ROW),
    "a label of 1,025 bytes": raw(labels=((0, b"x" * 1025),), rows=GOOD_ROW),
    "an integer of 5,000 digits": raw(labels=((1, b"1" * 5000),), rows=GOOD_ROW),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_bad_bytes_are_refused(data):
    with pytest.raises(DecodeError):
        decode_keyed(data, COLUMNS, BINS)


def test_the_number_7_and_the_text_7_are_two_labels():
    _, labels = decode_keyed(raw(labels=((0, b"7"), (1, b"7"))), COLUMNS, BINS)
    assert labels == ["7", 7]


# --- Whole contributions over an open domain.

PLAN = Plan(
    users=1000, domain="open", release="truncated-laplace", max_threshold=50, candidates=6, epsilon=1.0
)
SELECT, RELEASE = select_request(PLAN), release_at(PLAN, PLAN.at_steps(20))
LABELS = ["été", "\ud800", 12, "nobody has this"]
requests = pytest.mark.parametrize("request_", [SELECT, RELEASE], ids=["select", "release"])


def sent(make_histograms, request, rows=((3, 1, 9, 0), (0, 0, 0, 0), (400, 2, 0, 0), (0, 0, 30, 0)), seed=1):
    return answer(request, make_histograms(rows), source=SeededSource(seed), labels=LABELS)


def test_nobody_learns_of_an_item_that_was_clipped_away(make_histograms):
    """At C = 1 a user of many items sends one of them, and the bytes name no other."""
    request = release_at(PLAN, PLAN.at_steps(1))
    for seed in range(5):
        contribution = sent(make_histograms, request, [[1, 1, 1, 1]], seed)
        _, labels = decode(encode(contribution, request, LABELS), request)
        assert len(labels) == 1


@requests
@pytest.mark.parametrize("value", [-1, "too much", 2**63 - 1, -(2**63)])
def test_values_that_these_users_cannot_have_are_refused(make_histograms, request_, value):
    good = sent(make_histograms, request_)
    value = request_.measurement.shape.largest * good.users + 1 if value == "too much" else value
    values = good.keyed.values.copy()
    values[-1, -1] = value
    with refused(DecodeError, "out-of-bounds"):
        decode(encode(replace(good, keyed=Keyed(good.keyed.keys, values)), request_, LABELS), request_)


def test_an_answer_of_the_wrong_form_is_not_encoded(make_histograms):
    select, release = sent(make_histograms, SELECT), sent(make_histograms, RELEASE)
    for contribution, request in (
        (select, RELEASE),
        (release, SELECT),
        (replace(select, keyed=None), SELECT),
    ):
        with pytest.raises(UnexpectedMessage):
            encode(contribution, request, LABELS)


@requests
def test_every_cut_and_every_extra_byte_is_refused(make_histograms, request_):
    data = encode(sent(make_histograms, request_), request_, LABELS)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:length], request_)
    with refused(DecodeError, "bytes-left-over"):
        decode(data + b"\0", request_)
