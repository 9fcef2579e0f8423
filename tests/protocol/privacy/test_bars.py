"""The delta of every open-domain release is what it says: never passed, and reached, by brute force."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Neighbours, SeededSource
from tests.oracles import laplace_chances, passing_chance
from tests.support.api import (
    Floats,
    InvalidPlan,
    OpenNoise,
    OpenNoiseKind,
    bars_for,
    paper_bars,
    truncated_laplace,
)
from tests.support.refusals import refused

PAPER = "laplace-threshold-paper"
KINDS = (*get_args(OpenNoiseKind), PAPER)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_relation = pytest.mark.parametrize("neighbours", list(Neighbours))

Atoms = tuple[Floats, Floats]
"""What two data sets show, as the chances of each outcome under the one and under the other."""


def bars(kind: str, thresholds: Iterable[int], **budget: Any) -> list[OpenNoise]:
    return (paper_bars if kind == PAPER else functools.partial(bars_for, kind))(thresholds, **budget)


def made(kind: str, threshold: int, epsilon: float, delta: float, neighbours: Neighbours) -> OpenNoise:
    (noise,) = bars(kind, [threshold], epsilon=epsilon, delta=delta, neighbours=neighbours)
    return noise


# --- Brute force: every change that one user can make, on every kind of key, from the definition of the release.


def shown(noise: OpenNoise, count: int, width: int) -> Floats:
    """What a key with this clipped sum shows: nothing (place 0), or bar + i (place i)."""
    outcomes = np.zeros(width)
    if count == 0:
        outcomes[0] = 1.0
        return outcomes
    # What an untruncated draw has beyond 45 scales, 10^-19, is far below the tolerances.
    support = noise.bar if noise.kind == "truncated-laplace" else math.ceil(45 * noise.scale)
    places = np.maximum(count + np.arange(-support, support + 1) - noise.bar, 0)
    np.add.at(outcomes, places, laplace_chances(float(noise.scale), support))
    return outcomes


def merged(first: Floats, second: Floats) -> Atoms:
    """Outcomes of one likelihood ratio taken together: the divergence does not change."""
    possible = (first > 0) | (second > 0)
    first, second = first[possible], second[possible]
    with np.errstate(divide="ignore"):
        losses = np.round(np.log(first) - np.log(second), 10)
    _, group = np.unique(losses, return_inverse=True)
    first, second = (np.bincount(group, weights=chances).astype(np.float64) for chances in (first, second))
    return first, second


@functools.cache
def one_key(noise: OpenNoise, before: int, after: int) -> Atoms:
    width = max(before, after) + math.ceil(45 * noise.scale) + 2
    return merged(shown(noise, before, width), shown(noise, after, width))


def both_keys(one: Atoms, other: Atoms) -> Atoms:
    first, second = (np.outer(a, b).ravel() for a, b in zip(one, other, strict=True))
    return merged(first, second)


def divergence(atoms: Atoms, epsilon: float) -> float:
    """The larger of both orders' hockey-stick divergences at e^epsilon."""
    first, second = atoms
    factor = math.exp(epsilon)
    return max(
        float(np.maximum(first - factor * second, 0).sum()),
        float(np.maximum(second - factor * first, 0).sum()),
    )


Change = tuple[int, int]
"""What a user has of a key before and after."""


def changes(threshold: int, neighbours: Neighbours) -> list[Change]:
    sizes = range(threshold + 1)
    if neighbours is not Neighbours.REPLACE_ONE:
        return [(0, size) for size in sizes[1:]]
    return [(before, after) for before in sizes for after in sizes if before != after]


def all_users(
    noise: OpenNoise, kinds_of_key: list[tuple[Change, int]], room: Change, so_far: Atoms
) -> Iterator[Atoms]:
    """What is shown before and after, for every multiset of changes that fits in `room` on keys of all bases."""
    yield so_far
    for place, ((before, after), base) in enumerate(kinds_of_key):
        left = (room[0] - before, room[1] - after)
        if min(left) >= 0:
            shared = both_keys(so_far, one_key(noise, base + before, base + after))
            yield from all_users(noise, kinds_of_key[place:], left, shared)


