"""Random clipping: keep at most C of a user's items, drawn without replacement (Liu et al., section 5).

Unlike l1 clipping it bounds the number of distinct items too, and it keeps whole counts.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.clips.clipping import entry_counts, take_users, user_totals
from fedhist.protocol.clips.hypergeometric import hypergeometric
from fedhist.protocol.histograms import Histograms, Integers
from fedhist.protocol.privacy.randomness import Source


def random_clipped(histograms: Histograms, threshold: int, *, source: Source) -> Integers:
    """What is kept of each entry when every user keeps min(m_i, C) of their m_i items. What a device sends in round 2.

    The kept counts are multivariate hypergeometric. What a user draws depends on the source, the user's number and the
    user's own histogram, not on who else is in the batch.
    """
    clipped = user_totals(histograms) > threshold
    kept = entry_counts(histograms)
    if clipped.any():  # audited: open clip
        above = take_users(histograms, clipped)
        drawn = _sample(above, threshold, histograms.user_numbers()[clipped], source)
        kept = kept.copy()
        kept[np.repeat(clipped, np.diff(histograms.offsets))] = drawn
    return kept


def _sample(above: Histograms, threshold: int, users: Integers, source: Source) -> Integers:
    """The number kept of each entry when every user keeps `threshold` of their items.

    A user's entries are halved again and again. Given the number of kept items in both halves together, their number in
    the first half is hypergeometric. All halves of one level, of all users, are one batch. The draw at a place between
    two entries is the user's draw of that number, so it does not depend on the batch.
    """
    counts = above.counts
    before = np.concatenate([[0], np.cumsum(counts)])
    kept = np.zeros(len(counts), dtype=np.int64)
    start, stop = above.offsets[:-1], above.offsets[1:]
    keep = np.full(above.users, threshold, dtype=np.int64)
    owner = np.arange(above.users)
    while len(start):
        single = stop - start == 1
        kept[start[single]] = keep[single]
        wider = ~single & (keep > 0)
        start, stop, keep, owner = start[wider], stop[wider], keep[wider], owner[wider]
        middle = (start + stop) // 2
        left, right = before[middle] - before[start], before[stop] - before[middle]
        words = source.user_words(users[owner], middle - above.offsets[owner])
        uniforms = np.ldexp((words >> np.uint64(11)).astype(np.float64), -53)
        first = hypergeometric(left, right, keep, uniforms=uniforms)
        start, stop = np.concatenate([start, middle]), np.concatenate([middle, stop])
        keep, owner = np.concatenate([first, keep - first]), np.concatenate([owner, owner])
    return kept
