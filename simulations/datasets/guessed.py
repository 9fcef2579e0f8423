"""A population made from a few guesses about users, for planning when there is no public data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Floats, Histograms, Integers
from fedhist.protocol.validation import without_repeats
from fedhist.simulations.datasets import DEFAULT_MEAN_TOTAL, DEFAULT_TAIL_INDEX
from fedhist.simulations.datasets.synthetic import (
    BLOCK_USERS,
    SyntheticPopulation,
    block_generator,
    check_size,
)

MAX_GUESSED_USERS = 5_000_000
LARGEST_TOTAL = 1e6
# A user's number of distinct items grows like the total to this power, as in HeavyTailedPopulation.
_VARIETY = 0.75
_FALL = 1.25
_NOBODY = 0.3  # A total that is rounded to none, instead of 0, which has no logarithm.
_SEARCH_STEPS = 24
_TOLERANCE = 0.02


@dataclass(frozen=True)
class GuessedPopulation(SyntheticPopulation):
    """Users with Pareto totals over items of popularity 1/(rank + 2).

    - Totals: user i of n has the quantile (i + 1/2)/n of a distribution, so that the largest total is not left to
      chance. It is a Pareto distribution, P(total > x) falling like x^-tail_index, scaled to the mean. With `sizes`
      it is lognormal between each two of these percentiles and beyond them. Nobody has more than a million.
    - Distinct items: a user's number of items is proportional to total^0.75, at most the total, with a factor chosen
      so that the mean over users is `distinct_items`. Items are drawn by popularity, so some coincide.
    - Counts: one of each item, and the rest of the total spread in proportions 1, 2^-1.25, 3^-1.25, ...

    Args:
        users: the number of users, up to MAX_GUESSED_USERS.
        items: the number of items in the domain.
        seed: any integer; it decides which items a user has.
        mean_total: the mean of users' totals, at least 1.
        distinct_items: the mean number of distinct items of a user; None stands for mean_total^0.6.
        tail_index: above 1; 1.2 is very uneven, 3 is tame, at 10 users are nearly alike.
        sizes: percentiles of users' totals instead of mean and tail, rising: pairs of a percentage and a total.
    """

    users: int
    items: int
    seed: int
    mean_total: float = DEFAULT_MEAN_TOTAL
    distinct_items: float | None = None
    tail_index: float = DEFAULT_TAIL_INDEX
    sizes: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check_size(self.users, self.items)
        if self.users > MAX_GUESSED_USERS:
            raise InvalidInput(
                f"{self.users:,} users are too many to guess",
                allowed=f"1 to {MAX_GUESSED_USERS:,}",
                advice="lower --users: with more of them the relative error is no larger",
                code="bad-users",
            )
        if self.sizes:
            self._check_sizes()
        elif not 1 <= self.mean_total <= LARGEST_TOTAL / 10:
            raise InvalidInput(
                f"the guessed mean total of a user is {self.mean_total:g}",
                allowed=f"1 to {LARGEST_TOTAL / 10:,.0f}",
                advice="choose another --mean-total",
                code="bad-mean-total",
            )
        if not 1 < self.tail_index <= 100:
            raise InvalidInput(
                f"the tail index is {self.tail_index:g}",
                allowed="more than 1 (at 1 and below, totals have no mean) and at most 100",
                advice="choose another --tail-index: 1.2 is very uneven, 1.5 usual, 3 tame",
                code="bad-tail-index",
            )
        highest = float(min(self._totals.mean() if self.sizes else self.mean_total, self.items))
        if not 0 < self.wanted_items <= highest or (self.wanted_items < 1 and not self.sizes):
            raise InvalidInput(
                f"{self.wanted_items:g} distinct items per user contradict a mean total of "
                f"{self._totals.mean() if self.sizes else self.mean_total:.4g} over {self.items:,} items",
                allowed=f"1 to {highest:g} distinct items per user",
                advice="a user has at least one count of each item; raise --mean-total or lower --distinct-items",
                code="bad-distinct-items",
            )

    def _check_sizes(self) -> None:
        percents, totals = zip(*self.sizes, strict=True)
        if (
            len(self.sizes) < 2
            or any(low >= high for low, high in pairwise((0, *percents, 100)))
            or any(low > high for low, high in pairwise((0, *totals, LARGEST_TOTAL)))
            or totals[-1] < 1
        ):
            raise InvalidInput(
                "the sizes are no percentiles of users' totals",
                allowed="two or more pairs PERCENT:TOTAL that rise, percentages between 0 and 100, the last total 1 or "
                f"more and at most {LARGEST_TOTAL:,.0f}",
                advice="for example --sizes 50:8,90:26,99:106,99.9:386",
                code="bad-sizes",
            )

    @property
    def description(self) -> str:
        """The family and its parameters."""
        totals = f"Pareto totals of mean {self.mean_total:g} and tail index {self.tail_index:g}"
        if self.sizes:
            totals = "lognormal totals between " + ", ".join(f"{p:g} %: {t:g}" for p, t in self.sizes)
        return f"{totals}; {self.wanted_items:.3g} different items a user, of popularity 1/(rank + 2)"

    @property
    def wanted_items(self) -> float:
        """The guessed mean number of distinct items."""
        if self.distinct_items is not None:
            return self.distinct_items
        mean = float(self._totals.mean()) if self.sizes else self.mean_total
        return float(min(mean**0.6, mean, self.items))

    def block(self, number: int) -> Histograms:
        """The block with this number; the last one may be smaller."""
        first = number * BLOCK_USERS
        return self._drawn(self._totals[first : first + BLOCK_USERS], self._factor, number)

    @cached_property
    def _totals(self) -> Integers:
        """Every user's total, at least 1, in an order that spreads the large ones over the blocks."""
        beyond = (np.arange(self.users) + 0.5) / self.users
        if self.sizes:
            return self._shuffled(np.rint(self._lognormal(1 - beyond)).astype(np.int64))
        tail = beyond ** (-1 / self.tail_index)
        # The mean of the totals cut to [1, LARGEST_TOTAL] grows with the scale.
        mean = self.mean_total
        scale = _bisected(
            lambda middle: float(np.clip(middle * tail, 1.0, LARGEST_TOTAL).mean()) < mean,
            high=mean,
            steps=60,
        )
        whole = np.floor(np.cumsum(np.clip(scale * tail, 1.0, LARGEST_TOTAL)) + 0.5)
        return self._shuffled(np.maximum(np.diff(whole, prepend=0.0), 1.0).astype(np.int64))

    def _shuffled(self, totals: Integers) -> Integers:
        return block_generator("guessed/order", self.seed, 0).permutation(totals)

    def _lognormal(self, shares: Floats) -> Floats:
        """The totals at these quantiles: straight lines through the sizes, in logarithms and normal deviates."""
        from scipy.special import ndtri

        percents, totals = np.array(self.sizes).T
        known, at, wanted = np.log(np.maximum(totals, _NOBODY)), ndtri(percents / 100), ndtri(shares)
        slopes = np.diff(known) / np.diff(at)
        piece = np.clip(np.searchsorted(at, wanted) - 1, 0, len(slopes) - 1)
        found: Floats = np.exp(known[piece] + slopes[piece] * (wanted - at[piece]))
        return np.minimum(found, LARGEST_TOTAL)

    @cached_property
    def _factor(self) -> float:
        """The factor of total^0.75 that gives users the guessed number of distinct items, found on one block."""
        totals = self._totals[:BLOCK_USERS]

        def mean_items(factor: float) -> float:
            return self._drawn(totals, factor, 0).nonzeros / len(totals)

        highest = float(max(self.items, totals.mean()))
        factor = _bisected(lambda one: mean_items(one) < self.wanted_items, high=highest, steps=_SEARCH_STEPS)
        reached = mean_items(factor)
        if reached < (1 - _TOLERANCE) * self.wanted_items:
            raise InvalidInput(
                f"{self.wanted_items:g} distinct items per user can't be reached with {self.items:,} items and these "
                "totals",
                allowed=f"up to about {reached:.3g}",
                advice="many users have fewer counts than the mean: lower --distinct-items, or raise --mean-total, "
                "--tail-index or --items",
                code="unreachable-items",
            )
        return factor

    def _drawn(self, totals: Integers, factor: float, number: int) -> Histograms:
        generator = block_generator("guessed", self.seed, number)
        wanted = factor * totals.astype(np.float64) ** _VARIETY
        # One random number per user decides the rounding; drawn first, it is the same for every factor.
        chosen = np.floor(wanted + generator.random(len(totals)))
        numbers = np.clip(chosen, np.minimum(totals, 1), np.minimum(totals, 4 * self.items)).astype(np.int64)
        offsets = np.concatenate(([0], np.cumsum(numbers)))
        rank = np.arange(offsets[-1]) - np.repeat(offsets[:-1], numbers)
        spread = (self.items + 2.0) / 2.0
        popular = np.floor(2.0 * spread ** generator.random(len(rank)) - 2.0).astype(np.int64)
        drawn = Histograms(
            offsets=offsets,
            items=np.minimum(popular, self.items - 1),
            counts=1 + _spread(totals - numbers, numbers, rank, offsets),
            domain_size=self.items,
            first_user=number * BLOCK_USERS,
        )
        return without_repeats(drawn)


def _bisected(too_low: Callable[[float], bool], *, high: float, steps: int) -> float:
    """The smallest number from 0 to `high` that is not too low, up to the precision of these steps."""
    low = 0.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high


def _spread(rest: Integers, numbers: Integers, rank: Integers, offsets: Integers) -> Integers:
    """Each user's rest in proportions 1, 2^-1.25, 3^-1.25, ... as whole numbers that add up to it."""
    numbers, rest, offsets = numbers[numbers > 0], rest[numbers > 0], np.unique(offsets)
    running = np.cumsum((rank + 1.0) ** -_FALL)
    before = np.concatenate(([0.0], running))[offsets[:-1]]
    share = (running - np.repeat(before, numbers)) / np.repeat(running[offsets[1:] - 1] - before, numbers)
    up_to = np.rint(share * np.repeat(rest, numbers)).astype(np.int64)
    parts: Integers = np.diff(up_to, prepend=0)
    parts[offsets[:-1]] = up_to[offsets[:-1]]
    return parts
