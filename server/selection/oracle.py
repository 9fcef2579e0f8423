"""`oracle`: C* from the exact statistic. Not private; the yardstick of simulations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.statistics import Tail
from fedhist.server.selection.contract import Selection, best_candidate


@dataclass(frozen=True)
class Oracle:
    """The smallest candidate C with W(C) <= M (Liu et al., theorem 4.2 and lemma 4.1)."""

    name: str = "oracle"
    mechanisms: frozenset[str] = frozenset({"gaussian", "laplace"})
    needs_statistic: bool = True
    private: bool = False

    def check(self, plan: Plan) -> None:
        """Nothing beyond the plan's own checks."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """An entry that says that the run is not private."""
        return (
            Charge(
                round="select",
                name="oracle",
                parameters={},
                sensitivity=math.inf,
                norm="score",
                neighbours=plan.neighbours.value,
                epsilon=math.inf,
                delta=0.0,
                loss=ApproximateLoss(),
                private=False,
            ),
        )

    def select(self, plan: Plan, tail: Tail, *, source: Source) -> Selection:
        """Read C* off the exact statistic."""
        return Selection(threshold=best_candidate(plan, tail))
