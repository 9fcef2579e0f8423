from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.protocol.measurements.tail import read_tail, tail_length, tail_vector
from fedhist.protocol.plan.candidates import geometric_candidates
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm

rows_of_counts = st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=12)


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@given(rows=rows_of_counts, count=st.integers(1, 20), cap=st.sampled_from([1.0, 1.5, 10.0]))
@settings(max_examples=200, deadline=None)
def test_the_tail_is_what_the_definition_says(make_histograms, norm, rows, count, cap):
    """W(C) = sum of min(r_i, cap) over users with |N_i| > C, up to half a unit of rounding a user."""
    candidates = geometric_candidates(1 << 10, 50 << 10, count)
    limit = int(cap * 2**WEIGHT_BITS)
    vector = tail_vector(make_histograms(rows), candidates, bits=10, norm=norm, cap=limit)
    assert len(vector) == tail_length(len(candidates))
    tail = read_tail(vector, users=len(rows))
    for place, count_above, weight_above in zip(candidates / 1024, tail.counts, tail.weights, strict=True):
        norms = [(sum(row), math.sqrt(sum(v * v for v in row))) for row in rows]
        above = [(l1, l2) for l1, l2 in norms if (l1 if norm is Norm.L1 else l2) > place]
        assert count_above == len(above)
        rates = [1.0 if norm is Norm.L1 else l1 / l2 for l1, l2 in above]
        exact = sum(min(rate * 2**WEIGHT_BITS, limit) for rate in rates)
        assert abs(weight_above - exact) <= 0.5 * len(above) + 1e-6


def test_every_user_is_in_one_bin_and_an_empty_one_weighs_nothing(make_histograms):
    candidates = geometric_candidates(1 << 10, 50 << 10, 8)
    vector = tail_vector(
        make_histograms([[0, 0], [3, 4], [90, 0]]), candidates, bits=10, norm=Norm.L2, cap=2048
    )
    counted, weighed = np.split(vector, 2)
    assert counted.sum() == 3
    assert counted[0] == 1 and weighed[0] == 0
    assert counted[-1] == 1 and weighed[-1] == 1 << WEIGHT_BITS


def test_candidates_span_the_range_and_rise():
    candidates = geometric_candidates(1 << 10, 1500 << 10, 128)
    assert candidates[0] == 1024 and candidates[-1] == 1500 * 1024
    assert (np.diff(candidates) > 0).all() and len(candidates) == 128
    ratios = candidates[1:] / candidates[:-1]
    assert ratios.max() / ratios.min() < 1.002


def test_candidates_of_a_narrow_range_fall_together():
    assert geometric_candidates(1024, 1028, 128).tolist() == [1024, 1025, 1026, 1027, 1028]
    assert geometric_candidates(7, 7, 10).tolist() == [7]
