"""The bound on how often a table does not decode: above the exact chance, above what is seen, and small enough."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tests.support.api import (
    HASHES,
    MAX_FAILURE,
    MAX_TABLE_LENGTH,
    TableShape,
    _block_logs,
    _exact_term,
    _partitions,
    failure_bound,
)

LARGEST = 2**22


def peels(places: np.ndarray) -> bool:
    """Whether items with these places, of shape (hashes, items), all come out."""
    left = set(range(places.shape[1]))
    while left:
        alone = set()
        for part in places:
            seen: dict[int, list[int]] = {}
            for item in left:
                seen.setdefault(int(part[item]), []).append(item)
            alone |= {items[0] for items in seen.values() if len(items) == 1}
        if not alone:
            return False
        left -= alone
    return True


@pytest.mark.parametrize(
    ("items", "cells", "hashes"),
    [(2, 2, 2), (2, 3, 3), (3, 2, 2), (3, 3, 2), (4, 2, 2), (4, 3, 1), (5, 2, 2)],
)
def test_it_is_never_below_the_exact_chance(items, cells, hashes):
    """All ways to place so few items, one by one."""
    ways = itertools.product(range(cells), repeat=items * hashes)
    failed = sum(not peels(np.array(way).reshape(hashes, items)) for way in ways)
    exact = Fraction(failed, cells ** (items * hashes))
    bound = failure_bound(items, cells, hashes)
    assert exact <= Fraction(bound)
    if items == 2:
        assert bound == pytest.approx(float(exact), rel=1e-3)


@pytest.mark.parametrize(
    ("items", "cells", "tables"), [(6, 4, 40_000), (12, 6, 20_000), (30, 12, 4_000), (60, 24, 2_000)]
)
def test_it_is_never_below_what_is_seen(items, cells, tables):
    """Five sub-tables so small that failures can be counted; the bound must lie above the count's lower limit."""
    rng = np.random.default_rng(items)
    failed = sum(not peels(rng.integers(cells, size=(HASHES, items))) for _ in range(tables))
    bound = failure_bound(items, cells)
    at_least = stats.beta.ppf(1e-6, failed, tables - failed + 1) if failed else 0.0
    assert at_least <= bound
    assert stats.binomtest(failed, tables).proportion_ci(0.99).low <= bound


def test_partitions_into_blocks_of_two_or_more():
    assert [_partitions(size) for size in (2, 3, 4, 5, 6)] == [(1,), (1,), (1, 3), (1, 10), (1, 25, 15)]


@pytest.mark.parametrize(("items", "cells"), [(200, 100), (1_000, 400), (6_000, 2_143)])
def test_sizes_taken_in_blocks_are_bounded_by_more_than_they_add(items, cells):
    """The blocks' sum is above the exact one and, but for the saddle point's own loss, not far."""
    exact = sum(_exact_term(items, size, cells, HASHES) for size in range(25, 61))
    blocks = float(np.exp(_block_logs(items, cells, HASHES)).sum())
    assert exact <= blocks


@pytest.mark.parametrize(
    "items", sorted({*range(1, 40), *np.geomspace(40, LARGEST, 400).astype(int).tolist()})
)
def test_it_is_below_one_in_a_billion_for_every_size_of_table(items):
    shape = TableShape(items, 1)
    assert shape.length <= MAX_TABLE_LENGTH
    assert 0 < shape.failure_bound < MAX_FAILURE == 1e-9


def test_numbers_that_the_documents_name():
    assert TableShape(16_384, 32).failure_bound == pytest.approx(2.0e-11, rel=0.05)
    assert failure_bound(16_384, math.ceil(16_384 / (4 * 0.61)), 4) == pytest.approx(6.6e-8, rel=0.05)
    assert failure_bound(16_384, math.ceil(16_384 / (5 * 0.565))) < 1e-10
    assert failure_bound(16_384, math.ceil(16_384 / (5 * 0.57))) == 1


def test_fewer_items_in_the_same_table_fail_no_more():
    bounds = [failure_bound(items, 100) for items in range(1, 200)]
    assert bounds == sorted(bounds)
