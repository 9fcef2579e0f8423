"""The probabilities of the exponential mechanism, against exact rationals and for scores of any size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist.protocol.privacy.choice import exponential_probabilities


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.floats(-3, 3)), min_size=1, max_size=8),
    st.integers(1, 20),
    st.floats(0.01, 5),
)
def test_they_are_the_weights_over_their_sum(
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