NOTHING: Atoms = (np.ones(1), np.ones(1))


def worst_divergence(
    noise: OpenNoise, threshold: int, epsilon: float, neighbours: Neighbours, bases: list[int]
) -> float:
    kinds_of_key = list(itertools.product(changes(threshold, neighbours), bases))
    users = all_users(noise, kinds_of_key, (threshold, threshold), NOTHING)
    return max(divergence(atoms, epsilon) for atoms in users)


def bases_of(bar: int, how_many: str) -> list[int]:
    """Sums of the other users: new keys, keys at the bar, keys that are always shown, and their neighbours."""
    if how_many == "few":
        return [0, bar, 2 * bar + 1]
    return sorted({0, 1, bar - 1, bar, bar + 1, 2 * bar, 2 * bar + 1})


# The last has a delta far above epsilon: there also the *absence* of a key reveals something.
BUDGETS = [(1.0, 0.05), (3.0, 0.01), (0.05, 0.3)]
EXHAUSTIVE: list[Any] = [
    *((Neighbours.ZERO_OUT, threshold, "many") for threshold in (1, 2, 3, 4)),
    *((Neighbours.ZERO_OUT, threshold, "few") for threshold in (5, 6)),
    *((Neighbours.REPLACE_ONE, threshold, "many") for threshold in (1, 2)),
    (Neighbours.REPLACE_ONE, 3, "few"),
]


@pytest.mark.parametrize(("neighbours", "threshold", "how_many"), EXHAUSTIVE)
@pytest.mark.parametrize("kind", ["truncated-laplace", "laplace-threshold"])
def test_no_user_passes_the_claimed_delta_and_one_reaches_it(
    kind: str, neighbours: Neighbours, threshold: int, how_many: str
) -> None:
    for epsilon, delta in BUDGETS:
        noise = made(kind, threshold, epsilon, delta, neighbours)
        worst = worst_divergence(noise, threshold, epsilon, neighbours, bases_of(noise.bar, how_many))
        assert worst <= noise.delta + 1e-12, "some user passes the claim"
        assert worst > 0.9 * noise.delta, "a claim of 10 % less would stand"
        assert worst == pytest.approx(noise.delta, rel=1e-9)
        assert noise.delta <= delta


@each_relation
def test_the_paper_s_bar_claims_its_own_delta_and_not_the_one_asked_for(neighbours: Neighbours) -> None:
    noise = made(PAPER, 2, 1.0, 0.05, neighbours)
    worst = worst_divergence(noise, 2, 1.0, neighbours, bases_of(noise.bar, "many"))
    assert worst == pytest.approx(noise.delta, rel=1e-9)
    assert noise.delta < 0.05


@each_relation
def test_the_widest_case_four_items_replaced_by_any_four(neighbours: Neighbours) -> None:
    noise = made("truncated-laplace", 4, 2.0, 0.02, neighbours)
    worst = worst_divergence(noise, 4, 2.0, neighbours, [0, 2 * noise.bar + 1])
    assert worst == pytest.approx(noise.delta, rel=1e-9)


def partitions(total: int, largest: int) -> Iterator[list[int]]:
    if total == 0:
        yield []
    for part in range(min(total, largest), 0, -1):
        for rest in partitions(total - part, part):
            yield [part, *rest]


@pytest.mark.parametrize("threshold", [2, 5, 12, 25])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0, 20.0])
def test_new_keys_are_shown_most_often_by_one_of_count_c_or_c_of_count_one(
    threshold: int, epsilon: float
) -> None:
    noise = made("laplace-threshold", threshold, epsilon, 1e-3, Neighbours.ZERO_OUT)
    chances = [0.0, *(passing_chance(noise, count) for count in range(1, threshold + 1))]
    shown_at_all = [
        (1 - math.prod(1 - chances[part] for part in parts), len(parts))
        for total in range(1, threshold + 1)
        for parts in partitions(total, total)
    ]
    most, parts_of_the_worst = max(shown_at_all)
    assert parts_of_the_worst in {1, threshold}
    assert most == pytest.approx(noise.delta, rel=1e-9)


