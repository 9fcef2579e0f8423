"""The expected error of a release and its parts, in counts, at several thresholds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.clipped_sum import ClippedSum
from fedhist.protocol.measurements.kept_items import KeptItems
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.releases import RULES, rule_for
from fedhist.server.releases.central_noise import release_noise
from fedhist.simulations.prediction.clipped_sums import ClippedSums
from fedhist.simulations.prediction.noise_expectations import (
    LaplaceTails,
    barred_loss,
    folded_normal,
    shown_chance,
)


def is_predicted(plan: Plan) -> bool:
    """Whether the errors of the plan's release are known here: not of items one by one, nor of rules from outside."""
    rule = rule_for(plan)
    return rule.name in RULES.built_in and rule.measures in ERRORS


def release_errors(plan: Plan, table: ClippedSums, steps: Integers, places: Integers) -> ReleaseErrors:
    """The errors at these places of the table, whose thresholds are `steps` of the plan's grid."""
    return ERRORS[rule_for(plan).measures](plan, table, steps[places], places)


def clipping_errors(table: ClippedSums, places: Integers) -> Floats:
    """Expected l1 error of the clipped sums against the true counts. Clipping only takes away.

    Where items have a chance of being found, the others have lost all that they had.
    """
    lost = np.full(len(places), table.missed)
    for piece in table.pieces():
        lost += (piece.true[:, np.newaxis] - piece.found[:, np.newaxis] * piece.kept[:, places]).sum(axis=0)
    return lost


@dataclass
class ClosedErrors:
    """Every item of the domain is released, also one without any count; after a discovery, those that were found."""

    plan: Plan
    table: ClippedSums
    steps: Integers
    places: Integers
    _spreads: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bits = self.plan.grid_bits
        noises = [release_noise(self.plan, Threshold(steps=int(one), bits=bits)) for one in self.steps]
        self._spreads = np.array([float(noise.spread) for noise in noises])

    def loss(self) -> Floats:
        """Sum of E|bias + noise|, and of the true counts of items that are not found."""
        absent = float(self.table.found[self.table.truth == 0].sum())
        loss = self.table.missed + absent * self._distance(np.zeros(len(self.places)))
        for piece in self.table.pieces():
            true, found = piece.true[:, np.newaxis], piece.found[:, np.newaxis]
            distance = self._distance(true - piece.kept[:, self.places])
            loss += (found * distance + (1 - found) * true).sum(axis=0)
        return loss

    def noise_alone(self) -> Floats:
        """Sum of E|noise|."""
        return float(self.table.found.sum()) * self._distance(np.zeros(len(self.places)))

    def shown(self) -> Floats:
        """All items, or those that are found."""
        return np.full(len(self.places), float(self.table.found.sum()))

    def _distance(self, gap: Floats) -> Floats:
        """E|noise - gap| in counts, from noise in steps."""
        scale = math.ldexp(1.0, self.plan.grid_bits)
        if self.plan.norm is Norm.L2:
            return folded_normal(gap, np.sqrt(self._spreads) / scale)
        return LaplaceTails(self._spreads).distance(gap * scale) / scale


@dataclass
class OpenErrors:
    """A key is released when its noisy count passes the bar; one that is not released counts as 0."""

    plan: Plan
    table: ClippedSums
    steps: Integers
    places: Integers
    _bars: Floats = field(init=False, repr=False)
    _tails: LaplaceTails = field(init=False, repr=False)

    def __post_init__(self) -> None:
        noises = self.plan.open_noises(self.steps)
        self._bars = np.array([float(noise.bar) for noise in noises])
        limit = self._bars if self.plan.release == "truncated-laplace" else None
        self._tails = LaplaceTails(np.array([float(noise.scale) for noise in noises]), limit)

    def loss(self) -> Floats:
        """Sum over keys of true count times the chance of being withheld, and of the error when shown."""
        return self._summed(lambda kept, true: barred_loss(kept, true, self._bars, self._tails))

    def noise_alone(self) -> Floats:
        """The same against the clipped sums: noise and withheld keys."""
        return self._summed(lambda kept, _: barred_loss(kept, kept, self._bars, self._tails))

    def shown(self) -> Floats:
        """Sum over keys of the chance of being released."""
        return self._summed(lambda kept, _: shown_chance(kept, self._bars, self._tails))

    def _summed(self, of_key: Callable[[Floats, Floats], Floats]) -> Floats:
        total = np.zeros(len(self.places))
        for piece in self.table.pieces():
            total += of_key(piece.kept[:, self.places], piece.true[:, np.newaxis]).sum(axis=0)
        return total


ReleaseErrors = ClosedErrors | OpenErrors
"""Expected l1 errors over all items, one number for each threshold: of the release against the true counts (`loss`), of
the release against the clipped sums (`noise_alone`); and the expected number of released items (`shown`)."""

ERRORS: dict[str, type[ReleaseErrors]] = {
    ClippedSum.name: ClosedErrors,
    KeptItems.name: OpenErrors,
}
"""The errors of what is released, by measurement. Those of others can't be predicted."""
