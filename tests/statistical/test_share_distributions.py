"""Shares of noise sum to what is charged for, and tests of that reject a tenth more or fewer shares."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from fedhist import SeededSource, SystemSource
from tests.oracles import chi_square_p, gaussian_chances
from tests.support.api import Floats, Integers, Share, laplace_scale, negative_binomial, uniform_from_one

DRAWS = 200_000
PASSES = 1e-3  # seeds are fixed: a sampler that is right passes always or never, and these pass
REJECTS = 1e-9
SHARES = 10
SCALE = 12.0
VARIANCE = 16.0


def laplace_pmf(xs: Integers, scale: float) -> Floats:
    return np.tanh(0.5 / scale) * np.exp(-np.abs(xs) / scale)


def gaussian_pmf(xs: Integers, variance: float) -> Floats:
    reach = 60 + int(40 * variance**0.5)
    return gaussian_chances(variance, reach)[xs + reach]


def p_value(draws: Integers, reach: int, pmf: Floats) -> float:
    """Of the chi-square test over the whole numbers from -reach to reach, whose chances `pmf` holds, and the rest."""
    observed = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    observed = np.append(observed[1:-1], observed[0] + observed[-1])
    expected = len(draws) * np.append(pmf, 1 - pmf.sum())
    return chi_square_p(observed, expected)


@lru_cache
def running_sums(kind: str) -> list[Integers]:
    """The sums of 1, 2, ... participants' shares, each with a source of its own."""
    spread = Fraction(VARIANCE) if kind == "gaussian" else laplace_scale(Fraction(SCALE))
    share = Share(f"discrete-{kind}-shares", spread, SHARES)
    source = SeededSource(21)
    drawn = (share.draw(DRAWS, source=source.fork("participant", n)) for n in range(SHARES + 1))
    return list(itertools.accumulate(drawn))


def summed(kind: str, count: int) -> Integers:
    return running_sums(kind)[count - 1]


XS = np.arange(-60, 61)


def claimed_pmf(kind: str, *, scale: float = 1.0) -> Floats:
    """Of n_min shares: the discrete Laplace of the plan, the discrete Gaussian of n_min times the variance."""
    if kind == "laplace":
        return laplace_pmf(XS, SCALE * scale)
    return gaussian_pmf(XS, SHARES * VARIANCE * scale**2)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_n_min_shares_sum_to_the_claimed_noise_and_a_tenth_more_or_fewer_do_not(kind: str) -> None:
    assert p_value(summed(kind, SHARES), 60, claimed_pmf(kind)) > PASSES
    for count in (SHARES - 1, SHARES + 1):
        assert p_value(summed(kind, count), 60, claimed_pmf(kind)) < REJECTS
    for scale in (0.97, 1.03):
        assert p_value(summed(kind, SHARES), 60, claimed_pmf(kind, scale=scale)) < REJECTS


@pytest.mark.parametrize("shares", [1, 2, 7, 60])
@pytest.mark.parametrize("scale", [0.6, 5.0, 3000.0])
def test_a_share_is_negative_binomial(shares: int, scale: float) -> None:
    draws = negative_binomial(
        DRAWS, laplace_scale(Fraction(scale)), shares=shares, source=SeededSource(22 + shares)
    )
    exact = stats.nbinom(1 / shares, -np.expm1(-1 / scale))
    # Zero, and cells of equal chance beyond.
    zero = exact.pmf(0)
    beyond = exact.ppf(zero + (1 - zero) * np.linspace(0, 1, 20)[1:-1])
    edges = np.unique(np.append(beyond, 0).astype(np.int64))
    cells = np.searchsorted(edges, draws, side="left")

    def p(of: object) -> float:
        expected = DRAWS * np.diff(np.concatenate([[0.0], of.cdf(edges), [1.0]]))
        observed = np.bincount(cells, minlength=len(edges) + 1)
        return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(edges)))

    assert p(exact) > PASSES
    for wrong in (
        stats.nbinom(1.4 / shares, exact.args[1]),
        stats.nbinom(1 / shares, -np.expm1(-1 / (1.3 * scale))),
    ):
        assert p(wrong) < REJECTS


def test_shares_from_the_operating_system_sum_to_the_claimed_noise_too() -> None:
    share = Share("discrete-laplace-shares", laplace_scale(Fraction(SCALE)), 3)
    total = sum(share.draw(50_000, source=SystemSource()) for _ in range(3))
    assert p_value(np.asarray(total), 60, laplace_pmf(XS, SCALE)) > 1e-6


@pytest.mark.parametrize("shares", [2, 3, 6])
def test_sums_of_gaussian_shares_are_as_close_as_the_slack_says(shares: int) -> None:
    """At a variance far below the allowed 16, where the distance can be seen in doubles."""
    variance = 2.0
    far = np.arange(-60, 61)
    total = one = gaussian_pmf(far, variance)
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    near = np.arange(-8, 9)
    ratio = np.abs(np.log(total[middle - 8 : middle + 9] / gaussian_pmf(near, shares * variance))).max()
    claimed = Share("discrete-gaussian-shares", Fraction(variance), shares).slack(1) / 2
    assert ratio < claimed
    if shares == 2:
        assert ratio > claimed / 10


@pytest.mark.parametrize("bound", [6, 3 * 2**30, 2**32 - 5, 5 * 2**60])
def test_numbers_below_a_bound_are_equally_likely(bound: int) -> None:
    draws = uniform_from_one(np.full(120_000, bound), source=SeededSource(23))
    assert draws.min() >= 1 and draws.max() <= bound
    cells = np.bincount(((draws - 1).astype(object) * 6 // bound).astype(np.int64), minlength=6)
    assert stats.chisquare(cells).pvalue > PASSES
    # Taking words modulo 3 * 2^30 would hit the lowest third twice as often.
    skewed = cells + np.array([1500, 1500, 0, 0, 0, 0])
    assert stats.chisquare(skewed).pvalue < PASSES


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_no_sum_passes_its_reach(kind: str) -> None:
    share = Share(
        f"discrete-{kind}-shares",
        Fraction(VARIANCE) if kind == "gaussian" else laplace_scale(Fraction(SCALE)),
        SHARES,
    )
    most = int(np.abs(summed(kind, SHARES + 1)).max())
    assert most <= share.reach(DRAWS, SHARES + 1)
    assert most > share.reach(DRAWS, SHARES + 1, failure=1.0) / 4
