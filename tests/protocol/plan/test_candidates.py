from __future__ import annotations

import numpy as np

from fedhist.protocol.plan.candidates import geometric_candidates


def test_candidates_span_the_range_and_rise():
    candidates = geometric_candidates(1 << 10, 1500 << 10, 128)
    assert candidates[0] == 1024 and candidates[-1] == 1500 * 1024
    assert (np.diff(candidates) > 0).all() and len(candidates) == 128
    ratios = candidates[1:] / candidates[:-1]
    assert ratios.max() / ratios.min() < 1.002


def test_candidates_of_a_narrow_range_fall_together():
    assert geometric_candidates(1024, 1028, 128).tolist() == [1024, 1025, 1026, 1027, 1028]
    assert geometric_candidates(7, 7, 10).tolist() == [7]
