from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import InvalidInput, SeededSource
from tests.support.api import exponential_mechanism, exponential_probabilities
from tests.support.refusals import refused


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sensitivity": 0}, "bad-sensitivity"),
        ({"sensitivity": -1}, "bad-sensitivity"),
        *(({"epsilon": wrong}, "bad-epsilon") for wrong in (0.0, -1.0, math.inf, math.nan)),
        ({"scores": []}, "no-candidates"),
        ({"scores": np.empty(0, dtype=np.int64)}, "no-candidates"),
        ({"log_base_measure": [0.0]}, "wrong-number-of-weights"),
        ({"log_base_measure": [0.0, -math.inf]}, "infinite-weight"),
    ],
)
def test_what_is_no_question_is_refused(change: dict[str, Any], code: str) -> None:
    asked = {"scores": [1, 2], "sensitivity": 1, "epsilon": 1.0, "source": SeededSource(1)} | change
    with refused(InvalidInput, code):
        exponential_mechanism(asked.pop("scores"), **asked)


def test_scores_off_the_integer_grid_are_refused_and_not_printed() -> None:
    with refused(InvalidInput, "not-an-integer") as error:
        exponential_mechanism([1, 2.71828], sensitivity=1, epsilon=1.0, source=SeededSource(1))
    assert "2.71828" not in str(error.value)


@pytest.mark.parametrize(
    ("question", "chosen"),
    [
        ({"scores": [-(10**400)], "epsilon": 1e-300}, {0}),
        ({"scores": [-(10**400), 10**400, 0, 10**400 - 1]}, {1, 3}),
        ({"scores": [0, 1], "epsilon": 1e300}, {1}),
        ({"scores": [0, 10**400], "sensitivity": 10**403}, {0, 1}),
        ({"scores": [0, 0, 0], "log_base_measure": [-1e300, -1e6, -1e6]}, {1, 2}),
    ],
    ids=["one", "far scores", "far epsilon", "far sensitivity", "far weights"],
)
def test_what_is_very_far_apart_neither_overflows_nor_underflows(
    question: dict[str, Any], chosen: set[int]
) -> None:
    asked = {"sensitivity": 1, "epsilon": 1.0, "source": SeededSource(2)} | question
    scores = asked.pop("scores")
    assert {exponential_mechanism(scores, **asked) for _ in range(100)} == chosen


def test_numpy_scores_choose_as_python_scores_do() -> None:
    scores = [3, 1, 4, 1, 5]
    for seed in range(20):
        plain = exponential_mechanism(scores, sensitivity=2, epsilon=0.7, source=SeededSource(seed))
        array = exponential_mechanism(
            np.array(scores), sensitivity=np.int64(2), epsilon=np.float64(0.7), source=SeededSource(seed)
        )
        assert type(array) is int
        assert array == plain


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.floats(-3, 3)), min_size=1, max_size=8),
    st.integers(1, 20),
    st.floats(0.01, 5),
)
def test_probabilities_are_the_weights_over_their_sum(
    candidates: list[tuple[int, float]], sensitivity: int, epsilon: float
) -> None:
    scores, bases = (np.array(column) for column in zip(*candidates, strict=True))
    weights = [math.exp(b + epsilon * s / (2 * sensitivity)) for s, b in candidates]
    found = exponential_probabilities(
        scores, sensitivity=sensitivity, epsilon=epsilon, log_base_measure=bases
    )
    assert found == pytest.approx(np.array(weights) / math.fsum(weights))


def test_large_scores_keep_their_digits_and_hopeless_ones_get_nothing() -> None:
    scores = np.array([2**60, 2**60 - 2, -(2**60)])
    found = exponential_probabilities(scores, sensitivity=1, epsilon=1.0)
    assert found == pytest.approx([1 / (1 + math.exp(-1)), math.exp(-1) / (1 + math.exp(-1)), 0.0])
