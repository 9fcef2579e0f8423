"""Each sampler passes against its exact distribution and is shown to fail against one that is 1 % wider."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy import special, stats

from fedhist import SeededSource, SystemSource
from tests.oracles import chi_square_p
from tests.support.api import (
    LARGEST_GAUSSIAN_VARIANCE,
    LARGEST_LAPLACE_SCALE,
    Floats,
    Integers,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    gaussian_variance,
    laplace_scale,
)
from tests.support.api import noise_module as noise

DRAWS = 2_000_000
PASSES = 1e-3  # seeds are fixed: a sampler that is right passes always or never, and these pass
REJECTS = 1e-9
# What can't be seeded may fail by chance once in a million runs.
PASSES_UNSEEDED = 1e-6

LAPLACE_SCALES = [0.7, 3.0, 50.0, 1e6, float(LARGEST_LAPLACE_SCALE)]
GAUSSIAN_SIGMAS = [0.7, 3.0, 50.0, 1e6, float(LARGEST_GAUSSIAN_VARIANCE) ** 0.5]

Cdf = Callable[[Integers], Floats]


def laplace_cdf(scale: float) -> Cdf:
    """P(X < x) in closed form: a tail of geometric terms on either side."""

    def below(x: Integers) -> Floats:
        both = 1 + np.exp(-1 / scale)
        return np.asarray(np.where(x > 0, 1 - np.exp(-x / scale) / both, np.exp((x - 1) / scale) / both))

    return below


def gaussian_cdf(sigma: float) -> Cdf:
    """P(X < x): summed term by term for a narrow one, and by the midpoint rule for a wide one.

    The rule's relative error is below 1/(24 sigma^2), 10^-13 for the sigmas it is used for.
    """
    if sigma > 1e5:
        return lambda x: special.ndtr((x - 0.5) / sigma)
    reach = int(40 * sigma) + 40
    terms = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    cumulative = np.concatenate([[0.0], np.cumsum(terms) / terms.sum()])
    return lambda x: cumulative[np.clip(x + reach, 0, 2 * reach + 1)]


def cell_edges(width: float) -> Integers:
    """At most 81 cells over 8 widths, one for each integer where that is fewer, and two for the tails."""
    step = max(1, round(width / 10))
    return step * np.arange(-int(4 * width / step) - 1, int(4 * width / step) + 2, dtype=np.int64)


def counts(draws: Integers, edges: Integers) -> Integers:
    return np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)


def p_value(draws: Integers, width: float, below: Cdf) -> float:
    """Of the chi-square test of the draws against the distribution."""
    edges = cell_edges(width)
    expected = len(draws) * np.diff(np.concatenate([[0.0], below(edges), [1.0]]))
    return chi_square_p(counts(draws, edges), expected)


@lru_cache
def laplace_draws(scale: float) -> Integers:
    return discrete_laplace(DRAWS, laplace_scale(Fraction(scale)), source=SeededSource(11))


@lru_cache
def gaussian_draws(sigma: float) -> Integers:
    variance = min(Fraction(sigma) ** 2, LARGEST_GAUSSIAN_VARIANCE)
    return discrete_gaussian(DRAWS, gaussian_variance(variance), source=SeededSource(12))


@pytest.mark.parametrize(
    ("draws_of", "cdf", "width"),
    [
        *((laplace_draws, laplace_cdf, scale) for scale in LAPLACE_SCALES),
        *((gaussian_draws, gaussian_cdf, sigma) for sigma in GAUSSIAN_SIGMAS),
    ],
)
def test_draws_have_their_distribution_and_no_other(
    draws_of: Callable[[float], Integers], cdf: Callable[[float], Cdf], width: float
) -> None:
    draws = draws_of(width)
    assert p_value(draws, width, cdf(width)) > PASSES
    for wrong in (0.99, 1.01):
        assert p_value(draws, width, cdf(wrong * width)) < REJECTS


def test_draws_from_the_operating_system_have_the_distribution_too() -> None:
    source = SystemSource()
    laplace = discrete_laplace(500_000, Fraction(3), source=source)
    gaussian = discrete_gaussian(500_000, Fraction(9), source=source)
    assert p_value(laplace, 3.0, laplace_cdf(3.0)) > PASSES_UNSEEDED
    assert p_value(gaussian, 3.0, gaussian_cdf(3.0)) > PASSES_UNSEEDED


@pytest.mark.parametrize("draws_of", [laplace_draws, gaussian_draws])
@pytest.mark.parametrize("width", [0.7, 50.0])
def test_signs_are_fair_and_draws_unrelated(draws_of: Callable[[float], Integers], width: float) -> None:
    draws = draws_of(width)
    positive, negative = int((draws > 0).sum()), int((draws < 0).sum())
    assert abs(positive - negative) < 5 * (positive + negative) ** 0.5
    for lag in (1, 2, 64):
        for values in (draws, np.abs(draws), np.sign(draws)):
            correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
            assert abs(correlation) < 5 / DRAWS**0.5
    assert abs(np.corrcoef(np.sign(draws), np.abs(draws))[0, 1]) < 5 / DRAWS**0.5


def test_the_widest_noise_does_not_wrap_around() -> None:
    # Beyond 8 standard deviations nothing is expected; a product that wrapped would land anywhere in 64 bits.
    gaussian = gaussian_draws(GAUSSIAN_SIGMAS[-1])
    assert np.abs(gaussian).max() < 8 * GAUSSIAN_SIGMAS[-1]
    assert gaussian.std() == pytest.approx(GAUSSIAN_SIGMAS[-1], rel=5 / (2 * DRAWS) ** 0.5)
    laplace = laplace_draws(LAPLACE_SCALES[-1])
    assert np.abs(laplace).max() < 40 * LAPLACE_SCALES[-1]
    assert np.abs(laplace).mean() == pytest.approx(LAPLACE_SCALES[-1], rel=5 / DRAWS**0.5)


def test_what_arrays_leave_to_single_draws_has_the_same_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    # Long runs and far proposals are rare: here everything but the shortest and nearest is taken for one.
    monkeypatch.setattr(noise, "_ARRAY_RUN", 1)
    monkeypatch.setattr(noise, "_GAUSSIAN_NEAR", 1)
    draws = discrete_gaussian(60_000, Fraction(9), source=SeededSource(13))
    assert p_value(draws, 3.0, gaussian_cdf(3.0)) > PASSES
    assert p_value(draws, 3.0, gaussian_cdf(3.0 * 1.05)) < REJECTS


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("width", [3.0, 1000.0])
def test_opendp_draws_from_the_same_distributions(kind: str, width: float) -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T=int))
    if kind == "laplace":
        theirs, cdf = dp.m.make_laplace(integers, dp.l1_distance(T=int), scale=width), laplace_cdf
    else:
        theirs, cdf = dp.m.make_gaussian(integers, dp.l2_distance(T=float), scale=width), gaussian_cdf
    draws = np.array(theirs([0] * 40_000))
    assert p_value(draws, width, cdf(width)) > PASSES_UNSEEDED
    assert p_value(draws, width, cdf(1.08 * width)) < PASSES_UNSEEDED


@pytest.mark.parametrize(
    "gamma", [Fraction(1, 10), Fraction(2, 3), Fraction(1), Fraction(7, 3), Fraction(1e-3)]
)
def test_bernoulli_exp_succeeds_as_often_as_it_says(gamma: Fraction) -> None:
    source = SeededSource(15)
    tosses = 30_000
    successes = sum(bernoulli_exp(gamma, source=source) for _ in range(tosses))
    assert stats.binomtest(successes, tosses, np.exp(-float(gamma))).pvalue > PASSES
    assert stats.binomtest(successes, tosses, np.exp(-float(gamma)) * 0.85).pvalue < REJECTS


def test_one_over_e_is_tossed_in_arrays_as_it_should() -> None:
    successes = int(noise._tosses_inverse_e(DRAWS, SeededSource(16)).sum())
    assert stats.binomtest(successes, DRAWS, np.exp(-1)).pvalue > PASSES
    assert stats.binomtest(successes, DRAWS, np.exp(-1) * 1.01).pvalue < REJECTS
