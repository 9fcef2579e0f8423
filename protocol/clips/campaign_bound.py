"""What is left of a user's bound for a campaign, and what a window may take of it: whole numbers, vectorised.

A user's bound for the whole campaign is ONE. A window of threshold C, in which the device sends v, takes the share
|v|^2/(k C^2) of it, rounded up to a whole number of 1/ONE; k is the number of visits. So thresholds may differ from
window to window, and a user who fills k windows has used it up.

Proof sketch that shares never sum to more than one. Let S be the threshold in steps and L what is left. A user may send
a vector of norm B at most, with B <= S and B^2 <= k S^2 L/ONE: decided in whole numbers where B = S, and elsewhere with
a factor 1 - 2^-40 that is larger than all errors of the floats behind it. What is taken is counted before anything is
drawn: |N|^2 if the user is not clipped, which is what the device sends, and B^2 if so, which is never less. That times
ONE/(k S^2), with a factor of 1 + 2^-40 for the same reason, rounded up, is at least the share, and at most L once it is
cut to L, since the share of B is at most L/ONE.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.clips.clipping import shrink_l2, sum_by_item, sum_items, take_users, user_squares
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Flags, Floats, Histograms, Integers
from fedhist.protocol.privacy.randomness import Source

ONE = 2**40
"""A user's bound for a whole campaign. Times MAX_VISITS it stays below 2^61."""
# Larger than the error of a few products and a root of doubles, 2^-50.
_SAFELY_LESS, _SAFELY_MORE = 1 - 2.0**-40, 1 + 2.0**-40


def bounds_of(left: Integers, threshold: Threshold, *, visits: int) -> Integers:
    """B: the norm that each user may send, in steps, with this left."""
    reach: Floats = threshold.steps * np.sqrt(left * (visits / ONE)) * _SAFELY_LESS
    return np.where(
        left * visits >= ONE,  # audited: bound used up
        threshold.steps,
        np.minimum(reach, threshold.steps).astype(np.int64),
    )


def taken_from(squares: Integers, left: Integers, threshold: Threshold, *, visits: int) -> Integers:
    """What a window takes of the bound of users with these squared norms of counts and this left."""
    bounds = bounds_of(left, threshold, visits=visits)
    above = _is_above(squares, bounds, threshold)
    sent = np.where(above, bounds * bounds, np.where(above, 0, squares) << (2 * threshold.bits))
    # Up to 2^82, which is for Python's whole numbers: a selector from outside may choose one of numpy's.
    whole = visits * int(threshold.steps) ** 2
    shares = np.ceil(sent.astype(np.float64) * (ONE / whole) * _SAFELY_MORE).astype(np.int64)
    return np.minimum(shares, left)


def sum_bounded(
    histograms: Histograms, left: Integers, threshold: Threshold, *, visits: int, source: Source
) -> Integers:
    """The sum over users of their histograms, each clipped in l2 norm to the threshold and to what the user has left.

    Every user's part has at most the norm B of `bounds_of`, for every draw.
    """
    bounds = bounds_of(left, threshold, visits=visits)
    total = sum_items(histograms) << threshold.bits
    above = _is_above(user_squares(histograms), bounds, threshold)
    if above.any():
        clipped = take_users(histograms, above)
        words = source.user_words(histograms.user_numbers()[above])
        rest = (clipped.counts << threshold.bits) - shrink_l2(clipped, bounds[above], words)
        total -= sum_by_item(rest, clipped.items, clipped.domain_size)
    return total


def is_bounded(histograms: Histograms, left: Integers, threshold: Threshold, *, visits: int) -> Flags:
    """Which users are clipped, to the threshold or to what they have left."""
    bounds = bounds_of(left, threshold, visits=visits)
    return _is_above(user_squares(histograms), bounds, threshold)


def _is_above(squares: Integers, bounds: Integers, threshold: Threshold) -> Flags:
    """Which users are above their bound, decided in whole numbers."""
    flags: Flags = squares > (bounds * bounds) >> (2 * threshold.bits)
    return flags
