"""The public grid of thresholds among which round 1 chooses."""

from __future__ import annotations

import numpy as np

from fedhist.protocol.grid import to_steps
from fedhist.protocol.histograms import Integers


def geometric_candidates(smallest: float, largest: float, count: int, *, bits: int) -> Integers:
    """About `count` thresholds in geometric progression from smallest to largest, in steps, rising.

    Neighbours that fall on the same step are one candidate, so a short range may give fewer than `count`; both ends
    are always there.
    """
    ends = (to_steps(smallest, bits), to_steps(largest, bits))
    if ends[0] == ends[1] or count == 1:
        return np.array([ends[1]], dtype=np.int64)
    spread = np.rint(np.geomspace(ends[0], ends[1], count)).astype(np.int64)
    spread[0], spread[-1] = ends
    return np.unique(spread)
