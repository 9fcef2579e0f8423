"""The public grid of thresholds among which round 1 chooses."""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import Integers


def geometric_candidates(first: int, last: int, count: int) -> Integers:
    """About `count` thresholds in geometric progression from first to last, in steps, rising.

    Neighbours that fall on the same step are one candidate, so a short range may give fewer than `count`; both ends
    are always there.
    """
    if first == last or count == 1:
        return np.array([last], dtype=np.int64)
    spread = np.rint(np.geomspace(first, last, count)).astype(np.int64)
    spread[0], spread[-1] = first, last
    return spread[np.diff(spread, prepend=first - 1) > 0]
