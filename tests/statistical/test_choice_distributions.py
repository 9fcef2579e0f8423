"""The exponential mechanism passes against its exact probabilities and is shown to fail at an epsilon 5 % off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy import stats

from fedhist import SeededSource
from tests.support.api import (
    Floats,
    Integers,
    exponential_mechanism,
    exponential_probabilities,
    uniform_below,
)

CHOICES = 20_000
PASSES = 1e-3  # seeds are fixed: a mechanism that is right passes always or never, and these pass
REJECTS = 1e-6

# One good candidate among many poor ones: the balance between them shows epsilon best.
SCORES = [0, 1, 9, 0, 2, 0, 1]
SENSITIVITY = 2
EPSILON = 1.0
probabilities = partial(exponential_probabilities, np.array(SCORES), sensitivity=SENSITIVITY)
BASES = [(0.3, -1.2, 0.0, 1.5, -0.1, 0.0, 0.7), (-700.0, -701.5, -699.0, -700.2, -703.0, -700.0, -700.0)]


def chosen(choose: Callable[[], int], outcomes: int = len(SCORES), choices: int = CHOICES) -> Integers:
    return np.bincount([choose() for _ in range(choices)], minlength=outcomes)


def p_value(counts: Integers, chances: Floats) -> float:
    return float(stats.chisquare(counts, counts.sum() * chances).pvalue)


def test_the_exponential_mechanism_has_its_probabilities_and_no_others() -> None:
    source = SeededSource(21)
    counts = chosen(
        lambda: exponential_mechanism(SCORES, sensitivity=SENSITIVITY, epsilon=EPSILON, source=source)
    )
    assert p_value(counts, probabilities(epsilon=EPSILON)) > PASSES
    for wrong in (0.95, 1.05):
        assert p_value(counts, probabilities(epsilon=wrong * EPSILON)) < REJECTS


@pytest.mark.parametrize("log_base", BASES)
def test_the_base_measure_weighs_the_candidates(log_base: tuple[float, ...]) -> None:
    source = SeededSource(22)
    counts = chosen(
        lambda: exponential_mechanism(
            SCORES, sensitivity=SENSITIVITY, epsilon=EPSILON, source=source, log_base_measure=log_base
        ),
        choices=CHOICES // 4,
    )
    assert p_value(counts, probabilities(epsilon=EPSILON, log_base_measure=np.array(log_base))) > PASSES
    assert p_value(counts, probabilities(epsilon=EPSILON)) < REJECTS


def test_a_uniform_choice_is_uniform() -> None:
    source = SeededSource(24)
    counts = chosen(lambda: uniform_below(7, source=source), outcomes=7)
    assert p_value(counts, np.full(7, 1 / 7)) > PASSES
    tilted = np.full(7, 1 / 7)
    tilted[0] *= 1.2
    assert p_value(counts, tilted / tilted.sum()) < REJECTS
