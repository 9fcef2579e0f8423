"""`item-tail`: for each item, how many users have more of it than each candidate. Round 1 of debiased plans.

The paper's count estimation (section 6) for one item, and its first extension to histograms (appendix): Algorithm 5 on
each of d items with a share of the budget each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.clipping import entry_counts, entry_items
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.given import Nothing
from fedhist.protocol.measurements.limits import sum_at_most
from fedhist.protocol.measurements.tail import above
from fedhist.protocol.privacy.neighbours import Sensitivity, tail_count
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class ItemTail:
    """The sum as a selector reads it.

    Args:
        counts: for each item, the number of users with more of it than each candidate: shape (items, candidates).
        users: the number of users in the sums.
        width: counts are known modulo 2^width only, see `protocol/circle.py`.
    """

    counts: Integers
    users: int
    width: int = WIDEST


@dataclass(frozen=True, eq=False)
class ItemTailMeasurement(Measurement[Nothing]):
    """A number of users for each item and bin.

    Sensitivity: a user is in one bin of each item they have, so for either neighbours one user moves the number of
    users above any candidate of any one item by at most 1.
    """

    name = "item-tail"
    round = Round.SELECT
    offers = frozenset({"item-counts"})
    where = "where items are clipped one by one"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Items clipped one by one, noised by the server."""
        return plan.per_item and not plan.noise_by_devices

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Bins of each item."""
        items, bins = plan.closed.items, len(plan.candidate_steps) + 1
        return Words(
            asks=f"users' counts of each item, sorted into {bins:,} bins between candidate thresholds",
            work="counts into bins",
            sends=f"{items * bins:,} whole numbers",
            detail=f"A user's count of each item falls into one of {bins:,} bins of that item.",
            sharper="debias fewer items",
        )

    @cached_property
    def shape(self) -> Shape:
        """A user is at most once in a bin."""
        return Shape(length=self.plan.closed.items * (len(self.plan.candidate_steps) + 1), largest=1)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the users above a candidate of one item."""
        return {"counts": tail_count(neighbours=self.plan.neighbours)}

    @property
    def key(self) -> tuple[object, ...]:
        """Candidates and grid."""
        plan = self.plan
        return (self.name, plan.grid_bits, plan.candidate_steps.tobytes())

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """For each item and bin, the users whose count of the item is above exactly that many candidates."""
        candidates = self.plan.candidate_steps
        bins = np.searchsorted(candidates >> self.plan.grid_bits, entry_counts(users), side="left")
        width = len(candidates) + 1
        cells = entry_items(users).astype(np.int64) * width + bins
        return Summed(np.bincount(cells, minlength=users.domain_size * width))

    def check(self, summed: Summed, users: int) -> None:
        """Every user is in at most one bin of an item."""
        sum_at_most(summed.values.reshape(self.plan.closed.items, -1).T, users, "the users of an item")

    def read(self, total: Total) -> ItemTail:
        """The users above each candidate, from the users in each bin."""
        bins = total.values.reshape(self.plan.closed.items, -1)
        return ItemTail(counts=above(bins), users=total.users, width=total.width)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The bins of the items that the device has."""
        width = len(self.plan.candidate_steps) + 1
        places = np.flatnonzero(summed.values)[:most].tolist()
        return [
            (f"{labels[place // width]}, bin {place % width}", float(summed.values[place]))
            for place in places
        ]
