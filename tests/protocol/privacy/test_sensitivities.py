"""Every sensitivity against brute force over all pairs of small neighbours: never passed, and reached."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedhist import Neighbours, Plan, SeededSource
from tests.asking import select_request
from tests.support.api import (
    Total,
    answer,
    minimiser,
    minimiser_sensitivity,
    read_statistic,
    tail_count,
    tail_weight,
)

relations = pytest.mark.parametrize("neighbours", list(Neighbours))
OTHERS = [[2, 0, 1], [9, 9, 0], [0, 0, 4]]


def users(items: int) -> list[list[int]]:
    """All histograms with counts in a small range, and some far above every bound."""
    small = [list(row) for row in itertools.product([0, 1, 3], repeat=items)]
    return [*small, [50] * items, [1000] + [0] * (items - 1), [0] * (items - 1) + [1000]]


def changes(neighbours: Neighbours, items: int) -> list[tuple[list[list[int]], list[list[int]]]]:
    others = [row[:items] for row in OTHERS]
    if neighbours is not Neighbours.REPLACE_ONE:
        return [(others, [*others, one]) for one in users(items)]
    return [([*others, a], [*others, b]) for a, b in itertools.product(users(items), repeat=2)]


def sums(make_histograms, request):
    """Sums over rows of users, remembered. Users draw by their place, so unchanged ones send the same in both."""
    found = {}

    def summed(rows):
        key = str(rows)
        if key not in found:
            found[key] = answer(request, make_histograms(rows), source=SeededSource(4)).values
        return found[key]

    return summed


@relations
@pytest.mark.parametrize("sparsity", [1, 2, 3])
def test_tail_weights_and_counts_move_by_their_sensitivity_and_no_more(make_histograms, sparsity, neighbours):
    plan = Plan(users=4, items=3, sparsity=sparsity, neighbours=neighbours, candidates=9, max_threshold=60)
    summed = sums(make_histograms, select_request(plan=plan))

    def tail(rows):
        return read_statistic(plan, Total(len(rows), summed(rows)))

    pairs = [(tail(a), tail(b)) for a, b in changes(neighbours, 3)]
    weight = max(int(np.abs(a.weights - b.weights).max()) for a, b in pairs)
    assert weight == tail_weight(plan.tail_cap, neighbours=neighbours).whole
    assert (
        max(int(np.abs(a.counts - b.counts).max()) for a, b in pairs)
        == tail_count(neighbours=neighbours).whole
    )


@relations
def test_the_regularised_minimiser_moves_by_at_most_its_sensitivity(make_histograms, neighbours):
    plan = Plan(
        users=4,
        items=3,
        neighbours=neighbours,
        candidates=33,
        max_threshold=60,
        epsilon=50.0,
        epsilon_select=8.0,
    )
    claimed = minimiser_sensitivity(plan)
    summed, found = sums(make_histograms, select_request(plan=plan)), {}

    def chosen(rows):
        weights = read_statistic(plan, Total(len(rows), summed(rows))).weights
        if (key := weights.tobytes()) not in found:
            found[key] = plan.at_steps(minimiser(plan, weights / 1024) * 2**plan.grid_bits).steps
        return found[key]

    moved = [abs(chosen(a) - chosen(b)) for a, b in changes(neighbours, 3)]
    assert max(moved) <= claimed.whole
    assert max(moved) > 0.2 * claimed.whole
