"""The expected clipped sum of every item at every threshold, from one pass over a population.

A user of norm r (l2 for the Gaussian mechanism, l1 for the others) keeps the share min(1, C/r) of every count, on
average over the draws of rounding and of random clipping. So the expected clipped sum of item j is

    A_j(C) = sum of N_ij over the users with r_i <= C  +  C times the sum of N_ij/r_i over the others,

and two sums by item and bin of the user's norm give it for all thresholds at once. The sums depend on the thresholds,
the grid and the norm, and on nothing else of a plan: plans that agree on them share a table.

After a discovery, items are released with a chance. Users are clipped by the items that are likely to be listed, and an
item beside those as if it were listed with them.

What is left out: under l2 a clipped user is aimed a few steps of the grid below the bound
(`protocol/clips/clipping.py`), at most 0.15 % of the bound on the finest grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedhist.protocol.clips.clipping import entry_counts, entry_items, row_sums, sum_items
from fedhist.protocol.histograms import Floats, Histograms, Integers, Population
from fedhist.protocol.keyed import Keyed, KeyedSum, coalesce, coalesce_dense
from fedhist.protocol.privacy.neighbours import Norm

# Shares N_ij/r_i are at most 1: sums over 2^31 users in these units stay below 2^62.
_SHARE_BITS = 30
# Items times thresholds in one piece, and the most that are kept for the next prediction.
_PIECE_CELLS = 1 << 20
_KEPT_CELLS = 1 << 25


@dataclass(frozen=True)
class Piece:
    """A slice of the items: true counts and chances of being found, and expected clipped sums by item and threshold."""

    true: Floats
    kept: Floats
    found: Floats


@dataclass(frozen=True, eq=False)
class ClippedSums:
    """What clipping leaves of every item.

    Args:
        thresholds: rising, in counts.
        truth: N_j of every item, zeros included.
        users_above: the number of users above each threshold.
        found: the chance of every item to be released: one, but after a discovery.
        missed: the counts of items that have no such chance.
    """

    thresholds: Floats
    truth: Integers = field(repr=False)
    users_above: Integers
    _binned: Keyed = field(repr=False)
    found: Floats = field(repr=False)
    missed: float = 0.0

    @cached_property
    def total(self) -> float:
        """All counts of all users."""
        return float(self.truth.sum()) + self.missed

    def pieces(self) -> Iterator[Piece]:
        """The items with a count, in pieces."""
        if np.count_nonzero(self.truth) * len(self.thresholds) > _KEPT_CELLS:
            yield from self._read()
        else:
            yield from self._in_memory

    @cached_property
    def _in_memory(self) -> tuple[Piece, ...]:
        return tuple(self._read())

    def _read(self) -> Iterator[Piece]:
        bins = len(self.thresholds) + 1
        items, places = np.divmod(self._binned.keys, bins)
        present = np.flatnonzero(self.truth)
        step = max(1, _PIECE_CELLS // bins)
        for first in range(0, len(present), step):
            piece = present[first : first + step]
            low, high = np.searchsorted(items, [piece[0], piece[-1] + 1])
            cells = np.zeros((2, len(piece) * bins))
            where = np.searchsorted(piece, items[low:high]) * bins + places[low:high]
            cells[:, where] = self._binned.values[low:high].T
            mass, share = cells.reshape(2, len(piece), bins)
            up_to = np.cumsum(mass, axis=1)[:, :-1]
            above = np.cumsum(share[:, ::-1], axis=1)[:, -2::-1]
            true = self.truth[piece].astype(np.float64)
            kept = up_to + np.ldexp(above, -_SHARE_BITS) * self.thresholds
            yield Piece(true=true, kept=np.minimum(kept, true[:, np.newaxis]), found=self.found[piece])


@dataclass(frozen=True, eq=False)
class BinnedSum:
    """What a table is made of, over some users.

    Args:
        truth: N_j of every item.
        users: by bin of their norm.
        binned: by item and bin, the counts and the counts over their user's norm.
    """

    truth: Integers = field(repr=False)
    users: Integers = field(repr=False)
    binned: Keyed = field(repr=False)

    def plus(self, others: Iterable[BinnedSum]) -> BinnedSum:
        """The same over more users."""
        truth, users, binned = self.truth.copy(), self.users.copy(), KeyedSum(2)
        binned.add(self.binned)
        for other in others:
            truth += other.truth
            users += other.users
            binned.add(other.binned)
        return BinnedSum(truth, users, binned.total())

    def table(
        self, steps: Integers, *, bits: int, found: Floats | None = None, missed: float = 0.0
    ) -> ClippedSums:
        """The table for the thresholds that the bins are of; `found` and `missed` are as there."""
        return ClippedSums(
            thresholds=np.ldexp(steps.astype(np.float64), -bits),
            truth=self.truth,
            users_above=np.cumsum(self.users[::-1])[::-1][1:],
            _binned=self.binned,
            found=np.ones(len(self.truth)) if found is None else found,
            missed=missed,
        )


class Binning:
    """A BinnedSum as it grows.

    Args:
        steps: the thresholds, in steps of 2^-bits of a count, rising.
        bits: of the grid.
        norm: what users are clipped in.
        items: the number of items.
        listed: this number of the first items are those that users are clipped by; None for all.
    """

    def __init__(
        self, steps: Integers, *, bits: int, norm: Norm, items: int, listed: int | None = None
    ) -> None:
        self._steps, self._bits, self._norm, self._listed = steps, bits, norm, listed
        self._truth = np.zeros(items, dtype=np.int64)
        self._users, self._binned = np.zeros(len(steps) + 1, dtype=np.int64), KeyedSum(2)

    def add(self, shard: Histograms) -> None:
        """The sum grows by these users'."""
        self._truth += sum_items(shard)
        users, keyed = _binned(shard, self._steps, self._bits, self._norm, self._listed)
        self._users += users
        self._binned.add(keyed)

    def result(self) -> BinnedSum:
        """The sum over the users so far."""
        return BinnedSum(self._truth, self._users, self._binned.total())


