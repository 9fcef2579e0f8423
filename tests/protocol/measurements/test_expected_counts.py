"""Expected clipped counts against their definition, and exact where proofs need it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.api import SHARE_BITS, read_sums, sums_by_key
from tests.support.api import expected_counts_module as expected_counts

ONE = 1 << SHARE_BITS
CANDIDATES = np.array([1, 2, 5, 9, 30])
BINS, CAP = 6, 30

counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 2**28))
populations = st.integers(1, 6).flatmap(
    lambda items: st.lists(st.lists(counts, min_size=items, max_size=items), min_size=1, max_size=8)
)


def read(histograms):
    header, keyed = sums_by_key(histograms, CANDIDATES, CAP)
    return read_sums(header, keyed, CANDIDATES, users=histograms.users), keyed


def by_item(histograms):
    """A_j(C) of every item, items that nobody has as zeros."""
    tail, keyed = read(histograms)
    full = np.zeros((histograms.domain_size, len(CANDIDATES)), dtype=np.int64)
    for item, row in zip(
        np.unique(keyed.keys // BINS), itertools.chain(*tail.expected.pieces()), strict=True
    ):
        full[item] = row
    return full


@given(rows=populations)
@settings(max_examples=100)
def test_they_are_those_of_the_definition_within_rounding(make_histograms, rows):
    """A_j(C) = sum_i N_ij min(1, C/m_i); a clipped user's share is rounded by less than 2^-SHARE_BITS."""
    found = by_item(make_histograms(rows))
    for item, (k, bound) in itertools.product(range(len(rows[0])), enumerate(CANDIDATES.tolist())):
        exact = sum(row[item] * min(Fraction(1), Fraction(bound, max(sum(row), 1))) for row in rows)
        clipped = sum(sum(row) > bound and row[item] > 0 for row in rows)
        assert abs(Fraction(int(found[item, k]), ONE) - exact) <= Fraction(bound * clipped, ONE)


@given(row=st.lists(counts, min_size=1, max_size=6))
@settings(max_examples=100)
def test_a_users_parts_sum_to_exactly_what_clipping_keeps(make_histograms, row):
    """The sensitivity proofs stand on this: min(m, C) in fixed point, no rounding left over."""
    found = by_item(make_histograms([row]))
    assert (found >= 0).all()
    assert found.sum(axis=0).tolist() == [min(sum(row), int(bound)) * ONE for bound in CANDIDATES]


@given(rows=populations)
@settings(max_examples=100)
def test_overflow_and_users_above_are_exact_and_totals_are_cut(make_histograms, rows):
    tail, _ = read(make_histograms(rows))
    totals = [sum(row) for row in rows]
    assert tail.users == len(rows)
    assert tail.users_above.tolist() == [sum(total > bound for total in totals) for bound in CANDIDATES]
    assert tail.overflow.tolist() == [
        sum(max(min(total, CAP) - int(bound), 0) for total in totals) for bound in CANDIDATES
    ]


@given(
    row=st.lists(st.one_of(st.integers(1, 5), st.integers(1, (2**31 - 1) // 6)), min_size=1, max_size=6),
    before=st.lists(st.integers(0, 2**28), max_size=3),
)
@settings(max_examples=100)
def test_shares_are_rounded_in_whole_numbers_whoever_comes_before(make_histograms, row, before):
    """q_j = floor((S_j 2^16 + m/2)/m) - floor((S_{j-1} 2^16 + m/2)/m): every device must find the same."""
    row = [*row, *([0] * (6 - len(row)))]
    first = [*before, *([0] * (6 - len(before)))]
    total = sum(row)
    running = [((sum(row[:j]) << SHARE_BITS) + total // 2) // total for j in range(7)]
    expected = [b - a for a, b in itertools.pairwise(running)]
    for rows in ([row], [first, row]):
        _, keyed = sums_by_key(make_histograms(rows).rows(len(rows) - 1, len(rows)), np.array([1]), 1)
        found = np.zeros(6, dtype=np.int64)
        found[keyed.keys // 2] = keyed.values[:, 1]
        assert found.tolist() == (expected if total > 1 else [0] * 6)


def test_few_items_and_very_many_are_summed_alike(make_histograms):
    """A small domain is summed without a sort and a large one with; the large one has the same items far apart."""
    near = np.random.default_rng(1).integers(0, 12, size=(60, 4))
    far = np.zeros((60, 4000), dtype=int)
    far[:, ::1000] = near
    first, second = (read(make_histograms(rows.tolist()))[1] for rows in (near, far))
    assert (second.keys // BINS).tolist() == (first.keys // BINS * 1000).tolist()
    assert (second.keys % BINS).tolist() == (first.keys % BINS).tolist()
    assert second.values.tolist() == first.values.tolist()


def test_pieces_of_any_size_hold_the_same_rows(make_histograms, monkeypatch):
    tail, _ = read(make_histograms(np.random.default_rng(2).integers(0, 5, size=(50, 40)).tolist()))
    (whole,) = tail.expected.pieces()
    monkeypatch.setattr(expected_counts, "_CHUNK_CELLS", 20)
    pieces = list(tail.expected.pieces())
    assert len(pieces) > 5
    assert np.concatenate(pieces).tolist() == whole.tolist()


def test_a_message_tells_of_nobodys_clipped_items_more_than_their_shares(make_histograms):
    """A user above every candidate sends no count, one at or below the smallest no share."""
    _, keyed = read(make_histograms([[700, 300]]))
    assert keyed.values[:, 0].tolist() == [0, 0]
    assert keyed.values[:, 1].sum() == ONE
    _, keyed = read(make_histograms([[1, 0]]))
    assert keyed.values.tolist() == [[1, 0]]
