from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Plan
from tests.support.api import NOTHING, WEIGHT_BITS, Norm, TailMeasurement, geometric_candidates, tail_vector
from tests.support.api import tail_above as above

rows_of_counts = st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=12)


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@given(rows=rows_of_counts, count=st.integers(1, 20), sparsity=st.integers(1, 4))
@settings(max_examples=200)
def test_the_tail_is_what_the_definition_says(make_histograms, norm, rows, count, sparsity):
    """W(C) = sum of min(r_i, sqrt(s)) over users with |N_i| > C, rounded to whole units."""
    candidates = geometric_candidates(1 << 10, 50 << 10, count)
    counted, weighed = np.split(
        tail_vector(make_histograms(rows), candidates, bits=10, norm=norm, sparsity=sparsity), 2
    )
    assert counted.sum() == len(rows)
    totals, squares = [sum(row) for row in rows], [sum(v * v for v in row) for row in rows]
    for steps, count_above, weight_above in zip(
        candidates.tolist(), above(counted), above(weighed), strict=True
    ):
        bound = Fraction(steps, 1024)
        if norm is Norm.L1:
            rates = [1.0 for total in totals if total > bound]
        else:
            found = [(t, q) for t, q in zip(totals, squares, strict=True) if q > bound**2]
            rates = [min(t / math.sqrt(q), math.sqrt(sparsity)) for t, q in found]
        assert count_above == len(rates)
        assert abs(weight_above - sum(rates) * 2**WEIGHT_BITS) <= len(rates) + 1e-6


def test_an_empty_user_is_in_the_first_bin_and_weighs_nothing(make_histograms):
    plan = Plan(users=1, items=2, candidates=8)
    sent = TailMeasurement(plan, NOTHING).of(make_histograms([[0, 0]]), source=None)
    assert sent.values.tolist() == [1] + [0] * 17


def test_its_length_does_not_grow_with_the_items():
    lengths = {TailMeasurement(Plan(users=9, items=d), NOTHING).shape.length for d in (2, 10**6)}
    assert lengths == {2 * 129}
