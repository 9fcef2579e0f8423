"""Round 1 over an open domain: expected clipped counts against their definition, and exact where proofs need it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.client.device import answer, bucket_table
from fedhist.protocol.clips.random_clip import sum_random_clipped
from fedhist.protocol.keyed import KeyedSum
from fedhist.protocol.measurements import open_statistics
from fedhist.protocol.measurements.expected_counts import (
    SHARE_BITS,
    bucketed_length,
    bucketed_statistic,
    plain_header_length,
    plain_statistic,
    read_bucketed,
    read_plain,
)
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.selection.exponential_v import error_bound
from tests.asking import select_request

ONE = 1 << SHARE_BITS
CANDIDATES = np.array([1, 2, 5, 9, 30])
CAP = 30

counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 2**28))
populations = st.integers(1, 6).flatmap(
    lambda items: st.lists(st.lists(counts, min_size=items, max_size=items), min_size=1, max_size=8)
)


def plain_tail(histograms, candidates=CANDIDATES, cap=CAP):
    header, keyed = plain_statistic(histograms, candidates, cap)
    return read_plain(header, keyed, candidates, users=histograms.users), keyed


def table_of(tail):
    """All pieces, as whole multiples of 2^-SHARE_BITS."""
    pieces = list(tail.expected.pieces())
    return np.concatenate(pieces) if pieces else np.zeros((0, len(tail.overflow)), dtype=np.int64)


def by_item(histograms, candidates=CANDIDATES, cap=CAP):
    """A_j(C) of every item, items that nobody has as zeros."""
    tail, keyed = plain_tail(histograms, candidates, cap)
    present = np.unique(keyed.keys // (len(candidates) + 1))
    full = np.zeros((histograms.domain_size, len(candidates)), dtype=np.int64)
    full[present] = table_of(tail)
    return full


def expected_counts(rows, candidates):
    """A_j(C) = sum_i N_ij min(1, C/m_i), in fractions."""
    items = len(rows[0])
    table = [[Fraction(0)] * len(candidates) for _ in range(items)]
    for row in rows:
        total = sum(row)
        for item, (k, bound) in itertools.product(range(items), enumerate(candidates)):
            if total:
                table[item][k] += row[item] * min(Fraction(1), Fraction(bound, total))
    return table


@given(rows=populations)
@settings(max_examples=100, deadline=None)
def test_expected_counts_are_those_of_the_definition_within_rounding(make_histograms, rows):
    """Each clipped user's share is rounded by less than 2^-SHARE_BITS, so A_j(C) by less than C of them a user."""
    found = by_item(make_histograms(rows))
    exact = expected_counts(rows, CANDIDATES.tolist())
    for item, (k, bound) in itertools.product(range(len(rows[0])), enumerate(CANDIDATES.tolist())):
        clipped = sum(sum(row) > bound and row[item] > 0 for row in rows)
        assert abs(Fraction(int(found[item, k]), ONE) - exact[item][k]) <= Fraction(bound * clipped, ONE)
        if clipped == 0:
            assert found[item, k] == exact[item][k] * ONE


