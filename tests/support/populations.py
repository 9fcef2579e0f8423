"""What every population must be: the users that it says, in order, the same each time, with whole counts."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import numpy as np

from fedhist import Histograms, Population
from fedhist.testing import Contract
from tests.support.api import MAX_USER_TOTAL, Divisible, labels_of, require

POPULATION: Contract[Population] = Contract("population")


def check_population(population: Population, *, skip: Collection[str] = ()) -> None:
    """Run all checks on a population. Each reads it once or twice, shard by shard."""
    POPULATION.run_all(population, skip)


@POPULATION.check
def the_shards_hold_the_users_that_it_says(population: Population) -> None:
    """Each is somebody's, and they follow one another without a gap."""
    users, place = 0, None
    for shard in population.shards():
        require(shard.users > 0, "a shard is empty")
        require(place in (None, shard.first_user), f"a shard begins at {shard.first_user}, not {place}")
        require(shard.user_numbers()[0] == shard.first_user, "a shard numbers its users otherwise")
        users, place = users + shard.users, shard.first_user + shard.users
    require(users == population.users, f"the shards hold {users} users, not {population.users}")


@POPULATION.check
def every_pass_reads_the_same(population: Population) -> None:
    """The same pieces, with the same content."""
    for one, again in itertools.zip_longest(population.shards(), population.shards()):
        require(one is not None and again is not None, "a second pass has another number of shards")
        require(_content(one) == _content(again), f"the shard of user {one.first_user} changes")


@POPULATION.check
def histograms_are_whole_counts_of_items_of_the_domain(population: Population) -> None:
    """Not negative, each item once a user, and no total above what sums have room for."""
    for shard in population.shards():
        require(shard.domain_size == population.domain_size, f"a shard has {shard.domain_size} items")
        offsets = np.asarray(shard.offsets)
        require((np.diff(offsets) >= 0).all(), "a user's entries end before they begin")
        entries = slice(int(offsets[0]), int(offsets[-1]))
        items, counts = shard.items[entries], shard.counts[entries]
        whole = np.issubdtype(items.dtype, np.integer) and np.issubdtype(counts.dtype, np.integer)
        require(whole, f"items and counts are {items.dtype} and {counts.dtype}; allowed: whole numbers")
        require(((items >= 0) & (items < population.domain_size)).all(), "an item is outside the domain")
        require((counts >= 0).all(), "a count is negative")
        owners = np.repeat(np.arange(shard.users), np.diff(offsets))
        cells = owners * population.domain_size + items
        require(len(np.unique(cells)) == len(cells), "a user has an item twice")
        totals = np.bincount(owners, weights=counts, minlength=shard.users)
        require((totals <= MAX_USER_TOTAL).all(), f"a user's total is above {MAX_USER_TOTAL}")


@POPULATION.check
def each_item_has_a_name_of_its_own_or_none_has(population: Population) -> None:
    """One label for each item, all different."""
    labels = labels_of(population)
    if labels is not None:
        items = population.domain_size
        require(len(labels) == items, f"there are {len(labels)} labels for {items} items")
        require(len({(type(label), label) for label in labels}) == items, "two items have the same label")


@POPULATION.check
def a_part_holds_the_users_that_it_names(population: Population) -> None:
    """Under their own numbers, with the same content, wherever it begins; a population need not have parts."""
    if not isinstance(population, Divisible):
        return
    users = population.users
    whole = [one for shard in population.shards() for one in _by_user(shard)]
    for start, stop in {(0, users), (0, 1), (users // 3, users // 2 + 1), (users - 1, users), (1, users)}:
        if not 0 <= start < stop <= users:
            continue
        part = population.part(start, stop)
        require(part.users == stop - start, f"the part from {start} to {stop} says that it has {part.users}")
        require(part.domain_size == population.domain_size, "a part has another number of items")
        require(labels_of(part) == labels_of(population), "a part calls its items otherwise")
        held = [one for shard in part.shards() for one in _by_user(shard)]
        require(held == whole[start:stop], f"the part from {start} to {stop} holds other users")


def _by_user(shard: Histograms) -> list[tuple[object, ...]]:
    return [_content(shard.rows(place, place + 1)) for place in range(shard.users)]


def _content(shard: Histograms) -> tuple[object, ...]:
    entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
    offsets = (np.asarray(shard.offsets) - shard.offsets[0]).tolist()
    return (shard.first_user, offsets, shard.items[entries].tolist(), shard.counts[entries].tolist())


class AnyOrder(list[Any]):
    """Users of a table: they have no order of their own."""

    __hash__ = None  # type: ignore[assignment]  # like any list

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and sorted(map(repr, self)) == sorted(map(repr, other))
