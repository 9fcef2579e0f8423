"""Exact statistics of a population: sizes of users, their spread, and the most frequent items. Not private."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhist.protocol.clips.clipping import entry_counts, entry_items, row_sums, sum_items, tail_weights
from fedhist.protocol.histograms import Floats, Integers, Population, labels_of

QUANTILES = {
    "p0": 0.0, "p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95,
    "p99": 0.99, "p99.9": 0.999, "p100": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Bin:
    """The users whose total is from `low` to `high`, and the sum of their counts."""

    low: int
    high: int
    users: int
    counts: int


@dataclass(frozen=True)
class HeadItem:
    """One of the most frequent items: its count over all users, and the number of users who have it."""

    item: str | int
    total: int
    users: int


@dataclass(frozen=True)
class Description:
    """The exact statistics of a population. Never publish them for real users' data.

    Args:
        name: where the population came from.
        users, items: n and d.
        items_used: the number of items that at least one user has.
        empty_users: the number of users without any item.
        total: the sum of all counts.
        nonzeros: the number of pairs of a user and an item.
        largest_count: the largest count of one item of one user.
        totals, distinct, norms, rates: quantiles over users of m_i, of the number of distinct items, of |N_i|_2 and of
            r_i = |N_i|_1/|N_i|_2 (0 for an empty user), each a value that some user has; and the mean.
        bins: users by total, in powers of two.
        head: the most frequent items.
        item_totals: the true histogram, in falling order.
    """

    name: str
    users: int
    items: int
    items_used: int
    empty_users: int
    total: int
    nonzeros: int
    largest_count: int
    totals: dict[str, float]
    distinct: dict[str, float]
    norms: dict[str, float]
    rates: dict[str, float]
    bins: tuple[Bin, ...]
    head: tuple[HeadItem, ...]
    item_totals: Integers = field(repr=False, compare=False)

    @property
    def density(self) -> float:
        """The share of the table of users by items that is not zero."""
        return self.nonzeros / (self.users * self.items)

    def to_json(self) -> dict[str, Any]:
        """The statistics as one JSON document."""
        names = ("name", "users", "items", "items_used", "empty_users", "total", "nonzeros", "largest_count")
        document = {name: getattr(self, name) for name in names} | {"density": self.density}
        document |= {
            "user_totals": self.totals,
            "user_distinct_items": self.distinct,
            "user_l2_norms": self.norms,
            "user_rates": self.rates,
            "users_by_total": [vars(one) for one in self.bins],
            "head": [vars(one) for one in self.head],
        }
        return document | {"not_private": sorted(document)}


def describe(population: Population, *, name: str, head: int = 10) -> Description:
    """Describe a population, shard by shard; memory holds a few numbers for each user.

    Args:
        population: the users.
        name: what to call the population.
        head: how many of the most frequent items to name.
    """
    totals, squares, distinct = (np.zeros(population.users, dtype=np.int64) for _ in range(3))
    item_totals, item_users = (np.zeros(population.domain_size, dtype=np.int64) for _ in range(2))
    largest = 0
    for shard in population.shards():
        counts, here = entry_counts(shard), slice(shard.first_user, shard.first_user + shard.users)
        has_some = counts > 0
        totals[here] = row_sums(counts, shard.offsets)
        squares[here] = row_sums(counts * counts, shard.offsets)
        distinct[here] = row_sums(has_some.astype(np.int64), shard.offsets)
        item_totals += sum_items(shard)
        np.add.at(item_users, entry_items(shard)[has_some].astype(np.intp), 1)
        largest = max(largest, int(counts.max(initial=0)))
    order = np.argsort(-item_totals, kind="stable")
    labels = labels_of(population)
    frequent = [number for number in order[:head].tolist() if item_totals[number]]
    return Description(
        name=name,
        users=population.users,
        items=population.domain_size,
        items_used=int(np.count_nonzero(item_totals)),
        empty_users=int(np.count_nonzero(totals == 0)),
        total=int(totals.sum()),
        nonzeros=int(distinct.sum()),
        largest_count=largest,
        totals=_quantiles(totals),
        distinct=_quantiles(distinct),
        norms=_quantiles(np.sqrt(squares)),
        rates=_quantiles(tail_weights(totals, squares)),
        bins=tuple(_bins(totals)),
        head=tuple(
            HeadItem(
                number if labels is None else labels[number],
                int(item_totals[number]),
                int(item_users[number]),
            )
            for number in frequent
        ),
        item_totals=item_totals[order],
    )


def _quantiles(values: Floats | Integers) -> dict[str, float]:
    """For each share, the smallest value that this share of users does not exceed; and the mean."""
    found = np.quantile(values, list(QUANTILES.values()), method="inverted_cdf")
    return dict(zip(QUANTILES, found.tolist(), strict=True)) | {"mean": float(values.mean())}


def _bins(totals: Integers) -> list[Bin]:
    """The users by total: 0, 1, 2 to 3, 4 to 7, ... up to the largest total."""
    # The exponent of a whole number in [2^(k-1), 2^k) is k, and of 0 it is 0.
    place = np.frexp(totals.astype(np.float64))[1]
    users = np.bincount(place)
    counts = np.zeros(len(users), dtype=np.int64)
    np.add.at(counts, place, totals)
    return [
        Bin(low=(1 << k) >> 1, high=(1 << k) - 1, users=int(users[k]), counts=int(counts[k]))
        for k in range(len(users))
    ]
