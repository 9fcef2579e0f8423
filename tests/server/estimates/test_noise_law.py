"""The law of the noise is the exact one: every chance against sums over all whole numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import nbinom

from fedhist import Neighbours
from tests.support.api import (
    Noise,
    NoiseLaw,
    Share,
    law_above_bar,
    law_of_noise,
    law_of_shares,
    truncated_laplace,
)

WHOLE = np.arange(-4000, 4001)
TRUNCATED = truncated_laplace(4, epsilon=0.5, delta=1e-3, neighbours=Neighbours.ZERO_OUT)


def negative_binomials(scale: float, shape: float) -> np.ndarray:
    one = nbinom.pmf(np.arange(4001), shape, 1 - np.exp(-1 / scale))
    return np.convolve(one, one[::-1])


LAWS: dict[str, tuple[NoiseLaw, np.ndarray, float]] = {
    "gaussian": (law_of_noise(Noise("discrete-gaussian", Fraction(9))), np.exp(-(WHOLE**2) / 18), 1.3e-4),
    "wide gaussian": (
        law_of_shares(Share("discrete-gaussian-shares", Fraction(400), 5), 8),
        np.exp(-(WHOLE**2) / 6400),
        1e-9,
    ),
    "laplace": (law_of_noise(Noise("discrete-laplace", Fraction(7, 2))), np.exp(-np.abs(WHOLE) / 3.5), 1e-12),
    "all shares of laplace": (
        law_of_shares(Share("discrete-laplace-shares", Fraction(7, 2), 5), 5),
        np.exp(-np.abs(WHOLE) / 3.5),
        1e-12,
    ),
    "more shares of laplace": (
        law_of_shares(Share("discrete-laplace-shares", Fraction(20), 5), 8),
        negative_binomials(20.0, 1.6),
        1e-9,
    ),
    "truncated": (
        law_above_bar(TRUNCATED),
        np.exp(-np.abs(WHOLE) / float(TRUNCATED.scale)) * (np.abs(WHOLE) <= TRUNCATED.bar),
        1e-12,
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_every_chance_is_the_sum_of_its_parts(name: str) -> None:
    law, weights, error = LAWS[name]
    tails = np.cumsum((weights / weights.sum())[::-1])[::-1]
    near = np.abs(WHOLE) < 500
    assert law.reaching(WHOLE[near]) == pytest.approx(tails[near], abs=error)


@pytest.mark.parametrize("name", LAWS)
def test_a_radius_is_the_smallest_that_holds_the_level(name: str) -> None:
    law, weights, error = LAWS[name]
    chances = weights / weights.sum()
    for level in (0.5, 0.95, 0.999):
        radius = law.radius(level)
        assert chances[np.abs(WHOLE) <= radius].sum() >= level - 2 * error
        assert chances[np.abs(WHOLE) < radius].sum() < level + 2 * error


def test_a_law_too_wide_for_the_table_is_read_off_a_narrower_one() -> None:
    narrow, wide = (
        law_of_shares(Share("discrete-laplace-shares", Fraction(scale), 5), 7) for scale in (1024, 1024 * 64)
    )
    assert wide.radius(0.95) / narrow.radius(0.95) == pytest.approx(64, rel=2e-3)
