"""Numbers on the circle: equal to plain arithmetic where nothing wraps, and never moved further than what was added."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.api import nearness, signed

widths = pytest.mark.parametrize("width", [32, 64, 29])
anything = st.integers(-(2**63), 2**63 - 1)
near_an_edge = st.builds(
    lambda edge, off: min(max(edge + off, -(2**63)), 2**63 - 1),
    st.sampled_from([0, 2**28, 2**31, 2**32, 2**63 - 1, -(2**63), -(2**31)]),
    st.integers(-3, 3),
)
moves = st.integers(-(2**20), 2**20)


def wrapped(number: int) -> np.ndarray:
    return np.array([(number + 2**63) % 2**64 - 2**63], dtype=np.int64)


@widths
@given(value=anything | near_an_edge)
@example(value=-(2**63))
def test_signed_is_the_residue_in_two_s_complement(width, value):
    read = signed(wrapped(value), width).item()
    assert -(2 ** (width - 1)) <= read < 2 ** (width - 1)
    assert (read - value) % 2**width == 0


@widths
@given(value=anything | near_an_edge, target=st.integers(0, 2**27) | near_an_edge, move=moves)
@example(value=2**31 - 1, target=0, move=1)
@example(value=2**63 - 1, target=0, move=1)
def test_nearness_moves_by_no_more_than_what_was_added(width, value, target, move):
    before, after = (nearness(wrapped(x), target, width).item() for x in (value, value + move))
    assert abs(after - before) <= abs(move)


@widths
@given(value=st.integers(0, 2**27), target=st.integers(0, 2**27), wraps=st.integers(-3, 3))
def test_sums_that_fit_are_read_as_they_are(width, value, target, wraps):
    residue = wrapped(value + wraps * 2**width)
    assert nearness(residue, target, width).item() == -abs(value - target)
    assert signed(residue, width).item() == value
