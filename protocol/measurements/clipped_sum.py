"""`clipped-sum`: every user's histogram, clipped to the threshold in the plan's norm. What closed domains release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.display.plurals import counted
from fedhist.protocol.clipping import sum_clipped
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.given import Bound
from fedhist.protocol.measurements.limits import SLACK, beyond, sum_at_most
from fedhist.protocol.plan.device_noise import release_share
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
