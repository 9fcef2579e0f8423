"""Users with what they have left of a campaign's bound, as every engine and every node reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhist.protocol.clips.campaign_bound import taken_from
from fedhist.protocol.clips.clipping import user_squares
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Divisible, Histograms, Integers, Population


@dataclass(frozen=True, eq=False)
class BoundedUsers:
    """A population whose histograms say what is left; all else of it is as it was.

    Args:
        population: the users.
        left: what each has left, by place.
    """

    population: Population = field(repr=False)
    left: Integers = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        # A copy asks for attributes before it has any.
        if name.startswith("_") or name in ("population", "part"):
            raise AttributeError(name)
        return getattr(self.population, name)

    @property
    def users(self) -> int:
        """The number of users."""
        return self.population.users

    @property
    def domain_size(self) -> int:
        """The number of different items."""
        return self.population.domain_size

    def shards(self) -> Iterator[Histograms]:
        """The users in order, each with what is left."""
        start = 0
        for shard in self.population.shards():
            yield replace(shard, left=self.left[start : start + shard.users])
            start += shard.users


@dataclass(frozen=True, eq=False)
class DivisibleBoundedUsers(BoundedUsers):
    """The same where users can be read from any place on."""

    population: Divisible = field(repr=False)

    def part(self, start: int, stop: int) -> BoundedUsers:
        """Users start..stop."""
        return with_left(self.population.part(start, stop), self.left[start:stop])


def with_left(population: Population, left: Integers) -> BoundedUsers:
    """The population with what each of its users has left."""
    if isinstance(population, Divisible):
        return DivisibleBoundedUsers(population, left)
    return BoundedUsers(population, left)


def taken_by(population: Population, left: Integers, threshold: Threshold, *, visits: int) -> Integers:
    """What a window of this threshold takes of what each user has left."""
    nobody = np.zeros(0, dtype=np.int64)
    squares = np.concatenate([nobody, *(user_squares(shard) for shard in population.shards())])
    return taken_from(squares, left, threshold, visits=visits)
