"""Selectors on a tail that the devices noised: everything here is a post-processing and costs nothing more."""

from __future__ import annotations

import numpy as np

from fedhist.protocol.errors import InvalidPlan, UnexpectedMessage
from fedhist.protocol.measurements.noisy_tail import NoisyTail, reading_coefficients, tail_design
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import NoisySelector, Selection, Selector, Statistic
from fedhist.server.selection.crossing import CAUTION
from fedhist.server.share_charges import select_shares_charge


class FromNoisyTail(Selector):
    """A selector's counterpart for noise from devices.

    Args:
        original: the selector that the plan names.
        column: the part of the tail that it reads.
    """

    def __init__(self, original: Selector, column: str) -> None:
        self.name, self.reads = original.name, original.reads
        self.original, self.column = original, column

    def check(self, plan: Plan) -> None:
        """The selector must be one that can do with noise, and the noise one that can be drawn in shares."""
        if not isinstance(self.original, NoisySelector):
            raise InvalidPlan(
                f"the selector {self.name} reads an exact statistic, and devices that add noise send none",
                allowed="a selector that can read a noisy one",
                advice="use --selector weighted-quantile, or --noise-from server",
                code="reads-exact-statistic",
            )
        tail_design(plan, self.column)

    def resolution(self, plan: Plan) -> float:
        """The part of the noise's deviation that counts in the level which the tail has to fall to, in the middle."""
        design = tail_design(plan, self.column)
        spreads = np.sqrt(np.cumsum(reading_coefficients(design.coefficients) ** 2))
        deviation = design.share.deviation(plan.masks.participants) / design.unit
        return float(CAUTION[plan.norm] * spreads[len(spreads) // 2] * deviation)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One mechanism on the whole vector. Charged before the devices are asked."""
        return (select_shares_charge(plan, self.column),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Read the threshold off the noisy tail. Draws nothing."""
        if not (isinstance(statistic, NoisyTail) and isinstance(self.original, NoisySelector)):
            raise UnexpectedMessage(state="a selector of a noisy tail", message=statistic)
        return Selection(threshold=self.original.from_noisy(plan, statistic))
