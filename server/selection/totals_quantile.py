"""`median` and `p90`: a quantile of the users' totals, exact. Not private; the paper's baselines for open domains."""

from __future__ import annotations

from dataclasses import dataclass

from fedhist.protocol.measurements.expected_counts import OpenTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import ANY_NORM, Baseline, Selection, Statistic, reading_as
from fedhist.server.selection.crossing import first_inside


@dataclass(frozen=True)
class TotalsQuantile(Baseline):
    """The smallest candidate with at most a share 1 - `share` of the users above it."""

    name: str
    share: float
    reads = (("expected-counts", ANY_NORM),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Read the quantile off the exact statistic."""
        tail = reading_as(OpenTail, statistic)
        return Selection(first_inside(plan, tail.users_above <= (1 - self.share) * tail.users))