# --- Numbers.


def mp_delta(noise: OpenNoise, threshold: int, neighbours: Neighbours) -> mpmath.mpf:
    """The formulas of the docstrings in 400 digits, which no cancellation can use up."""
    with mpmath.workdps(400):
        rate = mpmath.mpf(noise.scale.denominator) / noise.scale.numerator
        ratio = mpmath.exp(-rate)
        if noise.kind == "truncated-laplace":
            total = 1 + 2 * ratio * (1 - ratio**noise.bar) / (1 - ratio)
            end_point = ratio**noise.bar / total
            one_way = end_point * (mpmath.exp(threshold * rate) - 1) / (mpmath.exp(rate) - 1)
            return one_way if neighbours is not Neighbours.REPLACE_ONE else 1 - (1 - one_way) ** 2
        one_key = ratio ** (noise.bar - threshold + 1) / (1 + ratio)
        each_of_many = ratio**noise.bar / (1 + ratio)
        return max(one_key, 1 - (1 - each_of_many) ** threshold)


budgets = {
    "kind": st.sampled_from(KINDS),
    "neighbours": st.sampled_from(list(Neighbours)),
    "threshold": st.one_of(st.integers(1, 20), st.integers(1, 2**30)),
    "log_epsilon": st.floats(-4, math.log10(50)),
    "log_delta": st.one_of(st.floats(-12, math.log10(0.499)), st.floats(-300, -12)),
}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(**budgets)
def test_delta_is_exact_to_the_last_float_and_the_bar_is_the_least(
    kind: str, neighbours: Neighbours, threshold: int, log_epsilon: float, log_delta: float
) -> None:
    epsilon, delta = 10**log_epsilon, 10**log_delta
    noise = made(kind, threshold, epsilon, delta, neighbours)
    exact = mp_delta(noise, threshold, neighbours)
    assert math.nextafter(noise.delta, 0) < exact <= noise.delta <= delta
    if kind != PAPER:
        assert mp_delta(replace(noise, bar=noise.bar - 1), threshold, neighbours) > delta
        # The bar changes exactly where it has to: between two neighbouring floats.
        assert made(kind, threshold, epsilon, noise.delta, neighbours) == noise
        stricter = made(kind, threshold, epsilon, math.nextafter(noise.delta, 0), neighbours)
        assert stricter.bar == noise.bar + 1
    else:
        assert noise.bar >= made("laplace-threshold", threshold, epsilon, delta, neighbours).bar
        b = float(noise.scale)
        assert noise.bar == pytest.approx(
            threshold + b * (math.log(threshold / 2) - math.log(delta)), abs=1, rel=1e-12
        )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(**budgets)
def test_the_scale_hides_epsilon(
    kind: str, neighbours: Neighbours, threshold: int, log_epsilon: float, log_delta: float
) -> None:
    epsilon = Fraction(10**log_epsilon)
    noise = made(kind, threshold, float(epsilon), 10**log_delta, neighbours)
    sensitivity = threshold if neighbours is not Neighbours.REPLACE_ONE else 2 * threshold
    assert sensitivity / noise.scale <= epsilon
    assert sensitivity / noise.scale >= epsilon * (1 - Fraction(1, 2**39))


@each_kind
@each_relation
@pytest.mark.parametrize("threshold", [1, 2, 2**30])
def test_extreme_settings_neither_overflow_nor_hang(
    kind: str, neighbours: Neighbours, threshold: int
) -> None:
    for epsilon, delta in itertools.product(
        (1e-5, 50.0, 1e4, 1e300), (5e-324, 1e-30, math.nextafter(0.5, 0))
    ):
        noise = made(kind, threshold, epsilon, delta, neighbours)
        assert noise.bar >= threshold
        assert 0 < noise.delta <= delta
        assert 0 <= noise.standard_deviation < math.inf
        draws = noise.draw(3, source=SeededSource(1))
        assert kind != "truncated-laplace" or (np.abs(draws) <= noise.bar).all()


