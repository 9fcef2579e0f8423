"""`key-totals`: mass and share by item and bin, with the items' names. Round 1 before one release above a bar.

It is about the expected randomly clipped count of every item at every candidate. A user with total m keeps each of
their items with probability min(1, C/m), so the expected clipped count of item j is A_j(C) = sum_i N_ij min(1, C/m_i)
(Liu et al., section 5). One number in the bin of the user's total gives it for all candidates at once: bin b holds the
users whose total is above exactly b candidates, `mass` sums their counts N_ij and `share` their shares N_ij/m_i, and
A_j(C_k) = mass of the bins up to k + C_k times the share of the bins above k.

Shares are whole multiples of 2^-SHARE_BITS and a user's shares sum to exactly 1, so that a user's part of the A_j(C)
sums to exactly min(m, C): the sensitivity proofs hold for the rounded statistic as they stand. Totals above C_m count
as C_m, with the same shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedhist.protocol.clipping import entry_counts, entry_items
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.keyed import Keyed, coalesce, coalesce_dense
from fedhist.protocol.measurements.base import (
    Measurement,
    Nothing,
    Round,
    Shape,
    Summed,
    Total,
    Words,
    at_most,
    exactly,
    keyed_part,
    sum_at_most,
)
from fedhist.protocol.measurements.tails import above
from fedhist.protocol.privacy.neighbours import Neighbours, Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


SHARE_BITS = 16
_CHUNK_CELLS = 1 << 19


@dataclass(frozen=True, eq=False)
class OpenTail:
    """What a selector of the open domain reads.

    Args:
        users_above: how many users have a total above each candidate.
        overflow: sum of max(m_i - C, 0) at each candidate, totals cut to C_m.
        expected: A_j(C), piece by piece.
        users: how many users the sums are over.
    """

    users_above: Integers
    overflow: Integers
    users: int
    expected: ExpectedCounts = field(repr=False)


class ExpectedCounts(Protocol):
    """The A_j(C_k) in multiples of 2^-SHARE_BITS, some items at a time."""

    def pieces(self) -> Iterator[Integers]:
        """Arrays of shape (items, candidates); items whose counts are all 0 may be left out."""


@dataclass(frozen=True, eq=False)
class BinnedCounts:
    """Expected counts from sums by item and bin, for any number of items."""

    keyed: Keyed
    candidates: Integers

    def pieces(self) -> Iterator[Integers]:
        """Prefix sums over the bins, for some items at a time."""
        bins, keys = len(self.candidates) + 1, self.keyed.keys
        if not len(keys):
            return
        items = keys // bins
        starts = np.concatenate([[0], 1 + np.flatnonzero(items[1:] != items[:-1])])
        ends = np.append(starts, len(keys))
        del items
        step = max(1, _CHUNK_CELLS // bins)
        for first in range(0, len(starts), step):
            count = min(step, len(starts) - first)
            low, high = ends[first], ends[first + count]
            # Where the row of an item begins, less the key of its first bin.
            shift = np.arange(count) * bins - keys[starts[first : first + count]] // bins * bins
            where = keys[low:high] + np.repeat(shift, np.diff(ends[first : first + count + 1]))
            cells = np.zeros((2, count * bins), dtype=np.int64)
            cells[:, where] = self.keyed.values[low:high].T
            mass, share = cells.reshape(2, count, bins)
            yield _expected(mass, share, self.candidates)


@dataclass(frozen=True, eq=False)
class UnpackedCounts:
    """Expected counts of all items in one table."""

    table: Integers

    def pieces(self) -> Iterator[Integers]:
        """All items at once."""
        yield self.table


def _expected(mass: Integers, share: Integers, candidates: Integers) -> Integers:
    """A_j(C_k) of some items, from their mass and share by bin, which it overwrites."""
    up_to, shares = np.cumsum(mass, axis=1, out=mass)[:, :-1], np.cumsum(share, axis=1, out=share)
    above = shares[:, -1:] - shares[:, :-1]
    above *= candidates
    up_to <<= SHARE_BITS
    up_to += above
    return up_to


def sums_by_key(histograms: Histograms, candidates: Integers, cap: int) -> tuple[Integers, Keyed]:
    """Summed over these users: users and totals by bin, and mass and share by item and bin.

    The key of item j and bin b is j (K + 1) + b.
    """
    counts, offsets = entry_counts(histograms), histograms.offsets - histograms.offsets[0]
    running = np.concatenate([[0], np.cumsum(counts)])
    totals = np.diff(running[offsets])
    bins, width = _bins(totals, candidates), len(candidates) + 1
    header = np.concatenate(
        [np.bincount(bins, minlength=width), _weighted(bins, np.minimum(totals, cap), width)]
    )
    owners = np.repeat(np.arange(histograms.users), np.diff(offsets))
    entry_bins = bins[owners]
    # A user above every candidate is never unclipped, one at or below the smallest never clipped.
    mass = counts * (entry_bins < width - 1)
    share = _shares(running, offsets, owners) * (entry_bins > 0)
    keys = entry_items(histograms).astype(np.int64) * width + entry_bins
    values, space = np.stack([mass, share]).T, histograms.domain_size * width
    keyed = coalesce_dense(keys, values, space) if space <= 4 * len(keys) else coalesce(keys, values)
    return header, keyed


def read_sums(header: Integers, keyed: Keyed, candidates: Integers, *, users: int) -> OpenTail:
    """These sums as a selector reads them: how many users are above each candidate, and by how much together."""
    counted, summed = np.split(header, 2)
    users_above = above(counted)
    return OpenTail(
        users_above=users_above,
        overflow=above(summed) - candidates * users_above,
        expected=BinnedCounts(keyed=keyed, candidates=candidates),
        users=users,
    )


def _bins(totals: Integers, candidates: Integers) -> Integers:
    """How many candidates each total is above."""
    largest = int(candidates[-1])
    if largest >= len(totals):
        return np.searchsorted(candidates, totals, side="left")
    # With more users than totals that matter, it is faster to ask for each total once.
    bin_of = np.searchsorted(candidates, np.arange(largest + 2), side="left")
    bins: Integers = bin_of[np.minimum(totals, largest + 1)]
    return bins


def _shares(running: Integers, offsets: Integers, owners: Integers) -> Integers:
    """N_ij/m_i in multiples of 2^-SHARE_BITS, each user's summing to exactly 2^SHARE_BITS.

    Systematic rounding from the middle: q_j = floor((S_j 2^F + m/2)/m) - floor((S_{j-1} 2^F + m/2)/m), where the
    second part is 0 for a user's first entry. The floors of these quotients are exact in doubles: one that is not
    whole is at least 1/m > 2^-31 from a whole number, and below 2^17 it is rounded by less than 2^-36.

    Args:
        running: 0 and the sums of all entries' counts up to each.
        offsets: where each user's entries begin, from 0.
        owners: the place of each entry's user.
    """
    before = running[offsets]
    totals = np.maximum(np.diff(before), 1)
    per_entry = totals[owners]
    up_to = ((running[1:] - before[owners] << SHARE_BITS) + (per_entry >> 1)) / per_entry
    whole = up_to.astype(np.int64)
    shares = np.diff(whole, prepend=0)
    first = offsets[:-1][offsets[1:] > offsets[:-1]]
    shares[first] = whole[first]
    return shares


def _weighted(bins: Integers, weights: Integers, width: int) -> Integers:
    return np.bincount(bins, weights=weights, minlength=width).astype(np.int64)


@dataclass(frozen=True, eq=False)
class KeyTotals(Measurement[Nothing]):
    """Users and totals by bin as a vector, and two values for each item and bin that somebody has."""

    name = "key-totals"
    round = Round.SELECT
    offers = frozenset({"expected-counts"})
    where = "over open domains"
    names_travel = True

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """One release above a bar, which is without masks."""
        return plan.is_open and not plan.discovers

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Sums by item."""
        bins = len(plan.candidate_steps) + 1
        return Words(
            asks=f"users' totals in {bins:,} bins between candidate thresholds, and sums of their items by bin",
            work="totals into bins",
            sends=f"{2 * bins:,} whole numbers, items with sums",
            detail=f"Each user's total falls into one of {bins:,} bins between candidates. Their items are summed by "
            "bin and sent with their names.",
        )

    @cached_property
    def shape(self) -> Shape:
        """A value is a total, cut to C_m, or a share."""
        bins = len(self.plan.candidate_steps) + 1
        largest = max(int(self.plan.candidate_steps[-1]), 1 << SHARE_BITS)
        return Shape(length=2 * bins, largest=largest, columns=2, bins=bins)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """How far one user moves what selectors read.

        A user of total m (cut to C_m) is above the candidates below m: one user more or less, for either neighbours.
        The overflow moves by max(m - C, 0) <= C_m - C_min, for either neighbours, because it is not negative. The
        user's parts of the A_j(C) sum to min(m, C) <= C_m, so their l1 norm at any candidate moves by at most C_m, and
        by twice that where one user is replaced.
        """
        plan = self.plan
        smallest, largest = int(plan.candidate_steps[0]), int(plan.candidate_steps[-1])
        spread = largest << SHARE_BITS
        whole = 2 * spread if plan.neighbours is Neighbours.REPLACE_ONE else spread
        return {
            "users_above": Sensitivity(square=1, norm=Norm.SCORE, neighbours=plan.neighbours),
            "overflow": Sensitivity(
                square=(largest - smallest) ** 2, norm=Norm.SCORE, neighbours=plan.neighbours
            ),
            "expected": Sensitivity(square=whole**2, norm=Norm.L1, neighbours=plan.neighbours),
        }

    @property
    def key(self) -> tuple[object, ...]:
        """Candidates."""
        plan = self.plan
        return (self.name, plan.candidate_steps.tobytes())

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """Both parts."""
        candidates = self.plan.candidate_steps
        return Summed(*sums_by_key(users, candidates, int(candidates[-1])))

    def check(self, summed: Summed, users: int) -> None:
        """Every user is in one bin, with a total of at most C_m and shares that sum to one."""
        cap = int(self.plan.candidate_steps[-1])
        counted, totals = np.split(summed.values, 2)
        exactly(counted, users)
        at_most(totals, counted * cap, "the total of a bin")
        bounds = np.array([users * cap, users << SHARE_BITS])
        sum_at_most(keyed_part(summed).values, bounds, "the mass or the share of all items")

    def read(self, total: Total) -> OpenTail:
        """Expected counts of every item."""
        return read_sums(total.values, keyed_part(total), self.plan.candidate_steps, users=total.users)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The bin of the device's total, then its items."""
        bins = self.shape.bins
        values = summed.values
        places = [
            (
                f"users in bin {place}" if place < bins else f"total in bin {place - bins}",
                float(values[place]),
            )
            for place in np.flatnonzero(values).tolist()
        ]
        if summed.keyed is not None:
            kept = slice(max(0, most - len(places)))
            for key, row in zip(
                summed.keyed.keys[kept].tolist(), summed.keyed.values[kept].tolist(), strict=True
            ):
                places.append((f"{labels[key // bins]}, bin {key % bins}", float(max(row))))
        return places[:most]
