"""Hypergeometric draws: the share of uniform numbers that gives a value is its exact probability."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.support.api import Floats, Integers, hypergeometric

BELOW_ONE = 1 - 2.0**-53


def repeated(good: int, bad: int, draws: int, uniforms: Floats) -> Integers:
    """The same urn for every uniform number."""
    sizes = (np.full(len(uniforms), size) for size in (good, bad, draws))
    return hypergeometric(*sizes, uniforms=uniforms)


def one(good: int, bad: int, draws: int, uniform: float) -> int:
    return int(repeated(good, bad, draws, np.array([uniform]))[0])


def shares(good: int, bad: int, draws: int, cells: int) -> Floats:
    """The share of equally spaced uniform numbers that gives each value from 0 to `draws`.

    Each value takes one interval of the uniform numbers, so its share is its probability up to one cell.
    """
    drawn = repeated(good, bad, draws, (np.arange(cells) + 0.5) / cells)
    assert np.count_nonzero(np.diff(drawn)) <= len(np.unique(drawn)) - 1, "a value has more than one interval"
    return np.bincount(drawn, minlength=draws + 1) / cells


def exact(good: int, bad: int, draws: int) -> Floats:
    return np.asarray(stats.hypergeom(good + bad, good, draws).pmf(np.arange(draws + 1)))


def test_every_small_urn_against_exact_fractions() -> None:
    cells = 4096
    for good, bad in itertools.product(range(7), repeat=2):
        for draws in range(good + bad + 1):
            found = shares(good, bad, draws, cells)
            ways = [math.comb(good, k) * math.comb(bad, draws - k) for k in range(draws + 1)]
            chances = [float(Fraction(way, math.comb(good + bad, draws))) for way in ways]
            assert np.abs(found - chances).max() <= 1 / cells + 1e-12, (good, bad, draws)


@pytest.mark.parametrize(
    ("good", "bad", "draws"),
    [
        (1, 99, 50),
        (99, 1, 50),
        (50, 50, 1),
        (50, 50, 99),
        (200, 300, 120),
        (1000, 3, 900),
        (3, 1000, 900),
        (1500, 1500, 1499),
        (40_000, 20_000, 700),
        (400_000, 200_000, 700),
        (2**30, 2**20, 64),
    ],
)
def test_larger_urns_against_scipy_and_not_the_binomial(good: int, bad: int, draws: int) -> None:
    cells = 20_000
    found = shares(good, bad, draws, cells)
    assert np.abs(found - exact(good, bad, draws)).max() <= 1 / cells + 1e-6
    with_replacement = stats.binom(draws, good / (good + bad)).pmf(np.arange(draws + 1))
    if draws > (good + bad) / 10:
        assert np.abs(found - with_replacement).max() > 20 / cells


urns = st.integers(0, 10**6).flatmap(
    lambda good: st.integers(0, 10**6).flatmap(
        lambda bad: st.tuples(st.just(good), st.just(bad), st.integers(0, good + bad))
    )
)
small_urns = st.tuples(st.integers(0, 9), st.integers(0, 9)).flatmap(
    lambda balls: st.tuples(st.just(balls[0]), st.just(balls[1]), st.integers(0, sum(balls)))
)
uniforms = st.one_of(
    st.sampled_from([0.0, 2.0**-53, BELOW_ONE]), st.integers(0, 2**53 - 1).map(lambda i: i / 2**53)
)


@given(batch=st.lists(st.tuples(st.one_of(urns, small_urns), uniforms), max_size=6))
@settings(max_examples=80, deadline=None)
def test_a_batch_is_its_draws_one_by_one_and_no_draw_leaves_the_support(batch) -> None:
    good, bad, draws = (np.array([urn[i] for urn, _ in batch], dtype=np.int64) for i in range(3))
    together = hypergeometric(good, bad, draws, uniforms=np.array([uniform for _, uniform in batch]))
    assert together.tolist() == [one(*urn, uniform) for urn, uniform in batch]
    assert (together >= np.maximum(0, draws - bad)).all()
    assert (together <= np.minimum(good, draws)).all()


def first_change(good: Integers, bad: Integers, draws: Integers, since: Integers | int = 0) -> Floats:
    """For each urn, the least uniform number above since/2^53 that gives another value than that one does.

    Since 0 it is the probability of the mode.
    """
    low, high = np.zeros(len(good), dtype=np.int64) + since, np.full(len(good), 2**53 - 1)
    value = hypergeometric(good, bad, draws, uniforms=np.ldexp(low.astype(float), -53))
    while (high - low > 1).any():
        middle = (low + high) // 2
        same = hypergeometric(good, bad, draws, uniforms=np.ldexp(middle.astype(float), -53)) == value
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.ldexp(high.astype(float), -53)


def test_a_giant_in_the_batch_changes_nobody_elses_draw_not_by_one_rounding() -> None:
    """At the very uniform numbers where a draw turns."""
    generator = np.random.default_rng(3)
    good, bad = generator.integers(2, 25_000, size=(2, 400))
    draws = generator.integers(1, good + bad)
    turn = first_change(good, bad, draws)
    for uniform in (turn, turn - 2.0**-53):
        alone = hypergeometric(good, bad, draws, uniforms=uniform)
        beside = hypergeometric(
            np.append(good, 2**29),
            np.append(bad, 2**29),
            np.append(draws, 8),
            uniforms=np.append(uniform, 0.5),
        )
        assert (beside[:-1] == alone).all()


def test_a_batch_of_any_size_draws_the_same_not_off_by_one_rounding() -> None:
    """At the very uniform numbers where a draw turns from one value to the next, near the mode and far out."""
    generator = np.random.default_rng(4)
    users = 3000
    good, bad = generator.integers(2, 400, size=(2, users))
    draws = generator.integers(1, good + bad)
    turn = first_change(good, bad, draws, generator.integers(0, 2**53 - 1, size=users))
    for uniforms in (turn, turn - 2.0**-53):
        whole = hypergeometric(good, bad, draws, uniforms=uniforms)
        for size, upto in ((1, 300), (40, users), (700, users)):
            for start in range(0, upto, size):
                part = slice(start, start + size)
                alone = hypergeometric(good[part], bad[part], draws[part], uniforms=uniforms[part])
                assert (alone == whole[part]).all()


@pytest.mark.parametrize(
    ("good", "bad", "draws", "error"),
    [
        (32_000, 33_000, 32_000, 2e-9),
        (60_000, 5_000, 30_000, 2e-9),
        (500_000, 499_999, 400_000, 2e-9),
        (2**30, 2**30 - 1, 2**30, 2e-5),
    ],
)
def test_probabilities_are_as_accurate_as_the_docstring_says(
    good: int, bad: int, draws: int, error: float
) -> None:
    mode = one(good, bad, draws, 0.0)
    found = first_change(np.array([good]), np.array([bad]), np.array([draws]))[0]
    with mpmath.workdps(40):
        chance = mpmath.binomial(good, mode) * mpmath.binomial(bad, draws - mode)
        chance /= mpmath.binomial(good + bad, draws)
        assert abs(found / chance - 1) < error
