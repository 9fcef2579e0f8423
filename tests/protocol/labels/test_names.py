"""Names in pieces against plain lists: order by bytes, items that are written alike, places in a list."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.api import (
    Labels,
    by_bytes,
    byte_lengths,
    byte_order,
    distinct_names,
    in_bytes,
    in_pieces,
    item_bytes,
    names_at,
    rising_order,
)
from tests.support.api import name_bytes_module as name_bytes
from tests.support.api import renumbering_module as renumbering

# Names that begin alike for many bytes, that are the beginning of others, and that are written like numbers.
letters = st.text(alphabet=["a", "b", "\0", "\x7f", "é", "\ud800", "\udc00", "\U0001f600"], max_size=3)
beginnings = st.sampled_from(["", "x" * 15, "x" * 16, "x" * 17, "é" * 8, "x" * 40])
names = st.one_of(
    st.tuples(beginnings, letters).map("".join), st.integers(-12, 12), st.integers(-12, 12).map(str)
)
lists = st.lists(names, min_size=1, max_size=60)


@pytest.fixture(autouse=True, params=[1, 7, 1 << 13])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_bytes, "PIECE", request.param)


def some(labels: Labels, data: st.DataObject) -> np.ndarray[Any, np.dtype[np.int64]]:
    chosen = data.draw(st.sets(st.integers(0, len(labels) - 1)))
    return np.array(sorted(chosen), dtype=np.int64)


@given(labels=lists, data=st.data())
@settings(max_examples=60, deadline=None)
def test_names_are_those_of_their_numbers_with_all_their_bytes(
    labels: list[Any], data: st.DataObject
) -> None:
    numbers = some(labels, data)
    chosen = [labels[number] for number in numbers]
    assert [*itertools.chain(*in_pieces(labels))] == labels
    assert [*itertools.chain(*names_at(labels, numbers))] == chosen
    together, lengths = in_bytes(labels)
    assert together.tobytes() == b"".join(map(item_bytes, labels))
    assert lengths.tolist() == [len(item_bytes(label)) for label in labels]
    assert byte_lengths(labels, numbers).tolist() == [len(item_bytes(label)) for label in chosen]


@given(labels=lists, data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_order_is_that_of_the_bytes(labels: list[Any], data: st.DataObject) -> None:
    numbers = some(labels, data)
    order, again = byte_order(labels, numbers)
    texts = [item_bytes(labels[number]) for number in numbers]
    assert order.tolist() == sorted(range(len(texts)), key=texts.__getitem__)
    ordered = [texts[place] for place in order]
    assert again.tolist() == [k > 0 and ordered[k - 1] == text for k, text in enumerate(ordered)]


@given(labels=lists, data=st.data())
@settings(max_examples=50, deadline=None)
def test_keys_that_are_written_alike_are_one_and_a_text_stands_for_them(
    labels: list[Any], data: st.DataObject
) -> None:
    numbers = some(labels, data)
    counts = 1 + np.arange(len(numbers))
    keys, sums = by_bytes(numbers, counts, labels)
    by_name: dict[bytes, list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        by_name.setdefault(item_bytes(labels[number]), []).append(place)
    expected = []
    for _, places in sorted(by_name.items()):
        texts = [place for place in places if isinstance(labels[numbers[place]], str)]
        expected.append((int(numbers[(texts or places)[0]]), int(counts[places].sum())))
    assert list(zip(keys.tolist(), sums.tolist(), strict=True)) == expected


@given(labels=lists, left_out=st.lists(names, max_size=4))
@settings(max_examples=50, deadline=None)
def test_one_number_for_each_name_and_none_for_those_left_out(labels: list[Any], left_out: list[Any]) -> None:
    gone, first = set(map(str, left_out)), {}
    expected = [
        -1 if str(label) in gone else first.setdefault(str(label), number)
        for number, label in enumerate(labels)
    ]
    numbers = distinct_names(labels, without=left_out)
    assert (list(range(len(labels))) if numbers is None else numbers.tolist()) == expected


def test_names_of_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renumbering, "hash", len, raising=False)
    assert distinct_names(["ab", "cd", "ab", "e", 5, "5"], without=["cd"]).tolist() == [0, -1, 0, 3, 4, 4]  # type: ignore[union-attr] # some repeat


@given(
    keys=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**62), st.integers(0, 2**17)), max_size=40),
    dtype=st.sampled_from([np.int64, np.int32]),
)
@settings(max_examples=50, deadline=None)
def test_keys_are_ordered_by_their_digits(keys: list[int], dtype: Any) -> None:
    array = np.array([key % (np.iinfo(dtype).max + 1) for key in keys], dtype=dtype)
    order = rising_order(array, int(array.max(initial=0)))
    assert order.tolist() == np.argsort(array, kind="stable").tolist()
