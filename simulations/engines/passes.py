"""A pass over all users: what is added up on the way, and one process that does it alone.

What is added up is a `Tally`. Several tallies share a pass, since to make or read users may cost more than to add them
up. The sums of parts of the users are the sum of all, so that parts can be added up anywhere, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from fedhist.client.device import Answering
from fedhist.client.populations import add_items
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Histograms, Integers, Population, names_of
from fedhist.protocol.keyed import KeyedSum
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Contribution, Request
from fedhist.protocol.wire.envelope import Envelope

Sum = TypeVar("Sum")
Sum_co = TypeVar("Sum_co", covariant=True)

Seen = Callable[[int], None]
"""Called with a number of users that have been read since the last call."""

# A run's name has no part in a sum.
_RUN_NAME = "0" * 32


class Adding(Protocol[Sum_co]):
    """A sum as it grows."""

    def add(self, shard: Histograms) -> None:
        """The sum grows by these users'."""

    def result(self) -> Sum_co:
        """The sum over the users so far. Asked once, at the end; it can be pickled."""


class Tally(Protocol[Sum]):
    """What is added up. It can be pickled, and is small."""

    def begin(self, population: Population) -> Adding[Sum]:
        """A sum over nobody yet, for users who call their items as the population does."""

    def plus(self, sums: Sequence[Sum]) -> Sum:
        """The sum over all users of several parts, at least one."""


class Crew(Protocol):
    """Who makes passes over a population: this process, several, or a cluster."""

    def __call__(self, tallies: Sequence[Tally[Any]], seen: Seen = ...) -> list[Any]:
        """The sum of each tally over all users."""


def unseen(users: int) -> None:
    """For a pass that nobody watches."""


def alone(population: Population, tallies: Sequence[Tally[Any]], seen: Seen = unseen) -> list[Any]:
    """The sums over all users in this process, one shard in memory at a time."""
    adding = [tally.begin(population) for tally in tallies]
    for shard in population.shards():
        for one in adding:
            one.add(shard)
        seen(shard.users)
    return [one.result() for one in adding]


def split(users: int, parts: int, *, block: int = 1) -> list[tuple[int, int]]:
    """All places of users in at most this number of parts, (start, stop), about equal; each begins with a block."""
    blocks = -(-users // block)
    parts = min(parts, blocks)
    cuts = [min(number * blocks // parts * block, users) for number in range(parts + 1)]
    return list(pairwise(cuts))


def block_of(population: Population) -> int:
    """The number of users that are made together, and cheapest read together."""
    return int(getattr(population, "block_users", 1))


def check_part(start: int, stop: int, users: int) -> None:
    """RoundFailed if a part does not hold the users that it was asked for."""
    if users != stop - start:
        raise RoundFailed(
            f"the part of {stop - start:,} users from the one at {start:,} on holds {users:,} users; nothing was "
            "released. Check the population's part()",
            code="users-missing",
        )


@dataclass(frozen=True, eq=False)
class Answers:
    """The tally of a round: what the users are asked for."""

    request: Request
    source: Source = field(repr=False)

    def begin(self, population: Population) -> Answering:
        """The contribution of one participant with all these users."""
        return Answering(self.request, names_of(population), source=self.source)

    def plus(self, sums: Sequence[Contribution]) -> Contribution:
        """The contribution of all of them together."""
        first = sums[0]
        keyed = None
        if first.keyed is not None:
            added = KeyedSum(first.keyed.values.shape[1])
            for one in sums:
                if one.keyed is not None:
                    added.add(one.keyed)
            keyed = added.total()
        return Contribution(
            round=first.round,
            plan_digest=first.plan_digest,
            users=sum(one.users for one in sums),
            values=added_up([one.values for one in sums]),
            keyed=keyed,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """As the message that a device gets: it can be read wherever the plan's plugins are registered."""
        return _asked, (Envelope(_RUN_NAME, self.request).to_fields(), self.source)


def _asked(fields: dict[str, Any], source: Source) -> Answers:
    return Answers(Envelope.from_fields(fields).request, source)


class ItemTotals:
    """How often all users together have each item, exactly."""

    def begin(self, population: Population) -> _Totals:
        """Nothing of any item."""
        return _Totals(np.zeros(population.domain_size, dtype=np.int64))

    def plus(self, sums: Sequence[Integers]) -> Integers:
        """Item by item."""
        return added_up(sums)


@dataclass
class _Totals:
    totals: Integers

    def add(self, shard: Histograms) -> None:
        add_items(self.totals, shard)

    def result(self) -> Integers:
        return self.totals


def added_up(vectors: Sequence[Integers]) -> Integers:
    """The sum of vectors, without a copy of them all."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total
