"""What travels with items' names over an open domain: kept counts, and weights by which items are discovered.

`kept-items`: at most C of each user's counts, drawn at random, with their names. What open domains release.

`key-weights`: which items users hold, each user's with equal weights of l2 norm one. Discovers an open domain.

`key-weights-table`: the same weights as a table whose length tells nothing. Discovers an open domain under masks.

A list of keys can't be masked; an invertible Bloom lookup table is a vector, and the sum of tables is a table of the
sum. The table has to come out exactly, or its keys can't be read: the server adds the noise, also where devices noise
the rounds after it. `protocol/plan/terms.py` says how long it is and what it costs that it may fail to decode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, Self, get_args

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clipping import clipped_entries, entry_items, row_sums, sum_by_item
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import AnyIntegers, Flags, Histograms, Integers, Labels
from fedhist.protocol.items import Renumbering, distinct_names
from fedhist.protocol.keyed import Keyed, coalesce
from fedhist.protocol.measurements.base import (
    Bound,
    Given,
    GivenT,
    Measurement,
    Nothing,
    Round,
    Salt,
    Shape,
    Summed,
    Total,
    Words,
    keyed_part,
    sum_at_most,
)
from fedhist.protocol.plan.terms import table_shape
from fedhist.protocol.privacy.bars import OpenNoiseKind, user_weights
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.sketch import Decoded, TableNotDecoded, TableShape, decode_table, encode_table
from fedhist.protocol.wire.keyed_codec import with_short_names

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


_NOTHING = np.zeros(0, dtype=np.int64)
# With more items than this for each entry, a sort of the entries is faster than a row of all items.
_SPARSE = 4


@dataclass(frozen=True, eq=False)
class KeySums:
    """The sums of the keys that somebody kept, as a release rule reads them.

    Args:
        keys: rising item numbers.
        values: their sums, known modulo 2^width.
        labels: what the items are called; None means by their numbers.
        width: of the values.
        unread: the keys came in a table that does not decode.
    """

    keys: Integers
    values: Integers
    labels: Labels | None
    width: int = WIDEST
    unread: bool = False


@dataclass(frozen=True, eq=False)
class KeptItems(Measurement[Bound]):
    """One value for each item that somebody kept. `neighbours.clipped_sum_l1` has the proof: a user keeps at most C."""

    name = "kept-items"
    round = Round.RELEASE
    takes = Bound
    where = "over open domains"
    names_travel = True
    releases = get_args(OpenNoiseKind)

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """One release above a bar, which is without masks."""
        return cls.released_by(plan) and plan.is_open

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Items with counts."""
        return Words(
            asks="histograms of at most C items of each user, drawn at random",
            work="draws C items",
            sends="items with counts",
            detail="Each user keeps at most C items, drawn at random. They are sent with their names.",
            clip="random clip",
            bound="Every user contributes at most C = {C} counts, drawn at random.",
        )

    @property
    def threshold(self) -> Threshold:
        """The bound."""
        return self.given.threshold

    @cached_property
    def shape(self) -> Shape:
        """Keys only. Noise is added to keys, not on the way."""
        return Shape(length=0, largest=self.threshold.steps, columns=1)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the sums of all keys together, in counts."""
        return {"values": self.plan.release_sensitivity(self.threshold.steps)}

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """The items with a positive clipped sum, and nothing of the others: their absence must not show."""
        counts = clipped_entries(users, self.threshold, source=source)
        return Summed(_NOTHING, held_sums(entry_items(users), counts, users.domain_size))

    def check(self, summed: Summed, users: int) -> None:
        """At most C counts of each user."""
        sum_at_most(keyed_part(summed).values, users * self.threshold.steps, "the l1 norm")

    def read(self, total: Total) -> KeySums:
        """By key."""
        keyed = keyed_part(total)
        return KeySums(
            keys=keyed.keys,
            values=keyed.values[:, 0],
            labels=total.labels,
            width=total.width,
            unread=total.unread,
        )

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The items kept, those with most counts first."""
        keyed = keyed_part(summed)
        order = np.argsort(-keyed.values[:, 0], kind="stable")[:most]
        kept = zip(keyed.keys[order].tolist(), keyed.values[order, 0].tolist(), strict=True)
        return [(str(labels[item]), float(count)) for item, count in kept]


def held_sums(items: AnyIntegers, values: Integers, domain_size: int) -> Keyed:
    """The sums of these values, none of them negative, for the items where they are above 0."""
    if domain_size > _SPARSE * len(items):
        summed = coalesce(items, values[:, np.newaxis])
        keys, sums = summed.keys, summed.values[:, 0]
    else:
        keys, sums = np.arange(domain_size), sum_by_item(values, items, domain_size)
    present = np.flatnonzero(sums)  # audited: support
    return Keyed(keys=keys[present], values=sums[present][:, np.newaxis])


@dataclass(frozen=True, eq=False)
class KeyWeights(Measurement[GivenT], Generic[GivenT]):
    """One sum of weights for each item that somebody holds. `privacy/bars.py` has the proofs.

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
        return Summed(_NOTHING, held_sums(items, np.repeat(weights, lengths), users.domain_size))

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


@dataclass(frozen=True, eq=False)
class KeyWeightsTable(KeyWeights[Salt]):
    """The cells of a table. Sensitivity is that of the weights in it, once it is decoded."""

    name = "key-weights-table"
    takes = Salt
    names_travel = False
    exact = True

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """An open domain that is discovered under masks."""
        return plan.discovers and plan.is_masked

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """A table."""
        known = " that are not known already" if plan.known else ""
        return Words(
            asks=f"the items of users{known}, at most {plan.discovery.user_items:,} of each, as tables",
            work="weighs items, table",
            sends="a table of fixed length",
            detail=f"Each user puts equal weights on up to {plan.discovery.user_items:,} items{known}. The participant "
            f"puts names and weights into a table with room for at least {plan.max_items:,} items, whose length does "
            "not depend on them.",
        )

    @classmethod
    def charged_ahead(cls, plan: Plan) -> bool:
        """A table may fail to decode while the answers are read."""
        return True

    @property
    def table(self) -> TableShape:
        """The table of the plan."""
        return table_shape(self.plan)

    @property
    def masked_length(self) -> int:
        """The cells of the table, of which none depends on what keys there are."""
        return self.table.length

    @property
    def masked_width(self) -> int:
        """A table's cells need 64 bits, by the proof in protocol/sketch.py."""
        return 64

    def to_masked(self, summed: Summed, labels: Labels | None) -> Integers:
        """A table of these weights. Items whose names do not fit are left out."""
        keyed = with_short_names(keyed_part(summed), 1, labels, self.table.label_bytes)
        keys = keyed.keys.tolist()
        names = keys if labels is None else [labels[key] for key in keys]
        return encode_table(names, keyed.values[:, 0], self.table, salt=self.given.salt)

    def from_masked(self, vector: Integers, *, users: int, shares: int) -> Total:
        """The keys and weights in the sum of tables. One that does not decode holds none, and says so."""
        unread = False
        try:
            table = decode_table(vector, self.table, salt=self.given.salt)
        except TableNotDecoded:
            table, unread = Decoded(labels=[], counts=vector[:0]), True
        return Total(
            users=users,
            values=vector[:0],
            keyed=Keyed(keys=np.arange(len(table.counts)), values=table.counts[:, np.newaxis]),
            labels=table.labels,
            shares=shares,
            unread=unread,
        )
