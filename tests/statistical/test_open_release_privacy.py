"""The printed Algorithm 3 shows who is there; noising the clipped support alone does not. Exactly, and by drawing.

One user has many keys that nobody else has, so any of them in a release proves that the user took part: the chance
of that is a lower bound of delta. The printed algorithm noises every key of positive *unclipped* total.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats

from fedhist import Neighbours, SeededSource
from tests.oracles import chi_square_p, laplace_chances, passing_chance
from tests.support.api import (
    Integers,
    OpenNoise,
    OpenNoiseKind,
    Source,
    bars_for,
    paper_bars,
    truncated_laplace,
    uniform_below,
)

PASSES = 1e-3  # seeds are fixed: what is right passes always or never, and these pass
REJECTS = 1e-9


# --- The leak.


def test_the_printed_algorithm_gives_a_user_of_a_million_items_a_delta_of_four_percent() -> None:
    items, threshold, epsilon, delta = 10**6, 10, 1.0, 1e-6
    scale = threshold / epsilon
    bar = threshold + scale * math.log(threshold / (2 * delta))

    def passes(count: int) -> float:
        return 0.5 * math.exp(-(bar - count) / scale)

    clipped_away = items - threshold
    none_shown = threshold * math.log1p(-passes(1)) + clipped_away * math.log1p(-passes(0))
    assert -math.expm1(none_shown) == pytest.approx(0.036, abs=0.0005)
    assert -math.expm1(threshold * math.log1p(-passes(1))) < delta


@pytest.mark.parametrize("bars", [partial(bars_for, "laplace-threshold"), paper_bars], ids=["least", "paper"])
def test_whole_noise_and_a_rounded_bar_do_not_help_the_printed_algorithm(bars: Any) -> None:
    (noise,) = bars([10], epsilon=1.0, delta=1e-6, neighbours=Neighbours.ZERO_OUT)
    # A count of 0 is never noised here; the printed algorithm does, which is 1 below a count of 1.
    passes_with_one = passing_chance(noise, 1)
    chance_of_none = passes_with_one * math.exp(-1 / float(noise.scale))
    printed = -math.expm1(10 * math.log1p(-passes_with_one) + (10**6 - 10) * math.log1p(-chance_of_none))
    assert printed > 0.03
    assert -math.expm1(10 * math.log1p(-passes_with_one)) == pytest.approx(noise.delta, rel=1e-9)
    assert noise.delta <= 1e-6


def random_clip(counts: Integers, threshold: int, source: Source) -> Integers:
    """min(total, C) items of one user without replacement, an item at a time."""
    bag = np.repeat(np.arange(len(counts)), counts)
    for place in range(min(threshold, len(bag))):
        other = place + uniform_below(len(bag) - place, source=source)
        bag[[place, other]] = bag[[other, place]]
    return np.bincount(bag[:threshold], minlength=len(counts))


THRESHOLD, ITEMS, EPSILON = 5, 6000, 1.0


def releases_with_a_key(noise: OpenNoise, *, literal: bool, trials: int, seed: int) -> int:
    """In how many releases some key of a user is shown who alone has 6,000 items, once each."""
    source = SeededSource(seed)
    owned = np.ones(ITEMS, dtype=np.int64)
    hits = 0
    for _ in range(trials):
        clipped = random_clip(owned, THRESHOLD, source)
        noised = np.flatnonzero(owned if literal else clipped)
        hits += bool((clipped[noised] + noise.draw(len(noised), source=source) > noise.bar).any())
    return hits


def test_end_to_end_the_printed_algorithm_shows_the_user_hundreds_of_times_too_often() -> None:
    delta, trials = 1e-3, 200
    (noise,) = paper_bars([THRESHOLD], epsilon=EPSILON, delta=delta, neighbours=Neighbours.ZERO_OUT)
    hits = releases_with_a_key(noise, literal=True, trials=trials, seed=1)
    passes_with_one = passing_chance(noise, 1)
    chance_of_none = passes_with_one * math.exp(-1 / float(noise.scale))
    expected = 1 - (1 - passes_with_one) ** THRESHOLD * (1 - chance_of_none) ** (ITEMS - THRESHOLD)
    assert expected > 250 * delta
    assert stats.binomtest(hits, trials, expected).pvalue > PASSES
    assert stats.binomtest(hits, trials, delta, alternative="greater").pvalue < REJECTS


@pytest.mark.parametrize(
    "bars",
    [*(partial(bars_for, kind) for kind in get_args(OpenNoiseKind)), paper_bars],
    ids=[*get_args(OpenNoiseKind), "paper"],
)
def test_end_to_end_noise_on_the_clipped_support_alone_keeps_to_delta(bars: Any) -> None:
    # This few releases can distinguish such a delta from one and a half times as much.
    delta, trials = 0.2, 1200
    (noise,) = bars(np.array([THRESHOLD]), epsilon=EPSILON, delta=delta, neighbours=Neighbours.ZERO_OUT)
    hits = releases_with_a_key(noise, literal=False, trials=trials, seed=2)
    expected = 1 - (1 - passing_chance(noise, 1)) ** THRESHOLD
    assert expected <= noise.delta * (1 + 1e-12)
    assert noise.delta <= delta
    assert stats.binomtest(hits, trials, expected).pvalue > PASSES
    assert stats.binomtest(hits, trials, 1.5 * delta, alternative="less").pvalue < REJECTS


# --- The noise itself.


def p_value(noise: OpenNoise, draws: Integers, scale: float = 1.0) -> float:
    """Of the chi-square test against noise that is this much wider."""
    expected = len(draws) * laplace_chances(scale * float(noise.scale), noise.bar)
    return chi_square_p(np.bincount(draws + noise.bar, minlength=2 * noise.bar + 1), expected)


@pytest.mark.parametrize(
    ("threshold", "epsilon", "delta"), [(1, 1.0, 0.01), (3, 2.0, 1e-4), (100, 1.0, 1e-6), (20, 0.5, 0.01)]
)
def test_truncated_draws_have_their_distribution_and_no_other(
    threshold: int, epsilon: float, delta: float
) -> None:
    noise = truncated_laplace(threshold, epsilon=epsilon, delta=delta, neighbours=Neighbours.ZERO_OUT)
    draws = noise.draw(600_000, source=SeededSource(4))
    assert np.abs(draws).max() <= noise.bar
    assert p_value(noise, draws) > PASSES
    for wrong in (0.97, 1.03):
        assert p_value(noise, draws, wrong) < REJECTS
    assert draws.std() == pytest.approx(noise.standard_deviation, rel=0.01)


def test_draws_cut_far_inside_their_scale_come_fast_and_right() -> None:
    # Of untruncated draws one in 100 million would lie inside.
    noise = truncated_laplace(1, epsilon=1e-9, delta=0.4, neighbours=Neighbours.ZERO_OUT)
    assert noise.bar <= 2
    draws = noise.draw(100_000, source=SeededSource(5))
    assert p_value(noise, draws) > PASSES
    one_end_short = np.append(draws, np.full(len(draws) // 40, noise.bar))
    assert p_value(noise, one_end_short) < REJECTS
