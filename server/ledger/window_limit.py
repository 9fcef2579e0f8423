"""What a ledger spends on one user in one window of time, and a limit on that.

A ledger protects two units at once. *One user, ever*: all runs compose. *One user in one window*: neighbouring data
differ in one user's rows within one of the ledger's windows C, in any way that the neighbouring relation of the charges
has: the rows are there or not (zero-out), or are others (replace-one). Then the runs that compose are those whose
windows share a day with C, and those without a window, which read everything.

*Disjoint windows compose in parallel.* Let D and D' differ in one user's rows within C. A run whose window W shares no
day with C reads the same rows under both, so its result has the same distribution, given all results before. The number
of users is public, as in every run: a user without rows in W takes part as an empty one, also who has no other rows.
A run whose window does share a day with C reads data that differ in what one user has, from all of it to nothing or to
anything else: by its charge it is private for these neighbours.

*Campaigns have no windows of their own.* A device clips to what a user has left, so what a user sent in C decides what
is sent in later windows: the releases of a campaign all read C's rows in this sense, and all count for C. Under D and
D' the user sends v_t and v'_t, non-negative vectors that both keep the bound, so that the sum over windows of |v_t -
v'_t|^2 is at most that of |v_t|^2 + |v'_t|^2: two bounds. For replaced rows the noise is made for that. For rows that
are there or not it is made for one, and two bounds are what Gaussian noise of multiplier z/sqrt(2) hides.

*Runs that are chosen in view of results.* Fix C. Let the histories H be the results of all runs, in the order of their
draws, and S a set of histories in which C is a window of the ledger. Going through a history, a draw of a run that
shares no day with C has the same conditional probability under D and D', whatever made somebody choose it: such draws
are a post-processing of what came before. What is left are the draws of runs that share a day with C. They are chosen
in view of earlier draws, and those of other windows are no more than random choices that do not depend on what differs.
Their charges end within the limit, and only grow, so they were within it all along. That is also so if C became a
window late: then all runs before it that share a day with it were counted when it did. So on S the ledger is one with
a filter (`Limit`) on these draws alone, and P(S) <= e^epsilon Q(S) + delta.

*One run* that fits into the limit only by itself (`Limit`) was, for C, chosen in view of nothing that C's rows had a
part in; it counts in full from its first charge on.

The unit is as long as the windows that are used. After seven runs of a day each, one user in one day is protected by
the limit, and one user in that week by it only if the week is a window, too: a run of the week composes with all seven.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fedhist.protocol.errors import BudgetExceeded, InvalidPlan
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Limit, Spending, campaign_spending
from fedhist.protocol.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from fedhist.server.ledger.budget_file import BudgetFile, RunRecord

SCHEMA = """CREATE TABLE window_budget (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        epsilon REAL NOT NULL,
        delta REAL NOT NULL
    )"""


def window_of(plan: Mapping[str, Any]) -> Window | None:
    """The window of a plan as a ledger keeps it; None if it reads everything, or a window that nobody can read."""
    text = plan.get("window")
    try:
        return Window.parse(text) if isinstance(text, str) else None
    except InvalidPlan:
        return None


def by_window(
    runs: Iterable[RunRecord], limit: Limit | None = None, *, also: Window | None = None
) -> dict[Window | None, Spending]:
    """What is counted for each window of the ledger, in the order of their first days.

    Without any window, it is what runs without one count, under None.

    Args:
        runs: of the ledger.
        limit: for one user in one window. Runs that fit into it only by themselves count in full.
        also: one more window.
    """
    costs = [(window_of(run.plan), *in_one_window(_counted(run, limit), run.plan)) for run in runs]
    named = {window for window, *_ in costs if window is not None} | ({also} if also is not None else set())
    if not named:
        return {None: Spending.total(cost for _, cost, _ in costs)}
    return {
        window: Spending.total(
            cost if other is None or other.overlaps(window) else elsewhere for other, cost, elsewhere in costs
        )
        for window in sorted(named, key=lambda window: (window.first, window.last))
    }


def in_one_window(cost: Spending, plan: Mapping[str, Any]) -> tuple[Spending, Spending]:
    """What a run of this cost counts for one user in one window: in a window that it reads, and in any other.

    In others it is the releases of its campaign, if it has one.
    """
    if not cost.campaigns:
        return cost, Spending()
    zero_out = plan.get("neighbours") != Neighbours.REPLACE_ONE
    releases = [
        campaign_spending(campaign.of_two_bounds() if zero_out else campaign).times(count)
        for campaign, count in cost.campaigns
    ]
    return Spending.total([cost.without_campaigns(), *releases]), Spending.total(releases)


@dataclass(frozen=True)
class Room:
    """A limit that a run has to keep, with what is counted under it.

    Args:
        limit: for one user, ever or in one window.
        spent: what is counted.
        counts: what the limit counts of a run.
        where: the window, in words; nothing for one user, ever.
    """

    limit: Limit
    spent: Spending
    counts: Callable[[Spending], Spending]
    where: str = ""

    def admits(self, cost: Spending) -> bool:
        """Whether a run of this cost may follow."""
        due = self.counts(cost)
        return due == Spending() or self.limit.admits(self.spent, due)


def window_rooms(runs: Iterable[RunRecord], limit: Limit, plan: Mapping[str, Any]) -> Iterator[Room]:
    """Every window, with what a run of this plan would count in it."""
    asked = window_of(plan)
    for window, spent in by_window(runs, limit, also=asked).items():
        is_read = window is None or asked is None or window.overlaps(asked)
        where = "runs without a window" if window is None else f"the window {window}"
        yield Room(limit, spent, partial(_in_window, plan, is_read), where)


def _in_window(plan: Mapping[str, Any], is_read: bool, cost: Spending) -> Spending:
    here, elsewhere = in_one_window(cost, plan)
    return here if is_read else elsewhere


def rooms(budget: BudgetFile, plan: Mapping[str, Any]) -> list[Room]:
    """The limits that a run of this plan has to keep, each with what is counted under it."""
    limit, per_window = budget.limit, budget.window_limit
    ever = [] if limit is None else [Room(limit, budget.counted(), lambda cost: cost)]
    return ever if per_window is None else [*ever, *window_rooms(budget.runs(), per_window, plan)]


def check_window_limit(
    limit: Limit | None, runs: Iterable[RunRecord], plan: Mapping[str, Any], cost: Spending
) -> None:
    """Raise BudgetExceeded for a run of this cost that would pass the limit in a window that it counts in."""
    for room in () if limit is None else window_rooms(runs, limit, plan):
        if not room.admits(cost):
            limit, total = room.limit, room.limit.claimed(room.spent + room.counts(cost))
            raise BudgetExceeded(
                f"the limit for one user in one window would be passed: for {room.where}, at delta {limit.delta:g}, "
                f"epsilon {window_claimed(limit, room.spent):.4g} is counted, {_in_words(total)} with this run, and "
                f"the limit is epsilon {limit.epsilon:g}. Nothing was spent. 'fedhist ledger limit --per-window "
                "--replace' changes the limit."
            )


def window_claimed(limit: Limit, spent: Spending) -> float:
    """What is counted in a window as an epsilon at the limit's delta; a run that is there by itself is its own."""
    claimed = limit.claimed(spent)
    return claimed if claimed <= limit.epsilon else min(claimed, spent.epsilon)


