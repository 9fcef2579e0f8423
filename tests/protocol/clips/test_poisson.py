"""Poisson debiasing: exact functions, and an inverse for every input."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import InvalidInput
from tests.support.api import (
    clipped_mean,
    clipped_mean_slope,
    debias_poisson,
    debiased_standard_error,
    inverse_clipped_mean,
)
from tests.support.refusals import refused

THRESHOLDS = (0.25, 1.0, 2.0, 2.5, 5.0, 100.0, 100 + 1 / 1024, 1e4)
LARGEST_RATE = 1e6


def rates_around(threshold: float) -> list[float]:
    """Far below, around and far above the threshold; fewer where the reference sums ten thousand terms."""
    spread = math.sqrt(threshold)
    if threshold > 1000:
        return [1e-12, threshold - 0.3 * spread, threshold + 4.5 * spread, 1e6]
    near = [threshold + z * spread for z in (-4.0, -0.3, 0.3, 4.5)]
    apart = [1e-12, 0.3, 1.0, 7.0, threshold / 3, threshold, 3 * threshold, 1e5, 1e6]
    return sorted({rate for rate in near + apart if rate > 0})


def exact_clipped_mean(rate: mpmath.mpf, threshold: float) -> mpmath.mpf:
    """C - sum over x <= C of (C - x) P(X = x), term by term, in as many digits as the caller set."""
    bound, probability, lost = mpmath.mpf(threshold), mpmath.exp(-rate), mpmath.mpf(0)
    for count in range(math.floor(threshold) + 1):
        lost += (bound - count) * probability
        probability *= rate / (count + 1)
    return bound - lost


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_clipped_mean_is_exact_to_ten_digits(threshold: float) -> None:
    rates = rates_around(threshold)
    means = clipped_mean(np.array(rates), threshold)
    with mpmath.workdps(40):
        for rate, mean in zip(rates, means, strict=True):
            exact = exact_clipped_mean(mpmath.mpf(rate), threshold)
            assert abs(mean - exact) < 1e-12 * exact, rate


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_slope_is_the_derivative_of_the_exact_clipped_mean(threshold: float) -> None:
    rates = rates_around(threshold)
    slopes = clipped_mean_slope(np.array(rates), threshold)
    for rate, slope in zip(rates, slopes, strict=True):
        with mpmath.workdps(60):
            middle = mpmath.mpf(rate)
            width = middle * mpmath.mpf(10) ** -20
            rise = exact_clipped_mean(middle + width, threshold) - exact_clipped_mean(
                middle - width, threshold
            )
            exact = rise / (2 * width)
        assert slope == pytest.approx(float(exact), rel=1e-10, abs=1e-30), rate


thresholds = st.one_of(
    st.integers(1, 10 * 1024).map(lambda steps: steps / 1024),
    st.integers(10 * 1024, 10_000 * 1024).map(lambda steps: steps / 1024),
)


def rates_for(threshold: float) -> st.SearchStrategy[list[float]]:
    """Low rates, rates up to three thresholds, of every size, and within eight deviations of the threshold."""
    rate = st.one_of(
        st.floats(0, 3),
        st.floats(0, 3).map(lambda share: share * threshold),
        st.floats(-12, 6).map(lambda power: 10**power),
        st.floats(-8, 8).map(lambda z: abs(threshold + z * math.sqrt(threshold))),
    )
    return st.lists(rate, min_size=1, max_size=20)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(case=thresholds.flatmap(lambda threshold: st.tuples(st.just(threshold), rates_for(threshold))))
def test_round_trip_wherever_the_slope_leaves_digits(case: tuple[float, list[float]]) -> None:
    threshold, rates = case[0], np.array(case[1])
    means = clipped_mean(rates, threshold)
    found = inverse_clipped_mean(means, threshold, largest_rate=LARGEST_RATE)
    steep = clipped_mean_slope(rates, threshold) > 1e-6
    assert (np.abs(found - rates) <= 1e-8 * (1 + rates))[steep].all()
    assert np.allclose(clipped_mean(found, threshold), means, rtol=1e-13, atol=0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    means=st.lists(st.floats(allow_nan=False), max_size=20),
    threshold=st.one_of(st.floats(0, 1e4), thresholds),
    largest_rate=st.floats(0, 1e6, exclude_min=True),
)
def test_every_mean_has_a_rate_in_range(means: list[float], threshold: float, largest_rate: float) -> None:
    edges = [threshold, math.nextafter(threshold, 0), math.nextafter(threshold, math.inf), threshold / 2]
    given_means = np.array(means + edges)
    rates = inverse_clipped_mean(given_means, threshold, largest_rate=largest_rate)
    assert ((rates >= 0) & (rates <= largest_rate)).all()
    ceiling = clipped_mean(np.array([largest_rate]), threshold)
    reached = np.clip(given_means, 0, ceiling)
    assert np.allclose(clipped_mean(rates, threshold), reached, rtol=1e-12, atol=1e-300)


def test_a_threshold_of_zero_says_nothing() -> None:
    assert np.array_equal(clipped_mean(np.array([0.0, 3.0]), 0.0), np.zeros(2))
    assert np.array_equal(
        inverse_clipped_mean(np.array([-1.0, 0.0, 1.0]), 0.0, largest_rate=5.0), np.zeros(3)
    )
    errors = debiased_standard_error(
        np.array([0.0, 1.0]), users=10, threshold=0.0, standard_error=1.0, largest_rate=5.0
    )
    assert np.array_equal(errors, np.full(2, math.inf))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        *(({"threshold": wrong}, "bad-threshold") for wrong in (-1.0, math.nan, math.inf)),
        *(({"largest_rate": wrong}, "bad-largest-rate") for wrong in (0.0, -1.0, math.nan, math.inf)),
        ({"values": np.array([math.nan])}, "mean-not-a-number"),
        ({"users": 0}, "bad-users"),
        ({"standard_error": math.nan}, "bad-standard-error"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], code: str) -> None:
    good = {
        "values": np.array([1.0]),
        "users": 3,
        "threshold": 2.0,
        "largest_rate": 5.0,
        "standard_error": 1.0,
    }
    with refused(InvalidInput, code):
        debiased_standard_error(**(good | change))


def test_standard_error_is_the_spread_that_noise_causes_after_debiasing() -> None:
    generator = np.random.default_rng(4)
    users, threshold, rate, scale = 2_000, 2.0, 1.0, 20.0
    expected = users * clipped_mean(np.array([rate]), threshold)
    released = expected + generator.laplace(scale=scale, size=20_000)
    spread = debias_poisson(released, users=users, threshold=threshold, largest_rate=50.0).std()
    error = math.sqrt(2) * scale
    claimed = debiased_standard_error(
        expected, users=users, threshold=threshold, standard_error=error, largest_rate=50.0
    )
    assert claimed == pytest.approx(error * math.e / 2)
    assert spread == pytest.approx(claimed[0], rel=0.03)
    assert spread > 1.3 * error
