"""The tail as devices measure it before they add noise: its design by brute force, and what is read off again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedhist import InvalidInput, Neighbours, Plan, SeededSource
from tests.asking import release_at, select_request
from tests.support.api import (
    NOTHING,
    InvalidPlan,
    Norm,
    TailMeasurement,
    Total,
    add_noise_share,
    answer,
    running_sum_root,
    selector_for,
    toeplitz_sensitivity,
)
from tests.support.refusals import refused

SOURCE = SeededSource(3)


def plan_of(**settings):
    usual = {"users": 100, "items": 4, "masking": "secagg", "participants": 10, "noise_from": "devices"}
    return Plan(**(usual | settings))


def measurement_of(**settings):
    return select_request(plan_of(**settings)).measurement


def read_zeros(measurement, shares):
    zeros = np.zeros(measurement.shape.length, dtype=np.int64)
    return measurement.read(Total(1, zeros, shares=shares))


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("bits", [None, 2, 8])
def test_the_sensitivity_is_that_of_the_columns(norm, bits, neighbours):
    size, largest = 11, 3
    coefficients = running_sum_root(size, bits)
    # Column i of R is the coefficients from row i on.
    columns = [np.concatenate([np.zeros(i, dtype=np.int64), coefficients[: size - i]]) for i in range(size)]
    moves = [largest * column for column in columns]
    if neighbours is Neighbours.REPLACE_ONE:
        weights = range(largest + 1)
        moves = [
            w * one - v * other
            for one, other in itertools.product(columns, repeat=2)
            for w, v in itertools.product(weights, repeat=2)
        ]
    worst = max(np.linalg.norm(move.astype(float), ord=1 if norm is Norm.L1 else 2) for move in moves)
    claimed = toeplitz_sensitivity(coefficients, largest, norm=norm, neighbours=neighbours)
    assert claimed.value == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize(
    ("mechanism", "selector"),
    [
        ("gaussian", "weighted-quantile"),
        ("gaussian", "m-quantile"),
        ("laplace", "quantile"),
        ("laplace", "weighted-quantile"),
    ],
)
def test_what_is_read_without_noise_is_the_tail(make_histograms, mechanism, selector):
    plan = plan_of(mechanism=mechanism, selector=selector, max_threshold=200.0)
    users = make_histograms([[i % 7, (i * i) % 23, i % 2, i] for i in range(100)])
    request, whole = select_request(plan), TailMeasurement(replace(plan, noise_from="server"), NOTHING)
    exact = whole.read(Total(100, whole.of(users, source=SOURCE).values))
    sent = answer(request, users, source=SOURCE, labels=range(4))
    tail = request.measurement.read(Total(100, sent.values, shares=10))
    counted = request.measurement.design.counted
    np.testing.assert_allclose(
        tail.values, exact.counts if counted else exact.weights / 1024, atol=1e-6 if counted else 0.2
    )


def test_noise_on_the_sums_above_grows_with_the_logarithm_not_the_root_of_the_candidates():
    narrow, wide = (read_zeros(measurement_of(candidates=k), 9) for k in (32, 512))
    assert wide.deviations[0] < 2 * narrow.deviations[0]
    assert wide.deviations[0] > wide.deviations[-1]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_noise_on_what_is_read_has_the_stated_deviation(mechanism):
    one = measurement_of(mechanism=mechanism, candidates=16)
    vectors = sum(one.share.draw(600 * 16, source=SOURCE.fork(i)) for i in range(4)).reshape(600, 16)
    read = np.array([one.read(Total(1, vector, shares=4)).values for vector in vectors])
    stated = read_zeros(one, 4).deviations
    assert np.abs(read.mean(axis=0) / stated).max() < 5 / 600**0.5
    # A share of Laplace noise has heavy tails: its variance is estimated less well.
    assert read.std(axis=0) / stated == pytest.approx(1, abs=0.15 if mechanism == "gaussian" else 0.35)


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


@pytest.mark.parametrize(("plan", "length"), [(Plan(users=10, items=2), 258), (plan_of(), 3)])
def test_values_that_take_no_share_are_refused(plan, length):
    with refused(InvalidInput, "no-noise-to-share"):
        add_noise_share(select_request(plan), np.zeros(length, dtype=np.int64), source=SOURCE)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"selector": "oracle"}, "reads-exact-statistic"),
        ({"selector": "median"}, "selector-does-not-fit"),
        ({"debias": "poisson"}, "device-noise-for-items"),
        ({"delta_select": 0.0}, "no-delta-select"),
        ({"epsilon_select": 1e-6}, "noise-too-wide"),
        ({"epsilon": 400.0, "users": 10**6, "participants": 10**6}, "shares-too-narrow"),
    ],
)
def test_what_devices_can_not_noise_is_refused(settings, code):
    with refused(InvalidPlan, code):
        selector_for(plan_of(**settings))
