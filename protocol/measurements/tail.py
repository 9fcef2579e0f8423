"""`tail`: how many users lie above each candidate threshold, and with what weight. Round 1 of closed domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clipping import tail_weights, user_squares, user_totals
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.given import Nothing
from fedhist.protocol.measurements.limits import at_most, exactly
from fedhist.protocol.privacy.neighbours import (
    WEIGHT_BITS,
    Norm,
    Sensitivity,
    tail_count,
    tail_weight,
    weight_cap,
)
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

ROOM_FOR_SELECTORS = 1 << 56

BY_SPARSITY = {"sharper": "lower --sparsity", "fewer": "they have many different items"}
"""What to say of a choice by weights of up to sqrt(s)."""

_LOOKED_UP = 1 << 16


@dataclass(frozen=True, eq=False)
class Tail:
    """The sum as a selector reads it.

    Args:
        counts: the number of users with norm above candidate k, for each k.
        weights: W(C_k), the sum of their weights, in multiples of 2^-WEIGHT_BITS.
        users: the number of users in the sum.
        width: counts and weights are known modulo 2^width only, see `protocol/circle.py`.
    """

    counts: Integers
    weights: Integers
    users: int
    width: int = WIDEST


@dataclass(frozen=True, eq=False)
class TailMeasurement(Measurement[Nothing]):
    """A number of users and a weight for each of the K + 1 bins between candidates.

    Sensitivity: a user is in one bin, with a weight in [0, cap], whatever they have; `neighbours.tail_weight` has the
    proof for the sums above a candidate, at every candidate at once.
    """

    name = "tail"
    round = Round.SELECT
    offers = frozenset({"weights", "counts"})
    where = "over closed domains"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Whole histograms of a closed domain, noised by the server."""
        return not (plan.is_open or plan.per_item or plan.noise_by_devices or plan.chooses_mechanism)

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Bins and weights."""
        bins = len(plan.candidate_steps) + 1
        return Words(
            asks=f"the {plan.norm.value} norms of users, sorted into {bins:,} bins between candidate thresholds",
            work="norms into bins",
            sends=f"{2 * bins:,} whole numbers",
            detail=f"Each user's {plan.norm.value} norm falls into one of {bins:,} bins, with a weight for what "
            "clipping costs.",
            **BY_SPARSITY if plan.norm is Norm.L2 else {},
        )

    @cached_property
    def shape(self) -> Shape:
        """Two values a bin. Selectors add noise of their own, for which there is room up to the widest sums."""
        length = 2 * (len(self.plan.candidate_steps) + 1)
        return Shape(length=length, largest=self.plan.tail_cap, noise=ROOM_FOR_SELECTORS)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the sums above each candidate."""
        neighbours = self.plan.neighbours
        return {
            "weights": tail_weight(self.plan.tail_cap, neighbours=neighbours),
            "counts": tail_count(neighbours=neighbours),
        }

    @property
    def key(self) -> tuple[object, ...]:
        """Candidates, grid, norm and cap."""
        plan = self.plan
        spread = plan.closed.sparsity if plan.norm is Norm.L2 else 0
        return (self.name, plan.norm, spread, plan.grid_bits, plan.candidate_steps.tobytes())

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """The users of each bin, then their weights."""
        plan = self.plan
        return Summed(
            tail_vector(
                users,
                plan.candidate_steps,
                bits=plan.grid_bits,
                norm=plan.norm,
                sparsity=plan.closed.sparsity,
            )
        )

    def check(self, summed: Summed, users: int) -> None:
        """Every user is in one bin, with a weight up to the cap."""
        counted, weighed = np.split(summed.values, 2)
        exactly(counted, users)
        at_most(weighed, counted * self.plan.tail_cap, "the weight of a bin")

    def read(self, total: Total) -> Tail:
        """The sums above each candidate, from the sums in each bin."""
        counted, weighed = np.split(total.values, 2)
        return Tail(counts=above(counted), weights=above(weighed), users=total.users, width=total.width)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The bins that hold somebody."""
        bins = len(summed.values) // 2
        places = np.flatnonzero(summed.values)[:most].tolist()
        return [
            (f"users in bin {place}", float(summed.values[place]))
            if place < bins
            else (f"weight in bin {place - bins}", summed.values[place] / 2**WEIGHT_BITS)
            for place in places
        ]


def tail_vector(
    histograms: Histograms, candidates: Integers, *, bits: int, norm: Norm, sparsity: int
) -> Integers:
    """The vector summed over these users.

    Bin k holds the users whose norm is above exactly k candidates; first the number of users in each bin, then their
    weight. l2: the weight is r_i = |N_i|_1/|N_i|_2 (Liu et al. 4.2, the summand of W), rounded to 2^-WEIGHT_BITS. l1:
    clipping loses mass at rate 1, so the weight is one. An empty user is in bin 0 with weight 0.

    A user's r_i is at most the root of the number of their items. It is cut to sqrt(s), which is what makes the sums
    private: users of more items count as if they had s of them.

    Bins are decided in whole numbers, by the same comparison that clipping uses.
    """
    bins, weights = binned_users(histograms, candidates, bits=bits, norm=norm, sparsity=sparsity)
    length = len(candidates) + 1
    counted = np.bincount(bins, minlength=length)
    # Exact in doubles: a shard's weights sum to less than 2^53.
    weighed = np.bincount(bins, weights=weights, minlength=length).astype(np.int64)
    return np.concatenate([counted, weighed])


def binned_users(
    histograms: Histograms, candidates: Integers, *, bits: int, norm: Norm, sparsity: int
) -> tuple[Integers, Integers]:
    """The bin and the weight of each user, see `tail_vector`."""
    totals = user_totals(histograms)
    if norm is Norm.L1:
        bins = places_of(totals, candidates >> bits)
        return bins, np.where(totals > 0, 1 << WEIGHT_BITS, 0)
    squares = user_squares(histograms)
    scaled = np.rint(np.ldexp(tail_weights(totals, squares), WEIGHT_BITS)).astype(np.int64)
    bins = np.searchsorted((candidates * candidates) >> (2 * bits), squares, side="left")
    return bins, np.minimum(scaled, weight_cap(sparsity))  # audited: weights cut


def places_of(totals: Integers, cuts: Integers) -> Integers:
    """How many cuts each total is above. Looked up where totals are small, which is faster than a search for each."""
    largest = int(totals.max(initial=0))
    if largest >= _LOOKED_UP or len(totals) <= largest:
        return np.searchsorted(cuts, totals, side="left")
    places: Integers = np.searchsorted(cuts, np.arange(largest + 1), side="left")[totals]
    return places


def above(bins: Integers) -> Integers:
    """The sums above each candidate: above candidate k are the bins k + 1 and up. Bins are the last axis."""
    suffix: Integers = np.cumsum(bins[..., ::-1], axis=-1)[..., ::-1]
    return suffix[..., 1:]
