"""An open domain's random clip: everybody keeps exactly min(m, C) counts, each count with the same probability.

The paper draws C counts without replacement. That sampler is the oracle here: same mean, same total, more variance.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Histograms, Neighbours, SeededSource
from tests.builders import Untouched
from tests.support.api import (
    Integers,
    Source,
    Threshold,
    clipped_entries,
    clipped_sum_l1,
    entry_items,
    sum_by_item,
)

counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 100_000))
populations = st.integers(1, 7).flatmap(
    lambda items: st.lists(st.lists(counts, min_size=items, max_size=items), min_size=1, max_size=8)
)
thresholds = st.one_of(st.integers(1, 12), st.integers(1, 200_000))


def sum_kept(users: Histograms, threshold: int, *, source: Source) -> Integers:
    kept = clipped_entries(users, Threshold(steps=threshold, bits=0), source=source)
    return sum_by_item(kept, entry_items(users), users.domain_size)


def without_replacement(row: list[int], threshold: int, users: int, seed: int) -> Integers:
    """The paper's sampler (Liu et al., section 5), by numpy: one row a user."""
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(row, threshold, size=users)
    return np.asarray(drawn, dtype=np.int64)


@given(rows=populations, threshold=thresholds, seed=st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_the_kept_total_is_exact_and_nothing_is_made_up(by_user, make_histograms, rows, threshold, seed):
    """Device by device; the batch gives the same bits."""
    population = make_histograms(rows)
    kept = by_user(sum_kept, population, threshold, source=SeededSource(seed))
    had = np.array(rows)
    assert kept.sum(axis=1).tolist() == [min(total, threshold) for total in had.sum(axis=1)]
    assert (kept >= 0).all()
    assert (kept <= had).all()
    at_once = sum_kept(population, threshold, source=SeededSource(seed))
    assert at_once.tolist() == kept.sum(axis=0).tolist()
    start = len(rows) // 2
    halves = [population.rows(0, start), population.rows(start, len(rows))]
    assert (
        at_once.tolist()
        == sum(sum_kept(half, threshold, source=SeededSource(seed)) for half in halves).tolist()
    )


@dataclass
class Chosen:
    """A source whose users draw u = 0, 1, ..., m - 1 in turn."""

    total: int
    seeded: bool = True

    def user_words(self, users: Integers, draw: object = 0) -> Integers:
        return np.array([(-(-(int(u) << 32) // self.total)) << 32 for u in users], dtype=np.uint64)


def every_outcome(make_histograms, row: tuple[int, ...], threshold: int) -> Integers:
    """What is kept for each u, all of which are equally likely."""
    total = sum(row)
    population = make_histograms([row] * total)
    kept = clipped_entries(population, Threshold(steps=threshold, bits=0), source=Chosen(total))
    dense = np.zeros((total, len(row)), dtype=np.int64)
    dense[np.repeat(np.arange(total), np.diff(population.offsets)), population.items] = kept
    return dense


def test_every_user_of_a_small_domain_under_every_draw(make_histograms):
    """By enumeration: exact totals and sensitivity, exact means, floors and ceilings, whatever the order of items."""
    laws: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for row in itertools.product(range(5), repeat=4):
        for threshold in range(1, sum(row)):
            kept = every_outcome(make_histograms, row, threshold)
            assert (kept.sum(axis=1) == threshold).all()
            assert ((kept > 0).sum(axis=1) <= threshold).all()
            assert ((kept >= 0) & (kept <= row)).all()
            # Zero-out moves the sum by all that a user has, replace-one by that of two.
            worst = np.abs(kept[:, np.newaxis] - kept).sum(axis=2).max()
            assert (
                threshold <= clipped_sum_l1(threshold, domain_size=None, neighbours=Neighbours.ZERO_OUT).value
            )
            assert (
                worst <= clipped_sum_l1(threshold, domain_size=None, neighbours=Neighbours.REPLACE_ONE).value
            )
            for had, column in zip(row, kept.T, strict=True):
                assert column.sum() == had * threshold
                law = tuple(np.bincount(column, minlength=5).tolist())
                # One law for an item of this count, wherever it stands among the user's.
                assert laws.setdefault((had, sum(row), threshold), law) == law


@pytest.mark.parametrize(
    ("row", "threshold"), [([3, 1, 0, 4, 2], 4), ([1] * 33, 7), ([40, 1, 1, 300, 12], 60), ([5, 5, 5], 7)]
)
def test_the_mean_is_that_of_draws_without_replacement_and_the_variance_is_less(
    by_user, make_histograms, row, threshold
):
    users = 20_000
    kept = by_user(sum_kept, make_histograms([row] * users), threshold, source=SeededSource(11))
    drawn = without_replacement(row, threshold, users, seed=12)
    expected = np.array(row) * threshold / sum(row)
    for sample in (kept, drawn):
        error = np.abs(sample.mean(axis=0) - expected)
        assert (error <= 5 * sample.std(axis=0) / users**0.5 + 1e-6).all()
    fraction = expected % 1
    assert np.abs(kept.var(axis=0) - fraction * (1 - fraction)).max() < 0.02
    varied = drawn.var(axis=0)
    # Where nobody has an item twice both are one law, a coin.
    assert (kept.var(axis=0) <= varied + 0.02).all()
    if max(row) > 1:
        assert kept.var(axis=0).sum() < 0.75 * varied.sum()


@pytest.mark.parametrize("threshold", [6, 7, 10**9])
def test_a_threshold_at_or_above_every_total_leaves_all_and_draws_nothing(
    by_user, make_histograms, threshold
):
    population = make_histograms([[1, 2, 3], [0, 6, 0], [0, 0, 0]])
    clipped = by_user(sum_kept, population, threshold, source=Untouched())
    assert clipped.tolist() == [[1, 2, 3], [0, 6, 0], [0, 0, 0]]
    assert sum_kept(population, threshold, source=Untouched()).tolist() == [1, 8, 3]
    assert not sum_kept(population.rows(2, 2), threshold, source=Untouched()).any()


def test_huge_counts_and_stored_zeros(by_user, make_histograms):
    """Entries that say 0 are allowed in a histogram; they are never kept."""
    row, threshold, users = [2**30, 2**29, 2**29 - 1], 2**22, 300
    kept = by_user(sum_kept, make_histograms([row] * users), threshold, source=SeededSource(15))
    assert (kept.sum(axis=1) == threshold).all()
    assert np.abs(kept - np.array(row) * threshold / sum(row)).max() < 1
    zeros = Histograms(
        offsets=np.array([0, 5]), items=np.arange(5), counts=np.array([0, 9, 0, 9, 0]), domain_size=5
    )
    for seed in range(20):
        left = sum_kept(zeros, 5, source=SeededSource(seed))
        assert left.sum() == 5
        assert not left[[0, 2, 4]].any()