def clipped_sums(
    population: Population,
    steps: Integers,
    *,
    bits: int,
    norm: Norm,
    listed: int | None = None,
    found: Floats | None = None,
    missed: float = 0.0,
) -> ClippedSums:
    """The table for these thresholds, see `Binning` and `ClippedSums`."""
    binning = Binning(steps, bits=bits, norm=norm, items=population.domain_size, listed=listed)
    for shard in population.shards():
        binning.add(shard)
    return binning.result().table(steps, bits=bits, found=found, missed=missed)


def _binned(
    shard: Histograms, steps: Integers, bits: int, norm: Norm, listed: int | None
) -> tuple[Integers, Keyed]:
    """By bin: users. By item and bin: the counts, and the counts over their user's norm. Bins as round 1 has them."""
    counts, items = entry_counts(shard), entry_items(shard).astype(np.int64)
    own = counts if norm is Norm.L1 else counts * counts
    cuts = steps >> bits if norm is Norm.L1 else (steps * steps) >> (2 * bits)
    beside = np.zeros(0, dtype=np.int64) if listed is None else np.flatnonzero(items >= listed)
    by_listed = own.copy()
    by_listed[beside] = 0
    sizes, lengths = row_sums(by_listed, shard.offsets), np.diff(shard.offsets)
    bins = np.searchsorted(cuts, sizes, side="left")
    entry_sizes, entry_bins = np.repeat(sizes, lengths), np.repeat(bins, lengths)
    entry_sizes[beside] += own[beside]
    entry_bins[beside] = np.searchsorted(cuts, entry_sizes[beside], side="left")
    norms = entry_sizes if norm is Norm.L1 else np.sqrt(entry_sizes.astype(np.float64))
    shares = np.rint(np.ldexp(counts / np.maximum(norms, 1.0), _SHARE_BITS))
    width = len(steps) + 1
    keys, values = items * width + entry_bins, np.stack([counts, shares.astype(np.int64)], axis=1)
    space = shard.domain_size * width
    keyed = coalesce_dense(keys, values, space) if space <= 4 * len(keys) else coalesce(keys, values)
    return np.bincount(bins, minlength=width), keyed
