"""`key-weights`: which items users hold, each user's with equal weights of l2 norm one. Discovers an open domain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

import numpy as np

from fedhist.protocol.clipping import entry_items, row_sums
from fedhist.protocol.histograms import AnyIntegers, Flags, Histograms, Integers, Labels
from fedhist.protocol.items import Renumbering, distinct_names
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.given import Given, Nothing
from fedhist.protocol.measurements.kept_items import KeySums, held_sums, keyed_part
from fedhist.protocol.measurements.limits import sum_at_most
from fedhist.protocol.privacy.discovery import user_weights
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

_NO_VALUES = np.zeros(0, dtype=np.int64)
GivenT = TypeVar("GivenT", bound=Given)


@dataclass(frozen=True, eq=False)
class KeyWeights(Measurement[GivenT], Generic[GivenT]):
    """One sum of weights for each item that somebody holds. `privacy/discovery.py` has the proofs.

    Items that are written alike are one, so that no user's weights can meet on one key: that would be a larger norm.
    Items that the plan names as known are left out, and take no weight from others.

    Args:
        numbers: of a participant's items, where some are written alike or known.
    """

    name = "key-weights"
    round = Round.DISCOVER
    takes: ClassVar[type[Given]] = Nothing
    where = "over open domains"
    names_travel = True

    numbers: Renumbering | None = field(default=None, repr=False)

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """An open domain that is discovered, without masks."""
        return plan.discovers and not plan.is_masked

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Items with weights."""
        known = " that are not known already" if plan.known else ""
        return Words(
            asks=f"the items of users{known}, at most {plan.discovery.user_items:,} of each",
            work="weighs items",
            sends="items with weights",
            detail=f"Each user puts equal weights on up to {plan.discovery.user_items:,} items{known}, drawn at random "
            "if there are more: 1/sqrt(m) on each of m. They are sent with their names.",
        )

    @cached_property
    def shape(self) -> Shape:
        """Keys only. Noise is added to keys, not on the way."""
        return Shape(length=0, largest=1 << self.plan.discovery.bits, columns=1)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the weights of all keys together, in steps."""
        return {"values": self.plan.discovery.sensitivity}

    def with_labels(self, labels: Labels) -> Self:
        """With the numbers of items that are written alike or known."""
        numbers = distinct_names(labels, without=self.plan.known)
        return replace(self, numbers=None if numbers is None else Renumbering(numbers, len(labels)))

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """The items that somebody holds, and nothing of the others: their absence must not show."""
        if self.numbers is not None:
            users = self.numbers.of(users)
        items, lengths = _held(users)
        most = self.plan.discovery.user_items  # audited: items weighed
        if (lengths > most).any():
            kept = _drawn(users, lengths, most, source)
            items, lengths = items[kept], np.minimum(lengths, most)
        weights = user_weights(most, self.plan.discovery.bits)[lengths]  # audited: key weights
        return Summed(_NO_VALUES, held_sums(items, np.repeat(weights, lengths), users.domain_size))

    def check(self, summed: Summed, users: int) -> None:
        """A user's weights sum to at most sqrt(D)."""
        bits, most = self.plan.discovery.bits, self.plan.discovery.user_items
        bound = users * math.isqrt(most << (2 * bits))
        sum_at_most(keyed_part(summed).values, bound, "the sum of the weights")

    def read(self, total: Total) -> KeySums:
        """By key."""
        keyed = keyed_part(total)
        return KeySums(keyed.keys, keyed.values[:, 0], total.labels, width=total.width, unread=total.unread)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The items, in the order of their numbers."""
        keyed = keyed_part(summed)
        held = zip(keyed.keys[:most].tolist(), keyed.values[:most, 0].tolist(), strict=True)
        return [(str(labels[item]), math.ldexp(weight, -self.plan.discovery.bits)) for item, weight in held]


def _held(users: Histograms) -> tuple[AnyIntegers, Integers]:
    """The items of positive counts, and how many each user has."""
    items, positive = entry_items(users), users.counts[users.offsets[0] : users.offsets[-1]] > 0
    if positive.all():
        return items, np.diff(users.offsets).astype(np.int64)
    return items[positive], row_sums(positive.astype(np.int64), users.offsets)


def _drawn(users: Histograms, lengths: Integers, most: int, source: Source) -> Flags:
    """Which items stay: all of users with few, and `most` of each other user, uniformly without repetition.

    Every item of such a user has a word of its own, bound to the user's number and the item's place among the user's,
    and the smallest words stay.
    """
    rich = lengths > most
    many = lengths[rich]
    owners = np.repeat(np.arange(len(many)), many)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(many) - many, many)
    words = source.user_words(users.user_numbers()[rich][owners], places)
    # A user's places are as many before and after sorting, so the rank of each entry is the place at its position.
    of_rich = np.ones(len(owners), dtype=bool)
    of_rich[np.lexsort((words, owners))[places >= most]] = False
    kept = np.ones(int(lengths.sum()), dtype=bool)
    kept[np.repeat(rich, lengths)] = of_rich
    return kept
