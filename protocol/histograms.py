"""Users' histograms: rows are users, columns are items. One device is a batch of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
AnyIntegers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Labels = Sequence[str | int]

# A user's total stays below this, so that sums of squares and clipped vectors fit in 64 bits.
MAX_USER_TOTAL = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Histograms:
    """The histograms of consecutive users, as compressed sparse rows.

    User `first_user + i` holds `counts[offsets[i]:offsets[i + 1]]` of the items in the same places of `items`.
    Within a user an item stands once; counts are whole and not negative; a user's total is at most
    MAX_USER_TOTAL. Data from outside goes through `validation.checked` first; shards of checked histograms are
    views and need no second check.

    Args:
        offsets: where each user begins and, at the end, where the last one ends; the first need not be 0.
        items: item numbers below `domain_size`.
        counts: the user's count of the item.
        domain_size: d, the number of items of the closed domain.
        first_user: the number of the first user in the whole population.
    """

    offsets: AnyIntegers
    items: AnyIntegers
    counts: AnyIntegers
    domain_size: int
    first_user: int = 0

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.offsets) - 1

    @property
    def nonzeros(self) -> int:
        """The number of (user, item) pairs."""
        return int(self.offsets[-1] - self.offsets[0])

    def user_numbers(self) -> Integers:
        """The users' numbers in the whole population."""
        return np.arange(self.first_user, self.first_user + self.users, dtype=np.int64)

    def rows(self, start: int, stop: int) -> Histograms:
        """Users start..stop of these, as a view."""
        return Histograms(
            offsets=self.offsets[start : stop + 1],
            items=self.items,
            counts=self.counts,
            domain_size=self.domain_size,
            first_user=self.first_user + start,
        )


class Population(Protocol):
    """All users of a simulation, or of one node. They can be read shard by shard any number of times.

    A population whose items have names has an attribute `labels` too, in the order of the item numbers. One that
    several processes may read at once is `Divisible`.
    """

    @property
    def users(self) -> int:
        """The number of users."""

    @property
    def domain_size(self) -> int:
        """The number of different items."""

    def shards(self) -> Iterator[Histograms]:
        """The users in order, in pieces that fit in a cache; the same pieces each time."""


@runtime_checkable
class Divisible(Population, Protocol):
    """A population whose users can be read from any place on.

    Two attributes are optional. `block_users`: where users are made in blocks, the number of users in one; parts that
    begin with a block are cheapest. `travels`: True where a pickled part is a description, from which another machine
    makes or reads the users; if it reads them, `marker` is a file beside them.
    """

    def part(self, start: int, stop: int) -> Population:
        """Users start..stop, by place, under their own numbers; cheap to make."""


def labels_of(population: Population) -> Labels | None:
    """What the items are called; None when by their numbers alone."""
    labels: Labels | None = getattr(population, "labels", None)
    return labels


def names_of(population: Population) -> Labels:
    """What the items are called, or their numbers."""
    labels = labels_of(population)
    return range(population.domain_size) if labels is None else labels
