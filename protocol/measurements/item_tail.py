"""Counts clipped item by item: every item is a population of single counts of its own.

The paper's count estimation (section 6) for one item, and its first extension to histograms (appendix): Algorithm 5 on
each of d items with a share of the budget each. Clipping whole counts at whole or fractional bounds needs no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clips.clipping import entry_counts, entry_items, sum_by_item
from fedhist.protocol.histograms import Histograms, Integers


@dataclass(frozen=True, eq=False)
class ItemTail:
    """For each item, how many users have more of it than each candidate.

    Args:
        counts: shape (items, candidates).
        users: how many users the sums are over.
        width: counts are known modulo 2^width only, see `protocol/circle.py`.
    """

    counts: Integers
    users: int
    width: int = WIDEST


def item_tail_length(items: int, candidates: int) -> int:
    """The length of the round-1 vector: a number of users for each item and bin."""
    return items * (candidates + 1)


def item_tail_vector(histograms: Histograms, candidates: Integers, *, bits: int) -> Integers:
    """For each item and bin, the users whose count of the item is above exactly that many candidates.

    A user is in one bin of each item they have, so for either neighbours one user moves the number of users above any
    candidate of any one item by at most 1.
    """
    bins = np.searchsorted(candidates >> bits, entry_counts(histograms), side="left")
    width = len(candidates) + 1
    cells = entry_items(histograms).astype(np.int64) * width + bins
    return np.bincount(cells, minlength=histograms.domain_size * width)


def read_item_tail(vector: Integers, items: int, *, users: int, width: int = WIDEST) -> ItemTail:
    """The users above each candidate, from the users in each bin."""
    bins = vector.reshape(items, -1)
    above = np.cumsum(bins[:, ::-1], axis=1)[:, ::-1]
    return ItemTail(counts=above[:, 1:], users=users, width=width)


def sum_clipped_items(histograms: Histograms, thresholds: Integers, *, bits: int) -> Integers:
    """The sum over users of min(count, threshold of the item), in steps, by item.

    One user moves item j by a number in [0, threshold_j], for either neighbours.
    """
    items = entry_items(histograms)
    clipped = np.minimum(entry_counts(histograms) << bits, thresholds[items])
    return sum_by_item(clipped, items, histograms.domain_size)
