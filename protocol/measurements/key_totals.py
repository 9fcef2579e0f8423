"""`key-totals`: mass and share by item and bin, with the items' names. Round 1 before one release above a bar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.errors import UnexpectedMessage
from fedhist.protocol.histograms import Histograms, Labels
from fedhist.protocol.measurements.contract import Measurement, Round, Shape, Summed, Total, Words
from fedhist.protocol.measurements.expected_counts import SHARE_BITS, OpenTail, read_sums, sums_by_key
from fedhist.protocol.measurements.given import Nothing
from fedhist.protocol.measurements.limits import at_most, exactly, sum_at_most
from fedhist.protocol.privacy.neighbours import Neighbours, Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


@dataclass(frozen=True, eq=False)
class KeyTotals(Measurement[Nothing]):
    """Users and totals by bin as a vector, and two values for each item and bin that somebody has."""

    name = "key-totals"
    round = Round.SELECT
    offers = frozenset({"expected-counts"})
    where = "over open domains"
    names_travel = True

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """One release above a bar, which is without masks."""
        return plan.is_open and not plan.discovers

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Sums by item."""
        bins = len(plan.candidate_steps) + 1
        return Words(
            asks=f"users' totals in {bins:,} bins between candidate thresholds, and sums of their items by bin",
            work="totals into bins",
            sends=f"{2 * bins:,} whole numbers, items with sums",
            detail=f"Each user's total falls into one of {bins:,} bins between candidates. Their items are summed by "
            "bin and sent with their names.",
        )

    @cached_property
    def shape(self) -> Shape:
        """A value is a total, cut to C_m, or a share."""
        bins = len(self.plan.candidate_steps) + 1
        largest = max(int(self.plan.candidate_steps[-1]), 1 << SHARE_BITS)
        return Shape(length=2 * bins, largest=largest, columns=2, bins=bins)

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """How far one user moves what selectors read.

        A user of total m (cut to C_m) is above the candidates below m: one user more or less, for either neighbours.
        The overflow moves by max(m - C, 0) <= C_m - C_min, for either neighbours, because it is not negative. The
        user's parts of the A_j(C) sum to min(m, C) <= C_m, so their l1 norm at any candidate moves by at most C_m, and
        by twice that where one user is replaced.
        """
        plan = self.plan
        smallest, largest = int(plan.candidate_steps[0]), int(plan.candidate_steps[-1])
        spread = largest << SHARE_BITS
        whole = 2 * spread if plan.neighbours is Neighbours.REPLACE_ONE else spread
        return {
            "users_above": Sensitivity(square=1, norm=Norm.SCORE, neighbours=plan.neighbours),
            "overflow": Sensitivity(
                square=(largest - smallest) ** 2, norm=Norm.SCORE, neighbours=plan.neighbours
            ),
            "expected": Sensitivity(square=whole**2, norm=Norm.L1, neighbours=plan.neighbours),
        }

    @property
    def key(self) -> tuple[object, ...]:
        """Candidates."""
        plan = self.plan
        return (self.name, plan.candidate_steps.tobytes())

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """Both parts."""
        candidates = self.plan.candidate_steps
        return Summed(*sums_by_key(users, candidates, int(candidates[-1])))

    def check(self, summed: Summed, users: int) -> None:
        """Every user is in one bin, with a total of at most C_m and shares that sum to one."""
        if summed.keyed is None:
            raise UnexpectedMessage(state=self.name, message=summed)
        cap = int(self.plan.candidate_steps[-1])
        counted, totals = np.split(summed.values, 2)
        exactly(counted, users)
        at_most(totals, counted * cap, "the total of a bin")
        bounds = np.array([users * cap, users << SHARE_BITS])
        sum_at_most(summed.keyed.values, bounds, "the mass or the share of all items")

    def read(self, total: Total) -> OpenTail:
        """Expected counts of every item."""
        if total.keyed is None:
            raise UnexpectedMessage(state=self.name, message=total)
        return read_sums(total.values, total.keyed, self.plan.candidate_steps, users=total.users)

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The bin of the device's total, then its items."""
        bins = self.shape.bins
        values = summed.values
        places = [
            (
                f"users in bin {place}" if place < bins else f"total in bin {place - bins}",
                float(values[place]),
            )
            for place in np.flatnonzero(values).tolist()
        ]
        if summed.keyed is not None:
            kept = slice(max(0, most - len(places)))
            for key, row in zip(
                summed.keyed.keys[kept].tolist(), summed.keyed.values[kept].tolist(), strict=True
            ):
                places.append((f"{labels[key // bins]}, bin {key % bins}", float(max(row))))
        return places[:most]
