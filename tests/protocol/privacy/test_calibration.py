"""The noise that a budget buys is enough, to the last digit, and hardly more than enough."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan
from tests.oracles import gaussian_delta
from tests.support.api import (
    InvalidPlan,
    check_delta,
    check_epsilon,
    classic_multiplier,
    gaussian_epsilon,
    noise_multiplier,
)
from tests.support.refusals import refused

EPSILONS = (0.001, 0.01, 0.1, 1.0, 5.0, 20.0, 50.0)
DELTAS = (1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.4)


def test_known_answers() -> None:
    assert noise_multiplier(1.0, 1e-6) == pytest.approx(4.22, abs=0.005)
    assert classic_multiplier(1.0, 1e-6) == pytest.approx(5.31, abs=0.005)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_analytic_noise_is_the_least_that_suffices(epsilon: float, delta: float) -> None:
    multiplier = noise_multiplier(epsilon, delta)
    assert gaussian_delta(multiplier, epsilon) <= delta
    assert gaussian_delta(multiplier * (1 - 1e-9), epsilon) > delta


@settings(max_examples=200, deadline=None, derandomize=True)
@given(log_epsilon=st.floats(-12, 6), log_delta=st.floats(-300, math.log10(0.499)))
def test_analytic_noise_suffices_at_every_budget(log_epsilon: float, log_delta: float) -> None:
    epsilon, delta = 10**log_epsilon, 10**log_delta
    assert gaussian_delta(noise_multiplier(epsilon, delta), epsilon) <= delta


@settings(max_examples=200, deadline=None, derandomize=True)
@given(log_multiplier=st.floats(-4, 4), log_delta=st.floats(-300, math.log10(0.499)))
def test_the_epsilon_of_noise_suffices_and_is_hardly_more_than_the_least(
    log_multiplier: float, log_delta: float
) -> None:
    multiplier, delta = 10**log_multiplier, 10**log_delta
    epsilon = gaussian_epsilon(multiplier, delta)
    assert gaussian_delta(multiplier, epsilon) <= delta
    # Where one user moves the sum by thousands of deviations, few digits of the two tails are left.
    if epsilon > 0 and log_multiplier > -2 and log_delta > -20:
        assert gaussian_delta(multiplier, epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("epsilon", [1e-9, 0.001, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("delta", [*DELTAS, 0.499])
def test_classic_noise_suffices_where_it_is_allowed_and_is_never_less_than_analytic(
    epsilon: float, delta: float
) -> None:
    classic = classic_multiplier(epsilon, delta)
    assert gaussian_delta(classic, epsilon) <= delta
    assert classic >= noise_multiplier(epsilon, delta)


def test_classic_refuses_an_epsilon_above_one_because_its_proof_stops_there() -> None:
    assert Plan(users=10, items=3, release="classic-gaussian").multiplier == classic_multiplier(1.0, 1e-6)
    with refused(InvalidPlan, "classic-above-1"):
        Plan(users=10, items=3, release="classic-gaussian", epsilon=1.0001)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, -math.inf, math.nan, 10**400, "1", None, True])
def test_a_bad_epsilon_is_refused_by_name(value: float) -> None:
    with refused(InvalidPlan, "bad-epsilon"):
        check_epsilon(value, "select_epsilon")
    with pytest.raises(InvalidPlan):
        noise_multiplier(value, 1e-6)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, -1e-6, math.inf, math.nan, "1e-6", None, False])
def test_a_bad_delta_is_refused_by_name(value: float) -> None:
    with refused(InvalidPlan, "bad-delta"):
        check_delta(value, "release_delta")
    with pytest.raises(InvalidPlan):
        noise_multiplier(1.0, value)


@pytest.mark.parametrize("value", [1, 0.1, np.float64(1.5), np.int64(2), np.float32(0.5)])
def test_every_kind_of_number_is_accepted(value: float) -> None:
    check_epsilon(value, "epsilon")
    assert noise_multiplier(value, 1e-6) == noise_multiplier(float(value), 1e-6)
