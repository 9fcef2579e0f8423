"""Items clipped one by one: the tail and the clipped sum of each are those of their definitions."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan
from tests.support.api import NOTHING, ClippedItems, ItemBounds, ItemTailMeasurement, Total

PLAN = Plan(users=8, items=3, debias="poisson", min_threshold=1.5, max_threshold=600, candidates=6)
BITS = PLAN.grid_bits
counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 2**28))
rows_of_counts = st.lists(st.lists(counts, min_size=3, max_size=3), min_size=1, max_size=8)


@given(rows=rows_of_counts)
@settings(max_examples=100)
def test_the_tail_counts_the_users_above_each_candidate_of_each_item(make_histograms, rows):
    measurement = ItemTailMeasurement(PLAN, NOTHING)
    sent = measurement.of(make_histograms(rows), source=None)
    tail = measurement.read(Total(len(rows), sent.values))
    for item, (k, bound) in itertools.product(range(3), enumerate(PLAN.candidate_steps.tolist())):
        assert tail.counts[item, k] == sum((row[item] << BITS) > bound for row in rows)


@given(
    rows=rows_of_counts,
    bounds=st.lists(st.integers(1, 2**31 - 1), min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_the_sum_is_of_counts_clipped_to_their_items_own_bounds(make_histograms, rows, bounds):
    measurement = ClippedItems(PLAN, ItemBounds(np.array(bounds)))
    sent = measurement.of(make_histograms(rows), source=None)
    clipped = [sum(min(row[j] << BITS, bounds[j]) for row in rows) for j in range(3)]
    assert sent.values.tolist() == clipped
    assert measurement.read(Total(len(rows), sent.values)).in_bounds.tolist() == [
        value / bound for value, bound in zip(clipped, bounds, strict=True)
    ]
