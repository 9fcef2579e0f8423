"""The tail as devices measure it before they add noise: sensitivity by brute force, and what comes out again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedhist.client.device import add_noise_share, answer
from fedhist.protocol.errors import InvalidInput, InvalidPlan, OutOfBounds
from fedhist.protocol.measurements.bounds import check_contribution
from fedhist.protocol.measurements.noisy_tail import (
    NoisyTail,
    read_noisy_tail,
    running_sum_root,
    tail_measurement,
    toeplitz_sensitivity,
)
from fedhist.protocol.measurements.tail import read_tail, tail_vector
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Neighbours, Norm
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Contribution
from fedhist.protocol.wire.codec import decode, encode, largest_noise, largest_value
from tests.asking import release_at, select_request

relations = pytest.mark.parametrize("neighbours", list(Neighbours))
SELECTORS = [
    ("gaussian", "weighted-quantile"),
    ("gaussian", "m-quantile"),
    ("laplace", "quantile"),
    ("laplace", "weighted-quantile"),
]
selectors = pytest.mark.parametrize(("mechanism", "selector"), SELECTORS)
SOURCE = SeededSource(3)


def plan_of(**settings):
    usual = {"users": 100, "items": 4, "masking": "secagg", "participants": 10, "noise_from": "devices"}
    return Plan(**(usual | settings))


def dense(coefficients):
    """R itself: column i is the coefficients from row i on."""
    size = len(coefficients)
    return np.array([[coefficients[i - j] if i >= j else 0 for j in range(size)] for i in range(size)])


@relations
@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("bits", [None, 2, 8])
def test_the_sensitivity_is_that_of_the_columns(norm, bits, neighbours):
    coefficients = running_sum_root(11, bits)
    columns = dense(coefficients).T
    largest = 3
    moves = [largest * column for column in columns]
    if neighbours is Neighbours.REPLACE:
        weights = range(largest + 1)
        moves = [
            w * one - v * other
            for one, other in itertools.product(columns, repeat=2)
            for w, v in itertools.product(weights, repeat=2)
        ]
    worst = max(np.linalg.norm(move.astype(float), ord=1 if norm is Norm.L1 else 2) for move in moves)
    claimed = toeplitz_sensitivity(coefficients, largest, norm=norm, neighbours=neighbours)
    assert claimed.value == pytest.approx(worst, rel=1e-12)


@relations
@selectors
def test_no_user_moves_the_vector_by_more_than_is_charged_and_one_does_by_as_much(
    make_histograms, mechanism, selector, neighbours
):
    plan = plan_of(
        mechanism=mechanism, selector=selector, neighbours=neighbours, candidates=12, max_threshold=60.0
    )
    request = select_request(plan)
    others = [[2, 0, 1, 0], [9, 9, 0, 0]]
    # All items alike have the largest weight, sqrt(4); one item alone the smallest. In every bin.
    sizes = [0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 20, 25, 31, 100]
    users = [[size] * 4 for size in sizes] + [[size, 0, 0, 0] for size in sizes]
    sent = [answer(request, make_histograms([*others, user]), source=SOURCE).values for user in users]
    without = answer(request, make_histograms(others), source=SOURCE).values
    pairs = (
        itertools.product(sent, repeat=2)
        if neighbours is Neighbours.REPLACE
        else ((a, without) for a in sent)
    )
    order = 2 if mechanism == "gaussian" else 1
    moved = max(np.linalg.norm((a - b).astype(float), ord=order) for a, b in pairs)
    claimed = tail_measurement(plan).sensitivity.value
    assert moved <= claimed * (1 + 1e-12)
    assert moved > 0.99 * claimed


@selectors
def test_what_is_read_without_noise_is_the_tail(make_histograms, mechanism, selector):
    plan = plan_of(mechanism=mechanism, selector=selector, max_threshold=200.0)
    rows = [[i % 7, (i * i) % 23, i % 2, i] for i in range(100)]
    users = make_histograms(rows)
    exact = read_tail(
        tail_vector(users, plan.candidate_steps, bits=plan.grid_bits, norm=plan.norm, cap=plan.tail_cap),
        users=100,
    )
    sent = answer(select_request(plan), users, source=SOURCE)
    tail = read_noisy_tail(sent.values, plan, users=100, shares=10)
    assert isinstance(tail, NoisyTail)
    counted = tail_measurement(plan).counted
    np.testing.assert_allclose(
        tail.values, exact.counts if counted else exact.weights / 1024, atol=1e-6 if counted else 0.2
    )


def test_noise_on_the_sums_above_grows_with_the_logarithm_not_the_root_of_the_candidates():
    narrow, wide = (
        read_noisy_tail(np.zeros(k, dtype=np.int64), plan_of(candidates=k), users=1, shares=9)
        for k in (32, 512)
    )
    assert wide.deviations[0] < 2 * narrow.deviations[0]
    assert wide.deviations[0] > wide.deviations[-1]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_noise_on_what_is_read_has_the_stated_deviation(mechanism):
    plan = plan_of(mechanism=mechanism, candidates=16)
    share = select_request(plan).noise_share
    vectors = sum(share.draw(600 * 16, source=SOURCE.fork(one)) for one in range(4)).reshape(600, 16)
    read = np.array([read_noisy_tail(vector, plan, users=1, shares=4).values for vector in vectors])
    zeros = np.zeros(16, dtype=np.int64)
    stated = read_noisy_tail(zeros, plan, users=1, shares=4).deviations
    assert np.abs(read.mean(axis=0) / stated).max() < 5 / 600**0.5
    # A share of Laplace noise has heavy tails: its variance is estimated less well.
    assert read.std(axis=0) / stated == pytest.approx(1, abs=0.15 if mechanism == "gaussian" else 0.35)


@selectors
def test_only_the_column_that_is_read_travels(make_histograms, mechanism, selector):
    plan = plan_of(mechanism=mechanism, selector=selector)
    request = select_request(plan)
    assert request.length == len(plan.candidate_steps)
    sent = answer(request, make_histograms([[50] * 4] * 3), source=SOURCE)
    assert sent.values.shape == (request.length,)
    assert sent.values.max() <= 3 * largest_value(request)
    check_contribution(sent, request)
    again, _ = decode(encode(sent, request), request)
    np.testing.assert_array_equal(again.values, sent.values)
    beyond = np.full(request.length, 3 * largest_value(request) + 1)
    with pytest.raises(OutOfBounds):
        check_contribution(Contribution(sent.round, plan.digest, 3, beyond), request)


def test_a_users_weight_is_rounded_to_what_the_noise_can_hide_anyway():
    small, large = plan_of(sparsity=1), plan_of(items=100_000, users=10)
    assert tail_measurement(small).shift < tail_measurement(large).shift
    assert tail_measurement(large).largest * (1 << tail_measurement(large).shift) == pytest.approx(
        large.tail_cap, rel=1e-3
    )


def test_shares_of_the_two_rounds_and_of_two_participants_differ():
    plan = plan_of(items=128, candidates=128)
    select, release = select_request(plan), release_at(plan, plan.at_steps(4096))
    zeros = np.zeros(128, dtype=np.int64)
    one = add_noise_share(select, zeros, source=SOURCE.fork(1))
    assert (one == add_noise_share(select, zeros, source=SOURCE.fork(1))).all()
    assert (one != add_noise_share(select, zeros, source=SOURCE.fork(2))).any()
    second = add_noise_share(release, zeros, source=SOURCE.fork(1))
    assert abs(np.corrcoef(one, second)[0, 1]) < 0.4
    assert not zeros.any()


def test_the_noise_stays_inside_its_reach():
    for mechanism in ("gaussian", "laplace"):
        plan = plan_of(mechanism=mechanism)
        for request in (select_request(plan), release_at(plan, plan.at_steps(9000))):
            zeros = np.zeros(request.length, dtype=np.int64)
            total = sum(add_noise_share(request, zeros, source=SOURCE.fork(i)) for i in range(10))
            assert 0 < np.abs(total).max() < largest_noise(request)


def test_noise_from_the_server_takes_no_share():
    request = select_request(Plan(users=10, items=2))
    assert request.noise_share is None
    with pytest.raises(InvalidInput, match="share of noise"):
        add_noise_share(request, np.zeros(request.length, dtype=np.int64), source=SOURCE)
    with pytest.raises(InvalidInput, match="share of noise"):
        add_noise_share(select_request(plan_of()), np.zeros(3, dtype=np.int64), source=SOURCE)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"selector": "oracle"}, "oracle reads an exact statistic.*weighted-quantile"),
        ({"selector": "median"}, "median reads an exact statistic"),
        ({"debias": "poisson"}, "clipped one by one"),
        ({"delta_select": 0.0}, "delta-select is 0"),
        ({"epsilon_select": 1e-6}, "too large to draw in shares"),
        ({"epsilon": 400.0, "users": 10**6, "participants": 10**6}, "narrower than 4 steps"),
    ],
)
def test_what_devices_can_not_noise_is_refused(settings, reason):
    with pytest.raises(InvalidPlan, match=reason):
        plan_of(**settings)


def test_a_larger_smallest_threshold_makes_room_for_many_shares():
    settings = {"epsilon": 30.0, "users": 10**6, "participants": 10**6}
    with pytest.raises(InvalidPlan, match="min-threshold"):
        plan_of(**settings)
    plan = plan_of(**settings, min_threshold=100.0)
    share = release_at(plan, plan.at_steps(0)).noise_share
    assert share.spread >= 16
    plan_of(**settings, selector="fixed", threshold=100.0)
