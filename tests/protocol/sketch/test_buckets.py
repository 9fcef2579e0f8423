"""Items hashed into buckets: everywhere the same, evenly spread, and by the bytes alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedhist import Plan
from tests.support.api import NOTHING, BucketTotals, bucket_numbers

SALT = bytes(range(32))
LABELS = ["", "a", "aa", "b", "été", "e\u0301te\u0301", "語", "🙂", "\ud800", 0, 7, -7, 2**80, "x" * 1024]


def by_hand(label, buckets, salt):
    """The same hash with Python's integers, one byte at a time."""
    seed = hashlib.sha256(b"fedhist/1/buckets" + salt).digest()
    words = [int.from_bytes(seed[8 * i : 8 * i + 8], "little") for i in range(3)]
    prime, mask = 2**31 - 1, 2**64 - 1
    data = str(label).encode("utf-8", errors="surrogatepass")

    def polynomial(point):
        return (len(data) + sum((b + 1) * pow(point, i + 1, prime) for i, b in enumerate(data))) % prime

    first, second = (polynomial(word % (prime - 2) + 1) for word in words[:2])
    mixed = (first << 32) ^ second ^ words[2]
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & mask
    return (mixed ^ (mixed >> 31)) % buckets


@given(
    labels=st.lists(st.one_of(st.sampled_from(LABELS), st.text(max_size=30), st.integers()), max_size=6),
    buckets=st.integers(1, 2**20),
    salt=st.binary(max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_the_hash_of_the_text_by_hand(labels, buckets, salt):
    assert bucket_numbers(labels, buckets, salt=salt).tolist() == [by_hand(x, buckets, salt) for x in labels]


@pytest.mark.parametrize(
    "labels",
    [
        list(range(64_000)),
        [f"https://example.org/page/{i}" for i in range(64_000)],
        ["a" * (i % 128) + "b" * (i // 128) for i in range(16_000)],
    ],
    ids=["numbers", "addresses", "repeats"],
)
def test_items_spread_evenly_and_two_seldom_meet(labels):
    found = bucket_numbers(labels, 64, salt=SALT)
    assert stats.chisquare(np.bincount(found, minlength=64)).pvalue > 1e-3
    many = 2**20
    distinct = len(np.unique(bucket_numbers(labels, many, salt=SALT)))
    expected = many * -np.expm1(len(labels) * np.log1p(-1 / many))
    assert abs(distinct - expected) < 6 * np.sqrt(len(labels) - expected)


def test_the_salt_changes_which_labels_meet():
    labels = [f"word {i}" for i in range(3000)]
    first, second = (bucket_numbers(labels, 64, salt=salt) for salt in (b"one", b"two"))
    assert 10 < (first == second).sum() < 100
    assert stats.chi2_contingency(np.histogram2d(first, second, bins=8)[0]).pvalue > 1e-3


def test_the_plan_is_the_salt():
    labels = [f"word {i}" for i in range(500)]
    plan = Plan(users=10, domain="open", statistic="bucketed", buckets=64)
    other = Plan(users=11, domain="open", statistic="bucketed", buckets=64)
    table = BucketTotals(plan, NOTHING).with_labels(labels).bucket_of
    assert table.tolist() == bucket_numbers(labels, 64, salt=plan.digest).tolist()
    assert table.tolist() != BucketTotals(other, NOTHING).with_labels(labels).bucket_of.tolist()
