from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import SeededSource, SystemSource
from tests.support.api import MAX_USER_TOTAL, Norm, Threshold, is_clipped, sum_by_item, sum_clipped, sum_items

counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, MAX_USER_TOTAL // 6))
populations = st.integers(1, 6).flatmap(
    lambda items: st.lists(st.lists(counts, min_size=items, max_size=items), min_size=1, max_size=8)
)
thresholds = st.integers(0, 10).flatmap(
    lambda bits: st.builds(Threshold, steps=st.integers(1 << bits, 2**31 - 1), bits=st.just(bits))
)
norms = pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])


@norms
@given(rows=populations, threshold=thresholds, seed=st.integers(0, 9))
@settings(max_examples=400, deadline=None)
def test_no_draw_passes_the_bound_and_users_at_or_below_it_are_exact(
    by_user, make_histograms, norm, *, rows, threshold, seed
):
    histograms = make_histograms(rows)
    clipped = by_user(sum_clipped, histograms, threshold, norm=norm, source=SeededSource(seed))
    power = 1 if norm is Norm.L1 else 2
    found = is_clipped(histograms, threshold, norm=norm)
    for row, sent, above in zip(rows, clipped.tolist(), found, strict=True):
        exact = [count << threshold.bits for count in row]
        # Python integers, so that the checks themselves can't overflow.
        assert above == (sum(value**power for value in exact) > threshold.steps**power)
        if not above:
            assert sent == exact
        elif norm is Norm.L1:
            assert sum(sent) == threshold.steps
        assert min(sent) >= 0
        # It only takes away, on which the lower limits of `server/estimates` rest.
        assert all(left <= had for left, had in zip(sent, exact, strict=True))
        assert sum(value**power for value in sent) <= threshold.steps**power


@norms
def test_rounding_is_unbiased(make_histograms, norm):
    """The mean over many users' draws meets the unrounded clip within five standard errors, at a coarse step."""
    row, users = [7, 1, 0, 30, 2, 11], 200_000
    threshold = Threshold(steps=150, bits=3)
    population = make_histograms([row] * users)
    mean = sum_clipped(population, threshold, norm=norm, source=SeededSource(5)) / users
    size = sum(row) if norm is Norm.L1 else math.sqrt(sum(v * v for v in row))
    # l2 aims a little under the bound, by design: three deviations of the rounding.
    target = 150 if norm is Norm.L1 else math.sqrt(150**2 - 5 / 4 - 3 * 150)
    exact = np.array(row) * target / size
    assert np.abs(mean - exact).max() < 5 * 0.5 / math.sqrt(users) + (0 if norm is Norm.L1 else 0.01)


def test_l2_loses_little_to_its_safety_margin(make_histograms):
    row = list(range(1, 101))
    threshold = Threshold(steps=30 << 10, bits=10)
    sent = sum_clipped(make_histograms([row]), threshold, norm=Norm.L2, source=SystemSource())
    kept = math.sqrt(sum(int(v) ** 2 for v in sent)) / threshold.steps
    assert 1 - 2e-4 < kept <= 1


@given(rows=populations)
@settings(deadline=None)
def test_items_sum_exactly(make_histograms, rows):
    assert sum_items(make_histograms(rows)).tolist() == [sum(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("entries", [0, 5, (1 << 17) - 1, 1 << 17])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_few_and_many_entries_sum_exactly_beyond_what_a_float_holds(entries, kind):
    items = (np.arange(entries) % 3).astype(kind)
    values = (1 << 45) + np.arange(entries)
    due = [sum(values[items == item].tolist()) for item in range(4)]
    assert sum_by_item(values, items, 4).tolist() == due


def test_a_bound_between_two_norms_is_decided_in_whole_numbers(make_histograms):
    """|N|_2^2 = 2 is above C = 1.4140625 and not above C = 1.4150390625, which differ by one step of 2^-10."""
    population = make_histograms([[1, 1]])
    below, above = Threshold(steps=1448, bits=10), Threshold(steps=1449, bits=10)
    assert is_clipped(population, below, norm=Norm.L2).tolist() == [True]
    assert is_clipped(population, above, norm=Norm.L2).tolist() == [False]
