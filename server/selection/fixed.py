"""`fixed`: the threshold that the plan names. No round 1, no cost."""

from __future__ import annotations

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import Selection, Selector, Statistic


class Fixed(Selector):
    """The public threshold of the plan, on the grid. The plan checks that it is there and in range."""

    name = "fixed"

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """Nothing: no data was looked at."""
        return ()

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """The plan's threshold."""
        return Selection(threshold=plan.fixed_threshold)
