"""Estimates are nearer than values where there is something to learn, and the values themselves where not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.support.api import (
    Noise,
    NoiseLaw,
    estimates_and_limits,
    gaussian_variance,
    laplace_scale,
    law_of_noise,
)

DEVIATION = 200.0
NOISES = {
    "gaussian": Noise("discrete-gaussian", gaussian_variance(Fraction(DEVIATION**2))),
    "laplace": Noise("discrete-laplace", laplace_scale(Fraction(DEVIATION / 2**0.5))),
}
both = pytest.mark.parametrize("noise", NOISES.values(), ids=list(NOISES))


def estimate(values: np.ndarray, law: NoiseLaw) -> np.ndarray:
    return estimates_and_limits(values, law)[0]


def draws(noise: Noise, shape: tuple[int, ...], seed: int) -> np.ndarray:
    generator = np.random.Generator(np.random.Philox(seed))
    if noise.kind == "discrete-gaussian":
        return np.rint(generator.normal(0, DEVIATION, shape)).astype(np.int64)
    return np.rint(generator.laplace(0, DEVIATION / 2**0.5, shape)).astype(np.int64)


def ratio(noise: Noise, counts: np.ndarray, *, taken: float = 0.0, repeats: int = 60) -> float:
    """The error of the estimates over that of the values, where clipping took this share of every true count."""
    law, true = law_of_noise(noise), counts / (1 - taken)
    values = counts.astype(np.int64) + draws(noise, (repeats, len(counts)), seed=len(counts))
    estimates = np.array([estimate(row, law) for row in values])
    return float(np.abs(estimates - true).sum() / np.abs(values - true).sum())


@both
def test_they_are_not_negative_keep_the_order_and_are_the_same_each_time(noise: Noise) -> None:
    values = np.sort(draws(noise, (500,), seed=1) + np.repeat([0, 300, 5000, 10**9, -(10**15)], 100))
    found = estimate(values, law_of_noise(noise))
    assert np.array_equal(found, estimate(values, law_of_noise(noise)))
    assert np.isfinite(found).all() and (found >= 0).all() and (np.diff(found) >= 0).all()
    shuffled = np.random.Generator(np.random.Philox(2)).permutation(len(values))
    assert np.array_equal(estimate(values[shuffled], law_of_noise(noise)), found[shuffled])


@both
def test_values_far_above_the_noise_and_those_without_any_are_left_alone(noise: Noise) -> None:
    values = np.concatenate([np.arange(2000, 10**6, 997), draws(noise, (300,), seed=3)])
    far = values > 8.2 * DEVIATION
    assert np.array_equal(estimate(values, law_of_noise(noise))[far], values[far])
    silent = law_of_noise(Noise("discrete-laplace", Fraction(1, 10**6)))
    assert np.array_equal(estimate(values, silent), np.maximum(values, 0))
    assert estimate(values[:0], law_of_noise(noise)).shape == (0,)


@both
@pytest.mark.parametrize("items", [1, 2, 3, 5, 10, 20])
@pytest.mark.parametrize("pattern", ["equal", "two", "spread", "span"])
def test_a_few_items_are_not_harmed(noise: Noise, items: int, pattern: str) -> None:
    """Equal counts, two kinds of them, evenly spread ones, and many orders of magnitude."""
    place = np.arange(items)
    patterns = {
        "equal": np.full(items, 3.0),
        "two": np.where(place % 2, 1.0, 5.0),
        "spread": 1.7 * place,
        "span": np.geomspace(0.3, 10**6, items),
    }
    for taken in (0.0, 0.3):
        assert ratio(noise, DEVIATION * patterns[pattern], taken=taken, repeats=20 + 100 // items) <= 1.02


@both
def test_many_small_items_gain_and_a_heavy_clip_takes_the_gain_but_no_more(noise: Noise) -> None:
    small = DEVIATION * np.geomspace(0.01, 3, 2000)
    assert ratio(noise, small, repeats=3) < 0.8
    assert ratio(noise, np.concatenate([small, 10**6 * small]), repeats=3) < 0.9
    assert ratio(noise, small, taken=0.95, repeats=3) <= 1.005
