"""Populations made from a seed, block by block, never all in memory.

A block has a fixed number of users and a generator of its own, keyed by the seed and the block's number. So a
population is the same whichever blocks are read and in which order, and a smaller one is the beginning of a larger
one. The same seed gives the same users under the same version of numpy.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedhist.client.populations import SHARD_NONZEROS, SparsePopulation, item_totals
from fedhist.display.tables import html_table
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels, Population, labels_of
from fedhist.protocol.item_lists import ItemOrigin, origin_of
from fedhist.protocol.validation import without_repeats

MAX_USERS = 2**40
MAX_ITEMS = 10_000_000
MAX_MEAN = 10_000.0
MAX_EXPONENT = 4.0

BLOCK_USERS = 4096
KEPT_BYTES = 1 << 27
"""The memory for blocks that a population keeps: about a million users of `HeavyTailedPopulation`."""

# Counting in a dense table is faster than sorting up to this number of cells for each sample.
_DENSE_CELLS = 8

_TAG = b"fedhist/1/population"


@dataclass
class _Kept:
    """Blocks by number, and how many bytes they have."""

    blocks: dict[int, Histograms] = field(default_factory=dict)
    size: int = 0


class SyntheticPopulation(ABC):
    """What all synthetic populations share."""

    users: int
    items: int
    travels = True
    item_origin: ClassVar[ItemOrigin] = ItemOrigin.SYNTHETIC

    @property
    def block_users(self) -> int:
        """The number of users in a block."""
        return BLOCK_USERS

    @abstractmethod
    def block(self, number: int) -> Histograms:
        """The whole block with this number, from the seed and that number alone."""

    def shards(self) -> Iterator[Histograms]:
        """The users in order, one block at a time; the last block is cut, so that no user depends on their number."""
        return self._between(0, self.users)

    def part(self, start: int, stop: int) -> SyntheticPart:
        """Users start..stop, made where they are read."""
        return SyntheticPart(self, start, stop)

    def _between(self, start: int, stop: int) -> Iterator[Histograms]:
        """Users start..stop, one block at a time."""
        for number in range(start // self.block_users, -(-stop // self.block_users)):
            first = number * self.block_users
            yield self.kept_block(number).rows(max(start - first, 0), min(stop - first, self.block_users))

    def kept_block(self, number: int) -> Histograms:
        """The same block, made once if it is among the first that fit into KEPT_BYTES.

        A run passes over its users several times, and to make them takes longer than a round's own work.
        """
        kept = self._kept
        if number in kept.blocks:
            return kept.blocks[number]
        made = self.block(number)
        size = made.offsets.nbytes + made.items.nbytes + made.counts.nbytes
        if kept.size + size <= KEPT_BYTES:
            kept.blocks[number] = made
            kept.size += size
        return made

    @cached_property
    def _kept(self) -> _Kept:
        return _Kept()

    def __getstate__(self) -> dict[str, object]:
        """What it is drawn with: a copy in another process works out the rest for itself."""
        return {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type] # all are dataclasses

    def _repr_html_(self) -> str:
        """How a notebook shows it: what it is drawn with."""
        drawn = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type] # all are dataclasses
        shown = ((name.replace("_", " "), f"{value:,}") for name, value in drawn.items())
        return html_table(f"{type(self).__name__}, synthetic", shown)

    @property
    def domain_size(self) -> int:
        """The number of items in the domain."""
        return self.items

    def totals(self) -> Integers:
        """The true histogram, in one pass."""
        return item_totals(self)


@dataclass(frozen=True)
class SyntheticPart:
    """Some consecutive users of a synthetic population, under their own numbers. The first may be inside a block."""

    whole: SyntheticPopulation
    start: int
    stop: int
    travels = True
    item_origin: ClassVar[ItemOrigin] = ItemOrigin.SYNTHETIC

    @property
    def users(self) -> int:
        """The number of these users."""
        return self.stop - self.start

    @property
    def domain_size(self) -> int:
        """The number of items in the domain."""
        return self.whole.domain_size

    @property
    def labels(self) -> Labels | None:
        """What the whole population calls its items."""
        return labels_of(self.whole)

    def shards(self) -> Iterator[Histograms]:
        """The users in order, one block at a time."""
        return self.whole._between(self.start, self.stop)

    def part(self, start: int, stop: int) -> SyntheticPart:
        """Users start..stop of these."""
        return SyntheticPart(self.whole, self.start + start, self.start + stop)


@dataclass(frozen=True)
class HeavyTailedPopulation(SyntheticPopulation):
    """Users as they occur in practice: few items each, a favourite or two, now and then somebody enormous.

    A user's activity is log-normal with median 20 and 99.9 % quantile 2,000. The user has about activity^0.75
    favourite items, drawn from a popularity that falls like 1/(rank + 2), and the activity is spread over
    them in proportions 1, 1/2, 1/3, ... with Poisson counts. One user in forty or so has nothing at all.

    Args:
        users: the number of users, up to MAX_USERS.
        items: the number of items in the domain, up to MAX_ITEMS; the most popular come first.
        seed: any integer.
        exponent: the popularity falls like (rank + 2)^-exponent, from 0 (all alike) to MAX_EXPONENT.
    """

    users: int
    items: int
    seed: int
    exponent: float = 1.0

    def __post_init__(self) -> None:
        check_size(self.users, self.items)
        if not 0 <= self.exponent <= MAX_EXPONENT:
            raise InvalidInput(f"the exponent is {self.exponent}", allowed=f"0 to {MAX_EXPONENT:g}")

    def block(self, number: int) -> Histograms:
        """The whole block with this number."""
        generator = block_generator("heavy-tailed", self.seed, number)
        # 1.49 = ln(2,000 / 20) / 3.09, with 3.09 the normal 99.9 % quantile. The cap is 7 deviations out.
        activity = np.minimum(20.0 * np.exp(1.49 * generator.standard_normal(BLOCK_USERS)), 1e6)
        favourites = np.minimum(1 + np.floor(activity**0.75), self.items).astype(np.int64)
        offsets = np.concatenate(([0], np.cumsum(favourites)))
        weight = 1.0 / (np.arange(1, offsets[-1] + 1) - np.repeat(offsets[:-1], favourites))
        scale = activity / np.add.reduceat(weight, offsets[:-1])
        uniforms = generator.random(len(weight))
        counts = generator.poisson(np.repeat(scale, favourites) * weight)
        kept = np.flatnonzero(counts)
        popular = np.floor(self._ranks(uniforms[kept]))
        drawn = Histograms(
            offsets=np.searchsorted(kept, offsets),
            items=np.minimum(popular, self.items - 1).astype(np.int32),
            counts=counts[kept],
            domain_size=self.items,
            first_user=number * BLOCK_USERS,
        )
        # The same item may be drawn as a favourite twice.
        return without_repeats(drawn)

    def _ranks(self, uniforms: Floats) -> Floats:
        """The inverse of the distribution function whose density is (x + 2)^-exponent on [0, items)."""
        spread = (self.items + 2.0) / 2.0
        if self.exponent == 1:
            return 2.0 * spread**uniforms - 2.0
        power = 1.0 - self.exponent
        ranks: Floats = 2.0 * (1.0 + uniforms * (spread**power - 1.0)) ** (1.0 / power) - 2.0
        return ranks


@dataclass(frozen=True)
class PoissonPopulation(SyntheticPopulation):
    """Independent, identically distributed users: each cell is Poisson(mean p_j), p_j ~ 1/(j + 50), j = 1..d.

    The iid data of Liu et al., where every user draws Poisson(mean) samples from p.

    Args:
        users: the number of users, up to MAX_USERS.
        items: d, up to MAX_ITEMS.
        seed: any integer.
        mean: the expected total of a user, up to MAX_MEAN.
    """

    users: int
    items: int
    seed: int
    mean: float = 100.0

    def __post_init__(self) -> None:
        check_size(self.users, self.items)
        if not 0 < self.mean <= MAX_MEAN:
            raise InvalidInput(
                f"the mean total of a user is {self.mean}",
                allowed=f"more than 0 and at most {MAX_MEAN:,.0f}",
                advice="the paper's is 100",
                code="bad-mean-total",
            )

    @property
    def block_users(self) -> int:
        """A block has about SHARD_NONZEROS samples."""
        return min(BLOCK_USERS, max(1, SHARD_NONZEROS // math.ceil(self.mean)))

    @cached_property
    def _expected(self) -> Floats:
        return self.block_users * self.mean * item_probabilities(self.items)

    def block(self, number: int) -> Histograms:
        """Poisson samples of each item fall on the block's users uniformly, which makes the cells as above."""
        generator, block_users = block_generator("poisson", self.seed, number), self.block_users
        items = np.repeat(np.arange(self.items), generator.poisson(self._expected))
        cells, counts = _counted(
            generator.integers(block_users, size=len(items)) * self.items + items, block_users * self.items
        )
        firsts = np.arange(block_users + 1) * self.items
        offsets = np.searchsorted(cells, firsts)
        return Histograms(
            offsets=offsets,
            items=(cells - np.repeat(firsts[:-1], np.diff(offsets))).astype(np.int32),
            counts=counts.astype(np.int32),
            domain_size=self.items,
            first_user=number * block_users,
        )


