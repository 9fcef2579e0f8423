"""`kept-items`: at most C of each user's counts, drawn at random, with their names. What open domains release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clipping import clipped_entries, entry_items, sum_by_item
from fedhist.protocol.errors import UnexpectedMessage
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import AnyIntegers, Histograms, Integers, Labels
from fedhist.protocol.keyed import Keyed, coalesce
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.given import Bound
from fedhist.protocol.measurements.limits import sum_at_most
from fedhist.protocol.privacy.bars import OpenNoiseKind
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.randomness import Source

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


def keyed_part(summed: Summed | Total) -> Keyed:
    """The sums by key, which every answer to such a request has."""
    if summed.keyed is None:
        raise UnexpectedMessage(state="a sum without keys", message=summed)
    return summed.keyed
