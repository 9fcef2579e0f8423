"""What devices send: sums over users of fixed-length integer vectors, each with its sensitivity.

Devices know statistics, never selectors: every selector of the closed domain reads the one `tail` vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clips.clipping import tail_weights, user_squares, user_totals
from fedhist.protocol.histograms import Histograms, Integers
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm


@dataclass(frozen=True, eq=False)
class Tail:
    """How many users lie above each candidate, and with what weight: the sum of round 1, as a selector reads it.

    Args:
        counts: the number of users with norm above candidate k, for each k.
        weights: W(C_k), the sum of their weights min(r_i, sqrt(s)), in multiples of 2^-WEIGHT_BITS.
        users: how many users the sum is over.
        width: counts and weights are known modulo 2^width only, see `protocol/circle.py`.
    """

    counts: Integers
    weights: Integers
    users: int
    width: int = WIDEST


def tail_length(candidates: int) -> int:
    """The length of the round-1 vector: a count and a weight for each of the K + 1 bins."""
    return 2 * (candidates + 1)


def tail_vector(histograms: Histograms, candidates: Integers, *, bits: int, norm: Norm, cap: int) -> Integers:
    """The round-1 vector summed over these users.

    Bin k holds the users whose norm is above exactly k candidates; first the number of users in each bin, then their
    weight. l2: the weight is r_i = |N_i|_1/|N_i|_2 (Liu et al. 4.2, the summand of W), rounded to 2^-WEIGHT_BITS and
    cut to `cap`. l1: clipping loses mass at rate 1, so the weight is one. An empty user is in bin 0 with weight 0.

    Bins are decided in whole numbers, by the same comparison that clipping uses.
    """
    bins, weights = binned_users(histograms, candidates, bits=bits, norm=norm, cap=cap)
    length = len(candidates) + 1
    counted = np.bincount(bins, minlength=length)
    # Exact in doubles: a shard's weights sum to less than 2^53.
    weighed = np.bincount(bins, weights=weights, minlength=length).astype(np.int64)
    return np.concatenate([counted, weighed])


def binned_users(
    histograms: Histograms, candidates: Integers, *, bits: int, norm: Norm, cap: int
) -> tuple[Integers, Integers]:
    """The bin and the weight of each user, see `tail_vector`."""
    totals = user_totals(histograms)
    if norm is Norm.L1:
        cuts, sizes = candidates >> bits, totals
        weights = np.where(totals > 0, min(1 << WEIGHT_BITS, cap), 0)
    else:
        cuts, sizes = (candidates * candidates) >> (2 * bits), user_squares(histograms)
        scaled = np.rint(np.ldexp(tail_weights(totals, sizes), WEIGHT_BITS)).astype(np.int64)
        weights = np.minimum(scaled, cap)
    return np.searchsorted(cuts, sizes, side="left"), weights


def read_tail(vector: Integers, *, users: int, width: int = WIDEST) -> Tail:
    """The sums above each candidate, from the sums in each bin."""
    counted, weighed = np.split(vector, 2)
    return Tail(counts=_above(counted), weights=_above(weighed), users=users, width=width)


def _above(bins: Integers) -> Integers:
    """Above candidate k are the bins k + 1 and up."""
    suffix: Integers = np.cumsum(bins[::-1])[::-1]
    return suffix[1:]
