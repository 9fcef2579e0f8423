from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.privacy.choice import exponential_mechanism, permute_and_flip
from fedhist.protocol.privacy.randomness import SeededSource, SystemSource

MECHANISMS: list[Callable[..., int]] = [exponential_mechanism, permute_and_flip]
each_mechanism = pytest.mark.parametrize("choose", MECHANISMS)


def exponential_probabilities(scores: Sequence[int], epsilon: float) -> list[float]:
    weights = [math.exp(epsilon * score / 2) for score in scores]
    return [weight / sum(weights) for weight in weights]


def permute_and_flip_probabilities(scores: Sequence[int], epsilon: float) -> list[float]:
    wins = [math.exp(-epsilon * (max(scores) - score) / 2) for score in scores]
    orders = list(itertools.permutations(range(len(scores))))
    probabilities = [0.0] * len(scores)
    for order in orders:
        reached = 1 / len(orders)
        for index in order:
            probabilities[index] += reached * wins[index]
            reached *= 1 - wins[index]
    return probabilities


@each_mechanism
@pytest.mark.parametrize("sensitivity", [0, -1])
def test_a_sensitivity_that_is_not_positive_is_refused(choose: Callable[..., int], sensitivity: int) -> None:
    with pytest.raises(InvalidInput, match="sensitivity"):
        choose([1, 2], sensitivity=sensitivity, epsilon=1.0, source=SeededSource(1))


@each_mechanism
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_no_budget_is_refused(choose: Callable[..., int], epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        choose([1, 2], sensitivity=1, epsilon=epsilon, source=SeededSource(1))


@each_mechanism
def test_no_candidates_are_refused(choose: Callable[..., int]) -> None:
    nothings: list[object] = [[], np.empty(0, dtype=np.int64)]
    for nothing in nothings:
        with pytest.raises(InvalidInput, match="at least one"):
            choose(nothing, sensitivity=1, epsilon=1.0, source=SeededSource(1))


@each_mechanism
def test_scores_off_the_integer_grid_are_refused_and_not_printed(choose: Callable[..., int]) -> None:
    with pytest.raises(InvalidInput, match="integer grid") as error:
        choose([1, 2.71828], sensitivity=1, epsilon=1.0, source=SeededSource(1))
    assert "2.71828" not in str(error.value)


def test_base_weights_must_be_finite_and_one_a_score() -> None:
    for weights, complaint in (([0.0], "1 base weights for 2 scores"), ([0.0, -math.inf], "not finite")):
        with pytest.raises(InvalidInput, match=complaint):
            exponential_mechanism(
                [1, 2], sensitivity=1, epsilon=1.0, source=SeededSource(1), log_base_measure=weights
            )


@each_mechanism
def test_one_candidate_is_always_chosen(choose: Callable[..., int]) -> None:
    assert choose([-(10**400)], sensitivity=1, epsilon=1e-300, source=SystemSource()) == 0


@each_mechanism
def test_scores_very_far_apart_do_not_overflow(choose: Callable[..., int]) -> None:
    source = SeededSource(2)
    scores = [-(10**400), 10**400, 0, 10**400 - 1]
    chosen = {choose(scores, sensitivity=1, epsilon=1.0, source=source) for _ in range(100)}
    assert chosen == {1, 3}
    assert choose([0, 1], sensitivity=1, epsilon=1e300, source=source) == 1


def test_a_far_sensitivity_makes_far_scores_equal() -> None:
    source = SeededSource(2)
    chosen = {
        exponential_mechanism([0, 10**400], sensitivity=10**403, epsilon=1.0, source=source)
        for _ in range(60)
    }
    assert chosen == {0, 1}


def test_base_weights_very_far_apart_do_not_underflow() -> None:
    source = SeededSource(2)
    chosen = {
        exponential_mechanism(
            [0, 0, 0], sensitivity=1, epsilon=1.0, source=source, log_base_measure=[-1e300, -1e6, -1e6]
        )
        for _ in range(60)
    }
    assert chosen == {1, 2}


@each_mechanism
def test_numpy_scores_choose_as_python_scores_do(choose: Callable[..., int]) -> None:
    scores = [3, 1, 4, 1, 5]
    for seed in range(20):
        plain = choose(scores, sensitivity=2, epsilon=0.7, source=SeededSource(seed))
        array = choose(
            np.array(scores), sensitivity=np.int64(2), epsilon=np.float64(0.7), source=SeededSource(seed)
        )
        assert type(array) is int
        assert array == plain


@each_mechanism
def test_a_common_shift_of_the_scores_changes_nothing(choose: Callable[..., int]) -> None:
    for seed in range(20):
        choices = {
            choose([7 + shift, 9 + shift, shift], sensitivity=1, epsilon=1.0, source=SeededSource(seed))
            for shift in (0, -3, 10**30)
        }
        assert len(choices) == 1


def log_ratios(probabilities: Callable[..., list[float]], epsilon: float) -> list[list[float]]:
    """For every pair of neighbours of three scores, the logarithms of the ratios of their probabilities."""
    pairs = []
    for scores in itertools.product(range(-2, 3), repeat=3):
        for change in itertools.product((-1, 0, 1), repeat=3):
            one = probabilities(scores, epsilon)
            other = probabilities([a + b for a, b in zip(scores, change, strict=True)], epsilon)
            pairs.append([math.log(a / b) for a, b in zip(one, other, strict=True)])
    return pairs


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_probabilities_are_as_private_as_documented(epsilon: float) -> None:
    # The samplers are held to these formulas in the statistical tests.
    exponential = log_ratios(exponential_probabilities, epsilon)
    flipped = log_ratios(permute_and_flip_probabilities, epsilon)
    for ratios in (exponential, flipped):
        assert max(max(map(abs, pair)) for pair in ratios) <= epsilon * (1 + 1e-12)
    assert max(max(pair) - min(pair) for pair in exponential) == pytest.approx(epsilon)
    two = [
        math.log(a / b)
        for a, b in zip(
            permute_and_flip_probabilities([0, 0], epsilon),
            permute_and_flip_probabilities([1, -1], epsilon),
            strict=True,
        )
    ]
    assert max(two) - min(two) == pytest.approx(epsilon + math.log(2 - math.exp(-epsilon)))
