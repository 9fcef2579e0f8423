"""How many users lie above each candidate threshold: round 1 of closed domains, noised by the server.

`tail`: how many users lie above each candidate threshold, and with what weight. Round 1 of closed domains.

`norm-tails`: the tails of the l1 and the l2 norm in one vector. Round 1 of plans that choose their mechanism.

Candidates are pairs of thresholds (a, b): an l2 bound a with Gaussian noise and an l1 bound b with Laplace noise, b =
rho a, so that both have the same expected noise. Of two such bounds the better one is that which clips less away. A
user of total m and ratio of norms r = |N|_1/|N|_2 keeps min(m, r a) of their mass under the first and min(m, rho a)
under the second, so

    gap(a) = sum over users of min(r, m/a) - min(rho, m/a)

is the mass that l2 keeps and l1 does not, in units of a. Unlike either mass it moves by little when a user comes or
goes.

`item-tail`: for each item, how many users have more of it than each candidate. Round 1 of debiased plans.

The paper's count estimation (section 6) for one item, and its first extension to histograms (appendix): Algorithm 5 on
each of d items with a share of the budget each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clipping import entry_counts, entry_items, tail_weights, user_squares, user_totals
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.measurements.base import (
    SLACK,
    Measurement,
    Nothing,
    Round,
    Shape,
    Summed,
    Total,
    Words,
    at_most,
    beyond,
    exactly,
    sum_at_most,
)
from fedhist.protocol.plan.plan import geometric_candidates
from fedhist.protocol.privacy.neighbours import (
    WEIGHT_BITS,
    Neighbours,
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

_MOST_FINE_BITS = 14
# Honest users add up to less than this in the gap, and whatever passes `check` to twice as much.
_GAP_ROOM_BITS = 59


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


@dataclass(frozen=True, eq=False)
class NormPairs:
    """The candidates of a plan, and the whole numbers that its gap is made of.

    Args:
        l2: a, in steps of the Gaussian plan's grid, rising.
        l1: b, in steps of the Laplace plan's grid.
        cap: the largest weight of a user in the l2 tail, sqrt(s), in multiples of 2^-WEIGHT_BITS.
        fine_bits: the gap's unit is 2^-(WEIGHT_BITS + fine_bits).
        rates: 1/a in that unit, rounded down: what one count below the bound adds to the gap.
        ratios: b/a in that unit, rounded down: what a user above b takes from it.
        l2_totals: the largest total of a user at or below each a.
        l1_totals: the same for each b.
    """

    l2: Integers = field(repr=False)
    l1: Integers = field(repr=False)
    cap: int
    fine_bits: int
    rates: Integers = field(repr=False)
    ratios: Integers = field(repr=False)
    l2_totals: Integers = field(repr=False)
    l1_totals: Integers = field(repr=False)

    @property
    def one(self) -> int:
        """A ratio of norms of one, in the gap's unit."""
        return 1 << (WEIGHT_BITS + self.fine_bits)

    @property
    def largest(self) -> int:
        """A ratio of norms of sqrt(s), in the gap's unit."""
        return self.cap << self.fine_bits

    @property
    def rounding(self) -> int:
        """How far one user's part of the gap may be from the exact one: that of a weight, of a rate and of a ratio."""
        return (1 << self.fine_bits) + int(self.l2_totals[-1]) + int(self.l1_totals[-1]) + 2

    @property
    def rise(self) -> int:
        """The most that a user adds to the gap: r - rho <= sqrt(s) - rho where both norms are above their bounds."""
        return max(self.largest - int(self.ratios.min()), 0) + self.rounding

    @property
    def fall(self) -> int:
        """The most that a user takes from it: rho - r <= rho - 1."""
        return max(int(self.ratios.max()) - self.one, 0) + self.rounding


def even_totals(candidates: Integers, *, bits: int, sparsity: int) -> Integers:
    """The largest total whose even spread over s items has a norm of at most C, for each C: floor(sqrt(s) C).

    A user of at most s items has |N|_1 <= sqrt(s) |N|_2, so one whose norm is at most C is never above it.
    """
    return np.array([math.isqrt(sparsity * steps * steps) >> bits for steps in candidates.tolist()])


