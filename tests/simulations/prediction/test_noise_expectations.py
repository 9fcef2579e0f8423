"""Closed forms of expected errors against sums over all outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan
from tests.support.api import LaplaceTails, barred_loss, folded_normal, shown_chance


def laplace_outcomes(scale: float, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """All values that matter and their chances."""
    reach = limit if limit is not None else int(60 * scale) + 60
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(values) / scale)
    return values, weights / weights.sum()


scales = st.floats(0.05, 40.0)
limits = st.none() | st.integers(1, 200)
wholes = st.integers(-80, 120)


def tails_of(scale: float, limit: int | None) -> LaplaceTails:
    return LaplaceTails(np.array([scale]), None if limit is None else np.array([float(limit)]))


@settings(max_examples=200, deadline=None)
@given(scales, limits, wholes, wholes)
def test_laplace_tails_are_sums_over_all_outcomes(
    scale: float, limit: int | None, least: int, gap: int
) -> None:
    values, chances = laplace_outcomes(scale, limit)
    tails = tails_of(scale, limit)
    at, to = np.array([float(least)]), np.array([float(gap)])
    close = {"rel": 1e-9, "abs": 1e-9}
    assert tails.reaching(at)[0] == pytest.approx(chances[values >= least].sum(), **close)
    assert tails.excess(at)[0] == pytest.approx((np.maximum(values - least, 0) * chances).sum(), **close)
    assert tails.distance(to)[0] == pytest.approx((np.abs(values - gap) * chances).sum(), **close)
    shown = values >= least
    expected = (np.abs(values - gap) * chances)[shown].sum()
    assert tails.distance_from(at, to)[0] == pytest.approx(expected, **close)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 60), st.integers(0, 80), st.sampled_from(["truncated-laplace", "laplace-threshold"]))
def test_a_key_is_lost_below_the_bar_and_noisy_above(kept: int, more: int, release: str) -> None:
    plan = Plan(users=10, domain="open", release=release, epsilon=0.7, delta=1e-2, max_threshold=5)
    (noise,) = plan.open_noises(np.array([5]))
    limit = noise.bar if release == "truncated-laplace" else None
    values, chances = laplace_outcomes(float(noise.scale), limit)
    true = kept + more
    passes = (kept + values > noise.bar) & (kept > 0)
    expected = (np.where(passes, np.abs(kept + values - true), true) * chances).sum()
    tails = tails_of(float(noise.scale), limit)
    bar = np.array([float(noise.bar)])
    loss = barred_loss(np.array([float(kept)]), np.array([float(true)]), bar, tails)
    assert loss[0] == pytest.approx(expected, rel=1e-9)
    chance = shown_chance(np.array([float(kept)]), bar, tails)
    assert chance[0] == pytest.approx(chances[passes].sum(), abs=1e-12)


def test_an_expected_sum_between_two_whole_numbers_is_the_mean_over_both() -> None:
    tails, bar, true = tails_of(3.0, None), np.array([9.0]), np.array([20.0])
    low, high, between = (barred_loss(np.array([x]), true, bar, tails)[0] for x in (7.0, 8.0, 7.25))
    assert between == pytest.approx(0.75 * low + 0.25 * high)
    assert shown_chance(np.array([0.5]), bar, tails)[0] == pytest.approx(
        0.5 * shown_chance(np.array([1.0]), bar, tails)[0]
    )


@pytest.mark.parametrize("gap", [0.0, 0.5, 7.0, 30.0, 200.0])
@pytest.mark.parametrize("deviation", [3.0, 20.0])
def test_the_folded_normal_is_the_discrete_gaussian_s(gap: float, deviation: float) -> None:
    values = np.arange(-2000, 2001)
    weights = np.exp(-(values**2) / (2 * deviation**2))
    expected = (np.abs(values - gap) * weights).sum() / weights.sum()
    found = folded_normal(np.array([gap]), np.array([deviation]))[0]
    assert found == pytest.approx(expected, rel=1 / (6 * deviation**2))
