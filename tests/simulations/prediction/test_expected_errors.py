"""Closed forms of expected errors against sums over all outcomes of the discrete laws that releases draw from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan
from tests.support.api import barred, distance, reaching


def laplace_outcomes(scale: float) -> tuple[np.ndarray, np.ndarray]:
    """All values that matter and their probabilities."""
    values = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61)
    weights = np.exp(-np.abs(values) / scale)
    return values, weights / weights.sum()


wholes = st.integers(0, 300)


@settings(max_examples=200, deadline=None)
@given(st.floats(3.0, 60.0), st.integers(-200, 200), wholes, wholes)
def test_laplace_errors_are_sums_over_all_outcomes(scale: float, least: int, gap: int, more: int) -> None:
    """The discrete law against the continuous one: within its step of one."""
    values, chances = laplace_outcomes(scale)
    at, to, true = np.array([least - 0.5]), np.array([float(gap)]), np.array([float(gap + more)])
    assert reaching(at, scale)[0] == pytest.approx(chances[values >= least].sum(), abs=0.01)
    found = distance(to, scale, normal=False)[0]
    assert found == pytest.approx((np.abs(values - gap) * chances).sum(), rel=0.02)
    shown = values >= least
    expected = (np.where(shown, np.abs(values - gap), true) * chances).sum()
    assert barred(to, true, at, scale)[0] == pytest.approx(expected, rel=0.02, abs=0.02 * scale)


@pytest.mark.parametrize("release", ["truncated-laplace", "laplace-threshold"])
@pytest.mark.parametrize(("kept", "more"), [(1, 0), (20, 5), (120, 0), (120, 30)])
def test_a_key_is_lost_below_the_bar_and_noisy_above(release: str, kept: int, more: int) -> None:
    plan = Plan(users=10, domain="open", release=release, epsilon=0.7, delta=1e-5, max_threshold=5)
    (noise,) = plan.open_noises(np.array([5]))
    values, chances = laplace_outcomes(float(noise.scale))
    inside = np.abs(values) <= noise.bar if release == "truncated-laplace" else np.abs(values) < np.inf
    chances = np.where(inside, chances, 0) / chances[inside].sum()
    true = kept + more
    expected = (np.where(kept + values > noise.bar, np.abs(kept + values - true), true) * chances).sum()
    least = np.array([noise.bar - kept + 0.5])
    found = barred(np.array([float(more)]), np.array([float(true)]), least, float(noise.scale))[0]
    assert found == pytest.approx(expected, rel=0.02, abs=0.01)


@pytest.mark.parametrize("gap", [0.0, 0.5, 7.0, 30.0, 200.0])
@pytest.mark.parametrize("deviation", [3.0, 20.0])
def test_the_normal_distance_is_the_discrete_gaussian_s(gap: float, deviation: float) -> None:
    values = np.arange(-2000, 2001)
    weights = np.exp(-(values**2) / (2 * deviation**2))
    expected = (np.abs(values - gap) * weights).sum() / weights.sum()
    found = distance(np.array([gap]), np.array([deviation]), normal=True)[0]
    assert found == pytest.approx(expected, rel=1 / (6 * deviation**2))
