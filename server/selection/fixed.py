"""`fixed`: the threshold that the plan names. No round 1, no cost."""

from __future__ import annotations

from dataclasses import dataclass

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    Reads,
    Selection,
    Statistic,
)


@dataclass(frozen=True)
class Fixed:
    """The public threshold of the plan, on the grid."""

    name: str = "fixed"
    reads: Reads = ()
    reads_noise: bool = False
    private: bool = True

    def check(self, plan: Plan) -> None:
        """Plan checks that the threshold is there and in range."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """Nothing: no data was looked at."""
        return ()

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """The plan's threshold."""
        return Selection(threshold=plan.fixed_threshold)