def item_probabilities(items: int) -> Floats:
    """The paper's distribution p over this number of items: p_j is proportional to 1/(j + 50)."""
    weights: Floats = 1.0 / np.arange(51.0, items + 51.0)
    return weights / np.sum(weights)


def _counted(keys: Integers, space: int) -> tuple[Integers, Integers]:
    """The distinct keys in rising order, and how often each occurs."""
    if space <= _DENSE_CELLS * len(keys):
        dense = np.bincount(keys, minlength=space)
        cells = np.flatnonzero(dense)
        return cells, dense[cells]
    return np.unique(keys, return_counts=True)


def materialise(population: Population) -> SparsePopulation:
    """Any population, in memory. The contents of its shards are checked like data from outside."""
    if isinstance(population, SparsePopulation):
        return population
    lengths, items, counts = [np.zeros(1, dtype=np.int64)], [], []
    for shard in population.shards():
        entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
        lengths.append(np.diff(shard.offsets).astype(np.int64))
        # Copies, so that the arrays behind a shard can be freed.
        items.append(shard.items[entries].copy())
        counts.append(shard.counts[entries].copy())
    return SparsePopulation.from_arrays(
        np.cumsum(np.concatenate(lengths)),
        np.concatenate(items),
        np.concatenate(counts),
        domain_size=population.domain_size,
        labels=getattr(population, "labels", None),
        item_origin=origin_of(population),
    )


def check_size(users: int, items: int) -> None:
    """Refuse a population without users or items, or with too many of either."""
    if not 1 <= users <= MAX_USERS:
        raise InvalidInput(
            f"{users:,} users were asked for",
            allowed=f"1 to {MAX_USERS:,}",
            advice="change --users",
            code="bad-users",
        )
    if not 1 <= items <= MAX_ITEMS:
        raise InvalidInput(
            f"{items:,} items were asked for",
            allowed=f"1 to {MAX_ITEMS:,}",
            advice="change --items",
            code="bad-items",
        )


def block_generator(kind: str, seed: int, block: int) -> np.random.Generator:
    """A counter-based generator for one block, whose key binds the kind of population and the seed."""
    digest = hashlib.sha256(_TAG + f"/{kind}/{seed}".encode()).digest()
    key = np.array([int.from_bytes(digest[:8], "little"), block], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
