"""How many users have each item: a measurement, and the rule that releases it."""

from dataclasses import dataclass, replace

import numpy as np

import fedhist
from tests.support.api import CentralNoise, ClippedSum, at_most


@fedhist.register
@dataclass(frozen=True, eq=False)
class Holders(ClippedSum):
    """A value an item, in steps of the grid. Counts of one have the sensitivity of any histogram."""

    name = "holders"
    releases = ("holders",)

    def of(self, users, *, source):
        return super().of(replace(users, counts=np.minimum(users.counts, 1)), source=source)

    def check(self, summed, users):
        super().check(summed, users)
        at_most(summed.values, users << self.plan.grid_bits, "the holders of an item")


@fedhist.register
class ReleaseHolders(CentralNoise):
    name = "holders"
    measures = "holders"