@given(row=st.lists(counts, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_a_users_parts_sum_to_exactly_what_clipping_keeps(make_histograms, row):
    """The sensitivity proofs stand on this: min(m, C) in fixed point, no rounding left over."""
    found = by_item(make_histograms([row]))
    assert (found >= 0).all()
    assert found.sum(axis=0).tolist() == [min(sum(row), int(bound)) * ONE for bound in CANDIDATES]


def test_they_are_the_means_of_random_clipping(make_histograms):
    row, users = [40, 1, 0, 7, 22], 20_000
    population = make_histograms([row] * users)
    for k, bound in enumerate(CANDIDATES):
        mean = sum_random_clipped(population, int(bound), source=SeededSource(2)) / users
        expected = by_item(make_histograms([row]))[:, k] / ONE
        assert np.abs(mean - expected).max() < 5 * np.sqrt(bound) / np.sqrt(users)


@given(rows=populations)
@settings(max_examples=100, deadline=None)
def test_overflow_and_users_above_are_exact_and_totals_are_cut(make_histograms, rows):
    tail, _ = plain_tail(make_histograms(rows))
    totals = [sum(row) for row in rows]
    assert tail.users == len(rows)
    assert tail.users_above.tolist() == [sum(total > bound for total in totals) for bound in CANDIDATES]
    assert tail.overflow.tolist() == [
        sum(max(min(total, CAP) - int(bound), 0) for total in totals) for bound in CANDIDATES
    ]


def test_a_total_above_the_largest_candidate_counts_as_that(make_histograms):
    """Ten times the items, the same statistic: only the shares count."""
    for row in ([30, 60, 10], [300, 600, 100], [3_000_000, 6_000_000, 1_000_000]):
        tail, _ = plain_tail(make_histograms([row]))
        assert tail.overflow.tolist() == [29, 28, 25, 21, 0]
        assert np.abs(by_item(make_histograms([row]))[:, -1] / ONE - [9, 18, 3]).max() <= 30 / ONE


@given(rows=populations, salt=st.integers(0, 50), spare=st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_buckets_without_collisions_say_the_same_as_items(make_histograms, rows, salt, spare):
    histograms = make_histograms(rows)
    buckets = histograms.domain_size + spare
    bucket_of = np.random.default_rng(salt).permutation(buckets)[: histograms.domain_size]
    vector = bucketed_statistic(histograms, CANDIDATES, CAP, bucket_of=bucket_of, buckets=buckets)
    assert len(vector) == bucketed_length(len(CANDIDATES), buckets)
    tail, _ = plain_tail(histograms)
    hashed = read_bucketed(vector, CANDIDATES, users=histograms.users)
    assert hashed.users_above.tolist() == tail.users_above.tolist()
    assert hashed.overflow.tolist() == tail.overflow.tolist()
    table = table_of(hashed)
    assert table[bucket_of].tolist() == by_item(histograms).tolist()
    assert table.sum() == by_item(histograms).sum()


@given(rows=populations, salt=st.integers(0, 50), buckets=st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_items_that_meet_in_a_bucket_are_added(make_histograms, rows, salt, buckets):
    histograms = make_histograms(rows)
    bucket_of = np.random.default_rng(salt).integers(0, buckets, size=histograms.domain_size)
    vector = bucketed_statistic(histograms, CANDIDATES, CAP, bucket_of=bucket_of, buckets=buckets)
    summed = np.zeros((buckets, len(CANDIDATES)), dtype=np.int64)
    np.add.at(summed, bucket_of, by_item(histograms))
    assert table_of(read_bucketed(vector, CANDIDATES, users=histograms.users)).tolist() == summed.tolist()


@given(rows=populations, cut=st.integers(0, 8))
@settings(max_examples=80, deadline=None)
def test_every_sharding_adds_up_to_the_same(make_histograms, rows, cut):
    whole = make_histograms(rows, first_user=3)
    cut = min(cut, whole.users)
    parts = [whole.rows(0, cut), whole.rows(cut, whole.users)]
    header, keyed = plain_statistic(whole, CANDIDATES, CAP)
    headers, total = np.zeros_like(header), KeyedSum(2)
    for part in parts:
        one, some = plain_statistic(part, CANDIDATES, CAP)
        headers += one
        total.add(some)
    assert len(header) == plain_header_length(len(CANDIDATES))
    assert headers.tolist() == header.tolist()
    assert total.total().keys.tolist() == keyed.keys.tolist()
    assert total.total().values.tolist() == keyed.values.tolist()
    bucket_of = np.arange(whole.domain_size) % 3
    vectors = [
        bucketed_statistic(one, CANDIDATES, CAP, bucket_of=bucket_of, buckets=3) for one in (whole, *parts)
    ]
    assert vectors[0].tolist() == sum(vectors[1:]).tolist()


def test_a_crowd_is_the_sum_of_its_users(make_histograms):
    """More users than there are totals below the largest candidate, at, between and beyond the candidates."""
    generator = np.random.default_rng(6)
    rows = generator.integers(0, 12, size=(300, 4)) * generator.integers(0, 3, size=(300, 1))
    rows[:40, 0], rows[:40, 1:] = np.arange(40), 0
    rows[40] = [2**30, 2**29, 7, 0]
    crowd = make_histograms(rows.tolist())
    header, keyed = plain_statistic(crowd, CANDIDATES, CAP)
    headers, total = np.zeros_like(header), KeyedSum(2)
    for user in range(crowd.users):
        one, some = plain_statistic(crowd.rows(user, user + 1), CANDIDATES, CAP)
        headers += one
        total.add(some)
    assert headers.tolist() == header.tolist()
    assert total.total().keys.tolist() == keyed.keys.tolist()
    assert total.total().values.tolist() == keyed.values.tolist()


@given(
    row=st.lists(st.one_of(st.integers(1, 5), st.integers(1, (2**31 - 1) // 6)), min_size=1, max_size=6),
    before=st.lists(st.integers(0, 2**28), max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_shares_are_rounded_in_whole_numbers_whoever_comes_before(make_histograms, row, before):
    """q_j = floor((S_j 2^16 + m/2)/m) - floor((S_{j-1} 2^16 + m/2)/m): every device must find the same."""
    row = [*row, *([0] * (6 - len(row)))]
    first = [*before, *([0] * (6 - len(before)))]
    total = sum(row)
    running = [((sum(row[:j]) << SHARE_BITS) + total // 2) // total for j in range(7)]
    expected = [b - a for a, b in itertools.pairwise(running)]
    candidates = np.array([1])
    for rows in ([row], [first, row]):
        _, keyed = plain_statistic(make_histograms(rows).rows(len(rows) - 1, len(rows)), candidates, 1)
        found = np.zeros(6, dtype=np.int64)
        found[keyed.keys // 2] = keyed.values[:, 1]
        assert found.tolist() == (expected if total > 1 else [0] * 6)


def test_few_items_and_very_many_are_summed_alike(make_histograms):
    """A small domain is summed without a sort and a large one with; the large one has the same items far apart."""
    rows = np.random.default_rng(1).integers(0, 12, size=(60, 4))
    near, far = np.zeros((60, 4), dtype=int), np.zeros((60, 4000), dtype=int)
    near[:], far[:, ::1000] = rows, rows
    _, first = plain_tail(make_histograms(near.tolist()))
    _, second = plain_tail(make_histograms(far.tolist()))
    width = len(CANDIDATES) + 1
    assert (second.keys // width).tolist() == (first.keys // width * 1000).tolist()
    assert (second.keys % width).tolist() == (first.keys % width).tolist()
    assert second.values.tolist() == first.values.tolist()


def test_pieces_of_any_size_hold_the_same_rows(make_histograms, monkeypatch):
    rows = np.random.default_rng(2).integers(0, 5, size=(50, 40)).tolist()
    whole, _ = plain_tail(make_histograms(rows))
    expected = table_of(whole).tolist()
    monkeypatch.setattr(open_statistics, "_CHUNK_CELLS", 20)
    pieces = list(whole.expected.pieces())
    assert len(pieces) > 5
    assert np.concatenate(pieces).tolist() == expected


def test_a_message_tells_of_nobodys_clipped_items_more_than_their_shares(make_histograms):
    """A user above every candidate sends no count, one at or below the smallest no share."""
    _, keyed = plain_tail(make_histograms([[700, 300]]))
    assert keyed.values[:, 0].tolist() == [0, 0]
    assert keyed.values[:, 1].sum() == ONE
    _, keyed = plain_tail(make_histograms([[1, 0]]))
    assert keyed.values.tolist() == [[1, 0]]


@pytest.mark.parametrize("rows", [[[0, 0]], [[0, 0]] * 5], ids=["one", "five"])
def test_users_without_items(make_histograms, rows):
    tail, keyed = plain_tail(make_histograms(rows))
    assert keyed.length == 0
    assert not tail.users_above.any()
    assert not tail.overflow.any()
    assert len(table_of(tail)) == 0
    vector = bucketed_statistic(make_histograms(rows), CANDIDATES, CAP, bucket_of=np.array([1, 0]), buckets=2)
    assert not vector.any()


# --- V(C), as the selector reads it.


def v_of(plan, histograms):
    request = select_request(plan)
    table = bucket_table(plan, range(histograms.domain_size))
    sent = answer(request, histograms, source=SeededSource(1), bucket_of=table)
    if sent.keyed is None:
        tail = read_bucketed(sent.values, plan.candidate_steps, users=sent.users)
    else:
        tail = read_plain(sent.values, sent.keyed, plan.candidate_steps, users=sent.users)
    return error_bound(plan, tail)


def printed_v(rows, bound, bar, cap):
    """V(C) = 2 sum_i max(m_i - C, 0) + sum_j min(sum_i C N_ij / max(C, m_i), t), totals cut to C_m."""
    overflow = sum(max(min(sum(row), cap) - bound, 0) for row in rows)
    expected = (
        sum(Fraction(bound * row[item], max(bound, sum(row))) for row in rows) for item in range(len(rows[0]))
    )
    return 2 * overflow + sum(min(a, Fraction(bar)) for a in expected)


@pytest.mark.parametrize("release", ["truncated-laplace", "laplace-threshold", "laplace-threshold-paper"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_v_is_the_papers_formula_with_the_releases_own_bar(make_histograms, release, neighbours):
    generator = np.random.default_rng(4)
    for _ in range(6):
        rows = generator.integers(0, 4, size=(40, 5)) * generator.integers(0, 9, size=(40, 1))
        rows[0, 0] = 900
        rows[:, 0] += 5
        plan = Plan(
            users=40, domain="open", release=release, neighbours=neighbours,
            epsilon=3.0, delta=0.05, max_threshold=40, candidates=7,
        )  # fmt: skip
        found = v_of(plan, make_histograms(rows.tolist()))
        bars = [noise.bar for noise in plan.open_noises(plan.candidate_steps)]
        minimum_took_hold = False
        for k, bound in enumerate(plan.candidate_steps.tolist()):
            exact = printed_v(rows.tolist(), bound, bars[k], 40)
            assert abs(Fraction(int(found[k]), ONE) - exact) <= Fraction(40 * 5 * bound, ONE)
            minimum_took_hold |= exact < printed_v(rows.tolist(), bound, 10**9, 40)
        assert minimum_took_hold


def test_the_printed_threshold_is_the_papers(make_histograms):
    """t = C + (C/eps) ln(C/(2 delta)), rounded up to whole counts."""
    plan = Plan(users=9, domain="open", release="laplace-threshold-paper", epsilon=1.0, delta=1e-6)
    bounds = plan.candidate_steps
    bars = np.array([noise.bar for noise in plan.open_noises(bounds)])
    printed = bounds + bounds * np.log(bounds / 2e-6)
    assert (bars >= printed - 1e-6).all()
    assert (bars < printed + 1 + 1e-6).all()


def test_v_by_buckets_never_exceeds_v_by_items_and_meets_it_when_nobody_collides(make_histograms):
    """min(a + b, t) <= min(a, t) + min(b, t): adding items up can only lower V."""
    rows = np.random.default_rng(5).poisson(0.4, size=(300, 30)).tolist()
    settings_ = {
        "users": 300,
        "domain": "open",
        "epsilon": 3.0,
        "delta": 0.01,
        "max_threshold": 30,
        "candidates": 6,
    }
    exact = v_of(Plan(**settings_), make_histograms(rows))
    few = v_of(Plan(**settings_, statistic="bucketed", buckets=4), make_histograms(rows))
    many = v_of(Plan(**settings_, statistic="bucketed", buckets=2**15), make_histograms(rows))
    assert (few <= exact).all()
    assert (few < exact).any()
    assert many.tolist() == exact.tolist()
