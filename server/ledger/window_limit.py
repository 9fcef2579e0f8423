"""What a ledger spends on one user in one window of time, and a limit on that.

A ledger protects two units at once. *One user, ever*: all runs compose. *One user in one window*: neighbouring data
differ in one user's rows within one of the ledger's windows C, in any way that the neighbouring relation of the charges
has: the rows are there or not (add-remove), or are others (replace). Then the runs that compose are those whose windows
share a day with C, and those without a window, which read everything.

*Disjoint windows compose in parallel.* Let D and D' differ in one user's rows within C. A run whose window W shares no
day with C reads the same rows under both, so its result has the same distribution, given all results before. The number
of users is public, as in every run: a user without rows in W takes part as an empty one, also who has no other rows.
A run whose window does share a day with C reads data that differ in what one user has, from all of it to nothing or to
anything else: by its charge it is private for these neighbours.

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
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedhist.protocol.errors import BudgetExceeded, InvalidPlan
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Limit, Spending

if TYPE_CHECKING:
    from fedhist.server.ledger.budget_file import BudgetFile, RunRecord

SCHEMA = """CREATE TABLE IF NOT EXISTS window_budget (
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
    costs = [(window_of(run.plan), _counted(run, limit)) for run in runs]
    named = {window for window, _ in costs if window is not None} | ({also} if also is not None else set())
    if not named:
        return {None: Spending.total(cost for _, cost in costs)}
    return {
        window: Spending.total(cost for other, cost in costs if other is None or other.overlaps(window))
        for window in sorted(named, key=lambda window: (window.first, window.last))
    }


def read_by(
    runs: Iterable[RunRecord], limit: Limit | None, plan: Mapping[str, Any]
) -> dict[Window | None, Spending]:
    """The same for the windows that a run of this plan would read something of."""
    asked = window_of(plan)
    counted = by_window(runs, limit, also=asked)
    return {
        window: spent
        for window, spent in counted.items()
        if window is None or asked is None or window.overlaps(asked)
    }


def rooms(budget: BudgetFile, plan: Mapping[str, Any]) -> list[tuple[Limit, Spending]]:
    """The limits that a run of this plan has to keep, each with what is counted under it."""
    limit, per_window = budget.limit, budget.window_limit
    ever = [] if limit is None else [(limit, budget.counted())]
    if per_window is None:
        return ever
    return ever + [(per_window, spent) for spent in read_by(budget.runs(), per_window, plan).values()]


def check_window_limit(
    limit: Limit | None, runs: Iterable[RunRecord], plan: Mapping[str, Any], cost: Spending
) -> None:
    """Raise BudgetExceeded for a run of this cost that would pass the limit in a window that it reads."""
    if limit is None:
        return
    for window, spent in read_by(runs, limit, plan).items():
        if not limit.admits(spent, cost):
            where = "runs without a window" if window is None else f"the window {window}"
            raise BudgetExceeded(
                f"the limit for one user in one window would be passed: for {where}, at delta {limit.delta:g}, epsilon "
                f"{window_claimed(limit, spent):.4g} is counted, {_in_words(limit.claimed(spent + cost))} with this "
                f"run, and the limit is epsilon {limit.epsilon:g}. Nothing was spent. 'fedhist ledger limit "
                "--per-window --replace' changes the limit."
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
    alone = limit is not None and limit.claimed(run.reserved) > limit.epsilon
    return run.reserved if alone and run.charges else run.counted
