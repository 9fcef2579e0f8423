"""`fixed`: the threshold that the plan names. No round 1, no cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    CLOSED_GAUSSIAN,
    CLOSED_LAPLACE,
    ITEMS_GAUSSIAN,
    ITEMS_LAPLACE,
    OPEN,
    Mode,
    Selection,
    Statistic,
)


@dataclass(frozen=True)
class Fixed:
    """The public threshold of the plan, on the grid."""

    name: str = "fixed"
    modes: frozenset[Mode] = frozenset({CLOSED_GAUSSIAN, CLOSED_LAPLACE, OPEN, ITEMS_GAUSSIAN, ITEMS_LAPLACE})
    needs_statistic: bool = False
    private: bool = True

    def check(self, plan: Plan) -> None:
        """Plan checks that the threshold is there and in range."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """Nothing: no data was looked at."""
        return ()

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """The plan's threshold."""
        assert plan.threshold is not None  # noqa: S101 - Plan refuses the selector without it
        threshold = plan.at_steps(math.ldexp(plan.threshold, plan.grid_bits))
        alike = np.full(plan.items or 0, threshold.steps) if plan.per_item else None
        return Selection(threshold=threshold, item_thresholds=alike)