@functools.lru_cache(maxsize=64)
def norm_pairs(plan: Plan) -> NormPairs:
    """The candidates of a plan that chooses its mechanism."""
    gaussian, laplace = plan.ways["gaussian"], plan.ways["laplace"]
    rho = gaussian.noise_price / laplace.noise_price
    scale = rho * 2.0 ** (laplace.grid_bits - gaussian.grid_bits)
    first, last = gaussian.step_range
    lowest, highest = (
        math.ceil(first * max(1.0, 1 / rho)),
        min(last, math.floor(laplace.step_range[1] / scale)),
    )
    lowest = min(lowest, last)
    l2 = geometric_candidates(lowest, max(lowest, highest), plan.candidates)
    l1 = np.clip(np.rint(l2 * scale).astype(np.int64), *laplace.step_range)
    sparsity, cap = plan.closed.sparsity, weight_cap(plan.closed.sparsity)
    # All users together stay below 2^59 in the gap's unit.
    widest = plan.most_users * max(cap, math.ceil(2 * rho * (1 << WEIGHT_BITS)))
    fine_bits = max(0, min(_MOST_FINE_BITS, _GAP_ROOM_BITS - widest.bit_length()))
    unit = WEIGHT_BITS + fine_bits
    rates = [(1 << (unit + gaussian.grid_bits)) // steps for steps in l2.tolist()]
    ratios = [(rate * bound) >> laplace.grid_bits for rate, bound in zip(rates, l1.tolist(), strict=True)]
    return NormPairs(
        l2=l2,
        l1=l1,
        cap=cap,
        fine_bits=fine_bits,
        rates=np.array(rates),
        ratios=np.array(ratios),
        l2_totals=even_totals(l2, bits=gaussian.grid_bits, sparsity=sparsity),
        l1_totals=l1 >> laplace.grid_bits,
    )


@dataclass(frozen=True, eq=False)
class NormTails:
    """The sum as a selector reads it.

    Args:
        weights: the weight of the users above each a, in multiples of 2^-WEIGHT_BITS.
        counts: the number of users above each b.
        gap: the mass that a keeps and b does not, in units of a times 2^-(WEIGHT_BITS + fine_bits).
        users: the number of users in the sum.
        width: all of these are known modulo 2^width only, see `protocol/circle.py`.
    """

    weights: Integers
    counts: Integers
    gap: Integers
    users: int
    width: int = WIDEST


@dataclass(frozen=True, eq=False)
class NormTailsMeasurement(Measurement[Nothing]):
    """Weights by l2 norm, weights and masses by l2 norm of an even spread, users and masses by l1 norm.

    All in the bins between candidates. A user with r above sqrt(s) is taken for one with r = sqrt(s); the gap then
    keeps their mass if the norm is that of an even spread over s items, |N|_1/sqrt(s), where theirs is below it.

    Sensitivity: `neighbours.tail_weight` for weights and counts. The gap: a user above both bounds adds r - rho, with r
    in [1, sqrt(s)], and one below either of them something between that and 0; `NormPairs` has the numbers. Replacing
    a user may do both at once.
    """

    name = "norm-tails"
    round = Round.SELECT
    offers = frozenset({"norm-tails"})
    where = "over closed domains"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Plans over a closed domain that choose their mechanism."""
        return plan.chooses_mechanism and not plan.is_open

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Bins of both norms."""
        bins = plan.candidates + 1
        return Words(
            asks=f"the l1 and l2 norms of users, sorted into up to {bins:,} bins each between candidate thresholds",
            work="both norms into bins",
            sends=f"about {5 * plan.candidates + 3:,} whole numbers",
            detail=f"Each user's l1 norm falls into one of up to {bins:,} bins and their l2 norm into another, with "
            "a weight for what clipping costs and with the user's total.",
            **BY_SPARSITY,
        )

    @cached_property
    def pairs(self) -> NormPairs:
        """The candidates."""
        return norm_pairs(self.plan)

    @cached_property
    def shape(self) -> Shape:
        """Two weights and a number of users a bin, and two masses for all but the last one."""
        pairs = self.pairs
        largest = max(pairs.cap, int(pairs.l2_totals[-1]), int(pairs.l1_totals[-1]))
        return Shape(length=5 * len(pairs.l2) + 3, largest=largest, noise=ROOM_FOR_SELECTORS)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the sums above each candidate, and of the gap."""
        neighbours, pairs = self.plan.neighbours, self.pairs
        both = neighbours is Neighbours.REPLACE_ONE
        gap = pairs.rise + pairs.fall if both else max(pairs.rise, pairs.fall)
        return {
            "weights": tail_weight(pairs.cap, neighbours=neighbours),
            "counts": tail_count(neighbours=neighbours),
            "gap": Sensitivity(square=gap**2, norm=Norm.SCORE, neighbours=neighbours),
        }

    @property
    def key(self) -> tuple[object, ...]:
        """Candidates, their grids and the cap."""
        plan, pairs = self.plan, self.pairs
        bits = tuple(way.grid_bits for way in plan.ways.values())
        return (self.name, plan.closed.sparsity, bits, pairs.l2.tobytes(), pairs.l1.tobytes())

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """Weights; weights and masses; users and masses."""
        pairs, ways, sparsity = self.pairs, self.plan.ways, self.plan.closed.sparsity
        totals, length = user_totals(users), len(pairs.l2) + 1
        by_l2, weights = binned_users(
            users, pairs.l2, bits=ways["gaussian"].grid_bits, norm=Norm.L2, sparsity=sparsity
        )
        by_l1, _ = binned_users(
            users, pairs.l1, bits=ways["laplace"].grid_bits, norm=Norm.L1, sparsity=sparsity
        )
        spread = np.maximum(by_l2, places_of(totals, pairs.l2_totals))
        # Exact in doubles: a shard's weights and totals sum to less than 2^53.
        parts = [
            np.bincount(by_l2, weights=weights, minlength=length),
            np.bincount(spread, weights=weights, minlength=length),
            np.bincount(spread, weights=totals, minlength=length)[:-1],
            np.bincount(by_l1, minlength=length),
            np.bincount(by_l1, weights=totals, minlength=length)[:-1],
        ]
        return Summed(np.concatenate(parts).astype(np.int64))

    def check(self, summed: Summed, users: int) -> None:
        """Every user is in one bin of each norm, with a weight up to the cap and a total that belongs there."""
        pairs = self.pairs
        weights, spread, l2_masses, counts, l1_masses = self._parts(summed.values)
        exactly(counts, users)
        for column in (weights, spread):
            sum_at_most(column, users * pairs.cap, "the weight of all bins")
        # Of all bins up to a candidate: with a bound on each bin alone, many of them could carry the gap around.
        if (np.cumsum(l2_masses, dtype=np.float64) > users * pairs.l2_totals * SLACK).any():
            raise beyond("the mass up to a candidate")
        at_most(l1_masses, counts[:-1] * pairs.l1_totals, "the mass of a bin")

    def read(self, total: Total) -> NormTails:
        """The sums above each candidate, and the gap, modulo 2^64 as all of them are."""
        pairs = self.pairs
        weights, spread, l2_masses, counts, l1_masses = self._parts(total.values)
        heavy, many = above(weights), above(counts)
        kept = (above(spread) << pairs.fine_bits) + pairs.rates * np.cumsum(l2_masses)
        kept -= pairs.ratios * many + pairs.rates * np.cumsum(l1_masses)
        return NormTails(weights=heavy, counts=many, gap=kept, users=total.users, width=total.width)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The bins that hold somebody."""
        weights, _, _, counts, _ = self._parts(summed.values)
        users = [(f"users in bin {k} by l1", float(counts[k])) for k in np.flatnonzero(counts).tolist()]
        heavy = [
            (f"weight in bin {k} by l2", weights[k] / 2**WEIGHT_BITS)
            for k in np.flatnonzero(weights).tolist()
        ]
        return (users + heavy)[:most]

    def _parts(self, values: Integers) -> list[Integers]:
        candidates = len(self.pairs.l2)
        return np.split(values, np.cumsum([candidates + 1, candidates + 1, candidates, candidates + 1]))


@dataclass(frozen=True, eq=False)
class ItemTail:
    """The sum as a selector reads it.

    Args:
        counts: for each item, the number of users with more of it than each candidate: shape (items, candidates).
        users: the number of users in the sums.
        width: counts are known modulo 2^width only, see `protocol/circle.py`.
    """

    counts: Integers
    users: int
    width: int = WIDEST


@dataclass(frozen=True, eq=False)
class ItemTailMeasurement(Measurement[Nothing]):
    """A number of users for each item and bin.

    Sensitivity: a user is in one bin of each item they have, so for either neighbours one user moves the number of
    users above any candidate of any one item by at most 1.
    """

    name = "item-tail"
    round = Round.SELECT
    offers = frozenset({"item-counts"})
    where = "where items are clipped one by one"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Items clipped one by one, noised by the server."""
        return plan.per_item and not plan.noise_by_devices

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Bins of each item."""
        items, bins = plan.closed.items, len(plan.candidate_steps) + 1
        return Words(
            asks=f"users' counts of each item, sorted into {bins:,} bins between candidate thresholds",
            work="counts into bins",
            sends=f"{items * bins:,} whole numbers",
            detail=f"A user's count of each item falls into one of {bins:,} bins of that item.",
            sharper="debias fewer items",
        )

    @cached_property
    def shape(self) -> Shape:
        """A user is at most once in a bin."""
        return Shape(length=self.plan.closed.items * (len(self.plan.candidate_steps) + 1), largest=1)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the users above a candidate of one item."""
        return {"counts": tail_count(neighbours=self.plan.neighbours)}

    @property
    def key(self) -> tuple[object, ...]:
        """Candidates and grid."""
        plan = self.plan
        return (self.name, plan.grid_bits, plan.candidate_steps.tobytes())

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """For each item and bin, the users whose count of the item is above exactly that many candidates."""
        candidates = self.plan.candidate_steps
        bins = np.searchsorted(candidates >> self.plan.grid_bits, entry_counts(users), side="left")
        width = len(candidates) + 1
        cells = entry_items(users).astype(np.int64) * width + bins
        return Summed(np.bincount(cells, minlength=users.domain_size * width))

    def check(self, summed: Summed, users: int) -> None:
        """Every user is in at most one bin of an item."""
        sum_at_most(summed.values.reshape(self.plan.closed.items, -1).T, users, "the users of an item")

    def read(self, total: Total) -> ItemTail:
        """The users above each candidate, from the users in each bin."""
        bins = total.values.reshape(self.plan.closed.items, -1)
        return ItemTail(counts=above(bins), users=total.users, width=total.width)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The bins of the items that the device has."""
        width = len(self.plan.candidate_steps) + 1
        places = np.flatnonzero(summed.values)[:most].tolist()
        return [
            (f"{labels[place // width]}, bin {place % width}", float(summed.values[place]))
            for place in places
        ]
