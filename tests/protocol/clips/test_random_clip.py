"""Random clipping keeps exactly min(m, C) of a user's items, every choice of them equally likely."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedhist import Histograms, SeededSource
from tests.builders import Untouched
from tests.support.api import Integers, Source, entry_items, random_clipped, sum_by_item

PASSES, REJECTS = 1e-3, 1e-9

counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 100_000))
populations = st.integers(1, 7).flatmap(
    lambda items: st.lists(st.lists(counts, min_size=items, max_size=items), min_size=1, max_size=8)
)
thresholds = st.one_of(st.integers(1, 12), st.integers(1, 200_000))


def sum_random_clipped(users: Histograms, threshold: int, *, source: Source) -> Integers:
    kept = random_clipped(users, threshold, source=source)
    return sum_by_item(kept, entry_items(users), users.domain_size)


@given(rows=populations, threshold=thresholds, seed=st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_the_kept_total_is_exact_and_nothing_is_made_up(by_user, make_histograms, rows, threshold, seed):
    kept = by_user(sum_random_clipped, make_histograms(rows), threshold, source=SeededSource(seed))
    had = np.array(rows)
    assert kept.sum(axis=1).tolist() == [min(total, threshold) for total in had.sum(axis=1)]
    assert (kept >= 0).all()
    assert (kept <= had).all()


def outcome_counts(by_user, make_histograms, row, threshold, users, *, seed=11):
    kept = by_user(sum_random_clipped, make_histograms([row] * users), threshold, source=SeededSource(seed))
    return Counter(map(tuple, kept.tolist()))


def p_value(observed: Counter, chances: dict) -> float:
    """Chi-square of what was seen against the chances; outcomes expected less than 5 times are pooled."""
    users = sum(observed.values())
    if any(outcome not in chances for outcome in observed):
        return 0.0
    common = [outcome for outcome, chance in chances.items() if chance * users >= 5]
    seen = [observed[outcome] for outcome in common]
    due = [chances[outcome] * users for outcome in common]
    if users - sum(due) > 1:
        seen, due = [*seen, users - sum(seen)], [*due, users - sum(due)]
    return float(stats.chisquare(seen, due, sum_check=False).pvalue)


ROW, THRESHOLD = [3, 1, 0, 4, 2], 4


def kept_vectors(row, threshold):
    choices = (range(min(count, threshold) + 1) for count in row)
    return [kept for kept in itertools.product(*choices) if sum(kept) == threshold]


def without_replacement(row, threshold):
    ways = math.comb(sum(row), threshold)
    return {
        kept: math.prod(math.comb(n, k) for n, k in zip(row, kept, strict=True)) / ways
        for kept in kept_vectors(row, threshold)
    }


def with_replacement(row, threshold):
    """Multinomial, given that no item was kept more often than it was there: nearest to the right one."""
    weights = {
        kept: float(stats.multinomial(threshold, np.array(row) / sum(row)).pmf(kept))
        for kept in kept_vectors(row, threshold)
    }
    return {kept: weight / sum(weights.values()) for kept, weight in weights.items()}


def test_all_outcomes_together_are_multivariate_hypergeometric(by_user, make_histograms):
    observed = outcome_counts(by_user, make_histograms, ROW, THRESHOLD, 40_000)
    assert p_value(observed, without_replacement(ROW, THRESHOLD)) > PASSES
    assert p_value(observed, with_replacement(ROW, THRESHOLD)) < REJECTS


def test_every_pair_of_many_single_items_is_kept_equally_often(by_user, make_histograms):
    items, threshold, users = 33, 7, 20_000
    kept = by_user(
        sum_random_clipped, make_histograms([[1] * items] * users), threshold, source=SeededSource(14)
    )
    together = kept.T @ kept
    chance = threshold * (threshold - 1) / (items * (items - 1))
    pairs = together[np.triu_indices(items, 1)]
    spread = math.sqrt(users * chance * (1 - chance))
    assert np.abs(pairs - users * chance).max() < 5 * spread
    assert np.abs(np.diag(together) - users * threshold / items).max() < 5 * math.sqrt(users * 0.21 * 0.79)


def test_huge_counts(by_user, make_histograms):
    row, threshold, users = [2**30, 2**29, 2**29 - 1], 2**22, 300
    kept = by_user(sum_random_clipped, make_histograms([row] * users), threshold, source=SeededSource(15))
    assert (kept.sum(axis=1) == threshold).all()
    for item, count in enumerate(row):
        mean, variance = stats.hypergeom(sum(row), count, threshold).stats("mv")
        assert abs(kept[:, item].mean() - mean) < 4 * math.sqrt(variance / users)
        assert 0.8 < kept[:, item].std() / math.sqrt(variance) < 1.2


@pytest.mark.parametrize("threshold", [6, 7, 10**9])
def test_a_threshold_at_or_above_every_total_leaves_all_and_draws_nothing(
    by_user, make_histograms, threshold
):
    population = make_histograms([[1, 2, 3], [0, 6, 0], [0, 0, 0]])
    clipped = by_user(sum_random_clipped, population, threshold, source=Untouched())
    assert clipped.tolist() == [[1, 2, 3], [0, 6, 0], [0, 0, 0]]
    assert sum_random_clipped(population, threshold, source=Untouched()).tolist() == [1, 8, 3]
    assert not sum_random_clipped(population.rows(2, 2), threshold, source=Untouched()).any()


def test_stored_zeros_stay_zero():
    """Entries that say 0 are allowed in a histogram; they are never kept."""
    population = Histograms(
        offsets=np.array([0, 5]), items=np.arange(5), counts=np.array([0, 9, 0, 9, 0]), domain_size=5
    )
    for seed in range(20):
        kept = sum_random_clipped(population, 5, source=SeededSource(seed))
        assert kept.sum() == 5
        assert not kept[[0, 2, 4]].any()


def test_the_input_is_left_as_it_was(make_histograms):
    population = make_histograms([[30, 40, 50]])
    sum_random_clipped(population, 10, source=SeededSource(1))
    assert population.counts.tolist() == [30, 40, 50]
