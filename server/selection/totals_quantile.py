"""`median` and `p90`: a quantile of the users' totals, exact. Not private; the paper's baselines for open domains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    ANY_NORM,
    Reads,
    Selection,
    Statistic,
    not_private_charge,
    open_tail,
)


@dataclass(frozen=True)
class TotalsQuantile:
    """The smallest candidate with at most a share 1 - `share` of the users above it."""

    name: str
    share: float
    reads: Reads = (("expected-counts", ANY_NORM),)
    reads_noise: bool = False
    private: bool = False

    def check(self, plan: Plan) -> None:
        """Nothing beyond the plan's own checks."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """An entry that says that the run is not private."""
        return (not_private_charge(self.name, plan),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Read the quantile off the exact statistic."""
        tail = open_tail(statistic)
        inside = tail.users_above <= (1 - self.share) * tail.users
        index = int(np.argmax(inside)) if inside.any() else len(inside) - 1
        return Selection(threshold=Threshold(steps=int(plan.candidate_steps[index]), bits=plan.grid_bits))
