from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.protocol.measurements.clipped_items import ClippedItems
from fedhist.protocol.measurements.given import ItemBounds
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Total

PLAN = Plan(users=8, items=3, debias="poisson")
counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 2**28))


@given(
    rows=st.lists(st.lists(counts, min_size=3, max_size=3), min_size=1, max_size=8),
    bounds=st.lists(st.integers(1, 2**31 - 1), min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_the_sum_is_of_counts_clipped_to_their_items_own_bounds(make_histograms, rows, bounds):
    measurement = ClippedItems(PLAN, ItemBounds(np.array(bounds)))
    sent = measurement.of(make_histograms(rows), source=None)
    clipped = [sum(min(row[j] << PLAN.grid_bits, bounds[j]) for row in rows) for j in range(3)]
    assert sent.values.tolist() == clipped
    assert measurement.read(Total(len(rows), sent.values)).in_bounds.tolist() == [
        value / bound for value, bound in zip(clipped, bounds, strict=True)
    ]
