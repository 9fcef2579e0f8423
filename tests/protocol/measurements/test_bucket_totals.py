"""Buckets say what their items say together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan, SeededSource
from tests.support.api import NOTHING, BucketTotals, KeyTotals, Total, UnexpectedMessage, error_bound

OPEN = {
    "users": 300,
    "domain": "open",
    "release": "truncated-laplace",
    "epsilon": 3.0,
    "delta": 0.01,
    "max_threshold": 30,
    "candidates": 6,
}
ITEMS = 5
rows_of_counts = st.lists(
    st.lists(st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 2**28)), min_size=ITEMS, max_size=ITEMS),
    min_size=1,
    max_size=8,
)  # fmt: skip


def read(measurement, histograms):
    sent = measurement.of(histograms, source=SeededSource(1))
    return measurement.read(Total(histograms.users, sent.values, sent.keyed))


def by_items(histograms):
    return read(KeyTotals(Plan(**OPEN), NOTHING), histograms)


def by_buckets(histograms, buckets, bucket_of=None):
    measurement = BucketTotals(Plan(**OPEN, statistic="bucketed", buckets=buckets), NOTHING, bucket_of)
    return read(measurement.with_labels(range(30)) if bucket_of is None else measurement, histograms)


@pytest.mark.parametrize("buckets", [1, 3, ITEMS, 40])
@given(rows=rows_of_counts, salt=st.integers(0, 50))
@settings(max_examples=40)
def test_a_bucket_is_the_sum_of_its_items(make_histograms, buckets, rows, salt):
    # Everybody's items are there, so that no row of the expected counts is left out.
    histograms = make_histograms([*rows, [1] * ITEMS])
    bucket_of = np.random.default_rng(salt).permutation(max(buckets, ITEMS))[:ITEMS] % buckets
    items, hashed = by_items(histograms), by_buckets(histograms, buckets, bucket_of)
    summed = np.zeros((buckets, 6), dtype=np.int64)
    np.add.at(summed, bucket_of, np.concatenate(list(items.expected.pieces())))
    assert np.concatenate(list(hashed.expected.pieces())).tolist() == summed.tolist()
    assert hashed.users_above.tolist() == items.users_above.tolist()
    assert hashed.overflow.tolist() == items.overflow.tolist()


def test_v_by_buckets_never_exceeds_v_by_items_and_meets_it_when_nobody_collides(make_histograms):
    """min(a + b, t) <= min(a, t) + min(b, t): adding items up can only lower V."""
    histograms = make_histograms(np.random.default_rng(5).poisson(0.4, size=(300, 30)).tolist())
    tails = by_items(histograms), by_buckets(histograms, 4), by_buckets(histograms, 2**15)
    exact, few, many = (error_bound(Plan(**OPEN), tail) for tail in tails)
    assert (few <= exact).all()
    assert (few < exact).any()
    assert many.tolist() == exact.tolist()


def test_items_without_names_have_no_buckets(make_histograms):
    measurement = BucketTotals(Plan(**OPEN, statistic="bucketed"), NOTHING)
    with pytest.raises(UnexpectedMessage):
        measurement.of(make_histograms([[1]]), source=SeededSource(1))