_READ = {
    False: "SELECT epsilon, delta FROM budget",
    True: "SELECT epsilon, delta FROM window_budget",
}
_WRITE = {
    False: "INSERT OR REPLACE INTO budget (only, epsilon, delta) VALUES (1, ?, ?)",
    True: "INSERT OR REPLACE INTO window_budget (only, epsilon, delta) VALUES (1, ?, ?)",
}


def read_limit(database: sqlite3.Connection, *, per_window: bool = False) -> Limit | None:
    """The limit for one user, ever or in one window; None if none was set."""
    row = database.execute(_READ[per_window]).fetchone()
    try:
        return None if row is None else Limit(*row)
    except (InvalidPlan, TypeError) as problem:
        raise sqlite3.DatabaseError("the limit can't be read") from problem


def write_limit(database: sqlite3.Connection, limit: Limit, *, per_window: bool) -> None:
    """Set that limit, in place of any other."""
    database.execute(_WRITE[per_window], (float(limit.epsilon), float(limit.delta)))


def _in_words(epsilon: float) -> str:
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "no finite one"


def _counted(run: RunRecord, limit: Limit | None) -> Spending:
    """What the run counts. One that can only have been admitted by itself is not given back what it did not charge."""
    reserved, _ = in_one_window(run.reserved, run.plan)
    alone = limit is not None and limit.claimed(reserved) > limit.epsilon
    return run.reserved if alone and run.charges else run.counted
