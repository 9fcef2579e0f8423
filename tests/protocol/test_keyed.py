"""Sums over keys that nobody can enumerate, against a plain dictionary."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.api import KeyedSum, coalesce, coalesce_dense, keyed_module

COLUMNS = 2
values = st.one_of(st.integers(0, 3), st.integers(0, 2**40))
entries = st.lists(st.tuples(st.integers(0, 12), values, values), max_size=30)


def arrays(rows):
    keys = np.array([key for key, *_ in rows], dtype=np.int64)
    return keys, np.array([rest for _, *rest in rows], dtype=np.int64).reshape(-1, COLUMNS)


def by_dictionary(rows):
    sums: dict[int, list[int]] = {}
    for key, *rest in rows:
        before = sums.setdefault(key, [0] * COLUMNS)
        sums[key] = [a + b for a, b in zip(before, rest, strict=True)]
    return sorted(sums.items())


def listed(keyed):
    return list(zip(keyed.keys.tolist(), keyed.values.tolist(), strict=True))


@given(rows=entries)
@settings(max_examples=100, deadline=None)
def test_equal_keys_are_added_with_or_without_a_sort(rows):
    expected = by_dictionary(rows)
    assert listed(coalesce(*arrays(rows))) == expected
    for key_space in (13, 100):
        assert listed(coalesce_dense(*arrays(rows), key_space)) == expected


@given(
    rows=entries,
    cuts=st.lists(st.integers(0, 30), max_size=5),
    order=st.randoms(use_true_random=False),
    pending=st.sampled_from([0, 1, 4, 4_000_000]),
)
@settings(max_examples=100, deadline=None)
def test_a_sum_does_not_depend_on_order_pieces_or_when_it_merges(rows, cuts, order, pending):
    shuffled = list(rows)
    order.shuffle(shuffled)
    places = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    total = KeyedSum(COLUMNS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_module, "_PENDING_ROWS", pending)
        for start, stop in itertools.pairwise(places):
            total.add(coalesce(*arrays(shuffled[start:stop])))
        assert listed(total.total()) == by_dictionary(rows)


def test_a_sum_can_be_read_and_then_added_to():
    total, rows = KeyedSum(COLUMNS), [(3, 1, 2), (1, 9, 9), (3, 1, 0)]
    for start, stop in ((0, 1), (1, 3), (3, 3)):
        total.add(coalesce(*arrays(rows[start:stop])))
        assert listed(total.total()) == by_dictionary(rows[:stop])


def test_a_sum_of_nothing_has_its_columns():
    empty = KeyedSum(3).total()
    assert empty.keys.shape == (0,)
    assert empty.values.shape == (0, 3)
    assert empty.length == 0
