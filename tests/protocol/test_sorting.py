"""Orders by digits: those that comparing gives, whatever the keys share."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api import grouped_order, order_by

# Few values in the first bits and few in the last, so that keys share all kinds of bits; and runs of equal ones.
keys = st.builds(lambda high, low: high << 56 | low, st.integers(0, 3), st.integers(0, 2))
runs = st.lists(st.tuples(keys, st.integers(1, 5)), max_size=40)


@given(runs=runs)
def test_equal_keys_stand_together_in_their_order(runs: list[tuple[int, int]]) -> None:
    values = np.array([key for key, often in runs for _ in range(often)], dtype=np.uint64)
    order, starts = grouped_order(values)
    assert sorted(order.tolist()) == list(range(len(values)))
    groups = [order[first:last] for first, last in pairwise([*starts.tolist(), len(values)])]
    assert [len(set(values[group].tolist())) for group in groups] == [1] * len(groups)
    assert len({int(values[group[0]]) for group in groups}) == len(groups) == len(set(values.tolist()))
    assert all(group.tolist() == sorted(group.tolist()) for group in groups)


@given(rows=st.lists(st.tuples(st.integers(0, 2**33), st.integers(0, 3)), min_size=1, max_size=50))
def test_columns_rank_from_the_last(rows: list[tuple[int, int]]) -> None:
    minor, major = (np.array(column) for column in zip(*rows, strict=True))
    assert order_by((minor, 34), (major, 2)).tolist() == np.lexsort((minor, major)).tolist()
