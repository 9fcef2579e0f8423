"""`clipped-items`: every count clipped to its item's own threshold. What is released where items are clipped alone.

Clipping whole counts at whole or fractional bounds needs no rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.display.plurals import counted
from fedhist.protocol.clipping import entry_counts, entry_items, sum_by_item
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels
from fedhist.protocol.measurements.clipped_sum import noise_reach, shown_items
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.given import ItemBounds
from fedhist.protocol.measurements.limits import at_most
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class ItemSums:
    """The sums as the release rule reads them.

    Args:
        values: in steps of the grid, known modulo 2^width.
        in_bounds: the same, each in multiples of its item's bound.
        width: of the values.
    """

    values: Integers
    in_bounds: Floats
    width: int


@dataclass(frozen=True, eq=False)
class ClippedItems(Measurement[ItemBounds]):
    """A value an item, in steps of the grid.

    Sensitivity: one user moves item j by a number in [0, C_j], for either neighbours: by at most one bound.
    """

    name = "clipped-items"
    round = Round.RELEASE
    takes = ItemBounds
    releases = (None,)
    where = "where items are clipped one by one"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Items clipped one by one, noised by the server."""
        return cls.released_by(plan) and plan.per_item and not plan.noise_by_devices

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Counts clipped alone."""
        return Words(
            asks="histograms, each count clipped to the C of its item",
            work="clips each item",
            sends=counted(plan.closed.items, "whole number"),
            detail="Each item is clipped by itself, to a threshold of its own; counts below it are exact.",
            clip="clip of each item",
            bound="Every user contributes at most C of an item. Each item has a C of its own; the largest is {C}.",
        )

    @property
    def bounds(self) -> Integers:
        """Each item's threshold, in steps."""
        return self.given.steps

    @cached_property
    def shape(self) -> Shape:
        """A value an item, of at most the largest threshold."""
        largest, items = int(self.bounds.max()), self.plan.closed.items
        noise = noise_reach(self.plan, self.plan.unit_noise * largest, items)
        return Shape(length=items, largest=largest, noise=noise)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of each item alone, in multiples of its bound."""
        return {"in_bounds": Sensitivity(square=1, norm=Norm.SCORE, neighbours=self.plan.neighbours)}

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """The sum over users of min(count, threshold of the item), by item."""
        items = entry_items(users)
        clipped = np.minimum(entry_counts(users) << self.plan.grid_bits, self.bounds[items])
        return Summed(sum_by_item(clipped, items, users.domain_size))

    def check(self, summed: Summed, users: int) -> None:
        """A threshold of each user."""
        at_most(summed.values, users * self.bounds, "an item's clipped sum")

    def read(self, total: Total) -> ItemSums:
        """Beside them, how many bounds they are."""
        return ItemSums(values=total.values, in_bounds=total.values / self.bounds, width=total.width)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """Items and what is left of them, largest first."""
        return shown_items(summed.values, labels, most, bits=self.plan.grid_bits)
