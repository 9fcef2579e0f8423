"""What closed domains release: clipped histograms, added up.

`clipped-sum`: every user's histogram, clipped to the threshold in the plan's norm.

`clipped-items`: every count clipped to its item's own threshold. What is released where items are clipped alone.

Clipping whole counts at whole or fractional bounds needs no rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.display.text import counted
from fedhist.protocol.clipping import entry_counts, entry_items, sum_by_item, sum_clipped
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels
from fedhist.protocol.measurements.base import (
    SLACK,
    Bound,
    ItemBounds,
    Measurement,
    Round,
    Shape,
    Summed,
    Total,
    Words,
    at_most,
    beyond,
    sum_at_most,
)
from fedhist.protocol.plan.terms import release_share
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.privacy.shares import Share

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


# The discrete Gaussian's variance is 9 above the continuous one's, and sqrt(s^2 + 9) <= s + 3.
_GRID_SPREAD = 3


@dataclass(frozen=True, eq=False)
class ClippedSum(Measurement[Bound]):
    """A value an item, in steps of the grid. `neighbours.clipped_sum_l1` and `clipped_sum_l2` have the proofs."""

    name = "clipped-sum"
    round = Round.RELEASE
    takes = Bound
    releases = (None,)
    where = "over closed domains"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Whole histograms of a closed domain."""
        return cls.released_by(plan) and not (plan.is_open or plan.per_item)

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Clipped histograms, with noise where devices add it."""
        noisy = "noisy " if plan.noise_by_devices else ""
        by_devices = (
            " The participant puts a share of the noise on each value." if plan.noise_by_devices else ""
        )
        norm = "l1 or l2" if plan.chooses_mechanism else plan.norm.value
        return Words(
            asks=f"histograms, each user's clipped to C in {norm} norm",
            work="clips to C, noise" if plan.noise_by_devices else "clips to C",
            sends=f"a {noisy}whole number for each item found"
            if plan.is_discovered
            else counted(plan.closed.items, f"{noisy}whole number"),
            detail=f"Each user is clipped in {norm} norm on a grid of whole numbers; users below C are exact."
            + by_devices,
            clip=f"{norm} clip",
            bound=f"Every user contributes at most C = {{C}} in {norm} norm.",
        )

    @property
    def threshold(self) -> Threshold:
        """The bound."""
        return self.given.threshold

    @cached_property
    def shape(self) -> Shape:
        """A value an item."""
        plan, length = self.plan, self.plan.closed.items
        if self.share is not None:
            noise = self.share.reach(length, plan.masks.participants)
        else:
            noise = noise_reach(plan, plan.unit_noise * self.threshold.steps, length)
        return Shape(length=length, largest=self.threshold.steps, noise=noise)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the sum, in steps of the grid."""
        return {"values": self.plan.release_sensitivity(self.threshold.steps)}

    @property
    def share(self) -> Share | None:
        """The participant's noise, where devices add it."""
        return release_share(self.plan, self.threshold.steps) if self.plan.noise_by_devices else None

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """Clipped, rounded to the grid, added up."""
        norm = self.plan.norm  # audited: norm clipped
        return Summed(sum_clipped(users, self.threshold, norm=norm, source=source))

    def check(self, summed: Summed, users: int) -> None:
        """The norm of a sum is at most the sum of the norms."""
        bound = users * self.threshold.steps
        if self.plan.norm is Norm.L1:
            sum_at_most(summed.values, bound, "the l1 norm")
        elif float(np.linalg.norm(summed.values.astype(np.float64))) > bound * SLACK:
            raise beyond("the l2 norm")

    def read(self, total: Total) -> Total:
        """As it came: under masks it is a number only once the noise is in it."""
        return total

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """Items and what is left of them, largest first."""
        return shown_items(summed.values, labels, most, bits=self.plan.grid_bits)


def shown_items(values: Integers, labels: Labels, most: int, *, bits: int) -> list[tuple[str, float]]:
    """The largest values with their items' names, in counts."""
    order = np.argsort(-values, kind="stable")[:most].tolist()
    return [(str(labels[item]), math.ldexp(values[item], -bits)) for item in order if values[item]]


def noise_reach(plan: Plan, spread: float, values: int) -> int:
    """What the server's noise of this scale exceeds nowhere among the values, either way, but with probability 2^-40.

    P(|Z| > t) <= 2 exp(-t^2/2 s^2) for Gaussian noise and 2 exp(-t/s) for Laplace, and a union over the values.
    """
    tail = math.log(2 * values) + 40 * math.log(2)
    wide = math.sqrt(2 * tail) if plan.norm is Norm.L2 else tail
    return math.ceil((spread + _GRID_SPREAD) * wide)


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