def test_candidates_get_what_each_would_get_alone() -> None:
    thresholds = np.array([1, 7, 7, 300, 2])
    for kind, neighbours in itertools.product(KINDS, Neighbours):
        together = bars(kind, thresholds, epsilon=1.5, delta=1e-5, neighbours=neighbours)
        assert together == [made(kind, int(c), 1.5, 1e-5, neighbours) for c in thresholds]
        assert [noise.kind for noise in together] == [kind.removesuffix("-paper")] * 5
    assert made("truncated-laplace", 7, 1.5, 1e-5, Neighbours.REPLACE_ONE) == truncated_laplace(
        7, epsilon=1.5, delta=1e-5, neighbours=Neighbours.REPLACE_ONE
    )


# --- The distribution of the noise.


@each_kind
@pytest.mark.parametrize(
    ("threshold", "epsilon", "delta"), [(1, 3.0, 0.1), (5, 1.0, 0.01), (4, 0.01, 0.4), (3, 60.0, 1e-6)]
)
def test_the_deviation_is_that_of_the_plain_sum(
    kind: str, threshold: int, epsilon: float, delta: float
) -> None:
    noise = made(kind, threshold, epsilon, delta, Neighbours.ZERO_OUT)
    support = noise.bar if kind == "truncated-laplace" else math.ceil(45 * noise.scale)
    chances = laplace_chances(float(noise.scale), support)
    z = np.arange(-support, support + 1)
    assert noise.standard_deviation == pytest.approx(math.sqrt((chances * z**2).sum()), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-9])
def test_the_deviation_of_noise_cut_far_inside_its_scale_is_that_of_a_uniform_draw(epsilon: float) -> None:
    noise = made("truncated-laplace", 1000, epsilon, 0.4, Neighbours.ZERO_OUT)
    assert noise.bar < 0.01 * noise.scale
    assert noise.standard_deviation == pytest.approx(math.sqrt(noise.bar * (noise.bar + 1) / 3), rel=1e-3)


# --- Settings.


@each_kind
@pytest.mark.parametrize(
    ("threshold", "epsilon", "delta", "refusal"),
    [
        *((wrong, 1.0, 1e-6, ("bad-threshold",)) for wrong in (0, -1, 1.5, 2.0, True, "3", None, math.nan)),
        *((10, wrong, 1e-6, ("bad-epsilon",)) for wrong in (0.0, math.inf, -1.0)),
        *((10, 1.0, wrong, ("bad-delta",)) for wrong in (0.0, 0.5)),
        (2**30, 1e-7, 1e-6, ("noise-too-wide", "2^51")),
    ],
)
def test_settings_out_of_range_are_refused(
    kind: str, threshold: Any, epsilon: float, delta: float, refusal: tuple[str, ...]
) -> None:
    with refused(InvalidPlan, *refusal):
        made(kind, threshold, epsilon, delta, Neighbours.ZERO_OUT)


@each_kind
def test_a_relation_may_be_written_out_and_never_weakens_silently(kind: str) -> None:
    noise = made(kind, 11, 1.0, 1e-6, "replace-one")
    assert noise.scale == 22
    assert noise == made(kind, 11, 1.0, 1e-6, Neighbours.REPLACE_ONE)
    with refused(InvalidPlan, "unknown-neighbours", "'zero-out'", "'replace-one'"):
        made(kind, 10, 1.0, 1e-6, "swap")


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with refused(InvalidPlan, "unknown-noise", "'truncated-laplace'"):
        made("gaussian", 1, 1.0, 1e-6, Neighbours.ZERO_OUT)
