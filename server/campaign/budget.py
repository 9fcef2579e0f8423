"""What one window of a campaign may cost, so that all of them fit into its total as a ledger counts it.

Windows are runs about the same people. For one user, ever, they compose, and what is chosen for a later window may
depend on earlier releases: known items, a threshold. So the count is the ledger's filter (`Limit`), which holds for
that, and not the tight composition of plans that are fixed beforehand.

**An even split.** Let n be the number of windows, with spare ones, and (E, D) the total. Every window has the same
budget: deltas of 0.1 D / n in all, so that their failures stay within what a limit has for them, and the largest
epsilon with which n windows have room. With Gaussian noise each gets rho/n, where rho is what the limit has room for.

**Two kinds of windows.** A campaign may choose a threshold or find items in its first window only. Then later windows
need no budget for that, and have an epsilon of their own: the largest with which j first windows and n - j later ones
have room, for all j from 1 to n. More than one window may be of the first kind: one that found nothing settles nothing.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.concentrated import Limit, Spending
from fedhist.server.steps import planned_charges
from fedhist.server.totals import default_choice, deltas_for, rounded_down

DELTA_SHARE = 0.1
"""Of a total's delta, for the deltas of all windows: what a limit has for failures."""

BUDGET_FIELDS = ("epsilon", "delta", "epsilon_select", "delta_select")
SOME_USERS, SOME_ITEMS = 1_000_000, 64
"""Stand in for the numbers of a population that nobody has read: no cost depends on them."""

_LEAST_SHARE, _MOST_TIMES = 1e-6, 8.0
_SEARCH_STEPS = 30
_STEP = 1e-5

Rooms = Sequence[tuple[Limit, Spending]]
"""The limits that all windows together have to keep, each with what is counted under it already."""


@dataclass(frozen=True)
class WindowBudget:
    """The budgets of one window's rounds.

    Args:
        fields: of its plan: epsilon and the others of BUDGET_FIELDS.
        cost: the most that it charges.
    """

    fields: Mapping[str, float]
    cost: Spending


def even_split(fields: Mapping[str, Any], *, windows: int, total: Limit, rooms: Rooms) -> WindowBudget:
    """The budget of each of these windows, if all are of one kind.

    Args:
        fields: of their plan, without budgets but maybe epsilon_select.
        windows: their number, with spare ones.
        total: of all of them together.
        rooms: the limits to keep, the total's among them.
    """

    def fits(budget: WindowBudget) -> bool:
        return all(limit.has_room(counted + budget.cost.times(windows)) for limit, counted in rooms)

    return _largest(fields, total, _window_delta(total, windows), fits, windows)


def split_of_later(
    fields: Mapping[str, Any], first: WindowBudget, *, windows: int, total: Limit, rooms: Rooms
) -> WindowBudget:
    """The budget of each window that is not of the first kind, beside those that are."""

    def fits(budget: WindowBudget) -> bool:
        return all(
            limit.has_room(
                Spending.total((counted, first.cost.times(of_first), budget.cost.times(windows - of_first)))
            )
            for limit, counted in rooms
            for of_first in range(1, windows + 1)
        )

    return _largest(fields, total, _window_delta(total, windows), fits, windows)


def _window_delta(total: Limit, windows: int) -> float:
    return rounded_down(DELTA_SHARE * total.delta / windows)


def _largest(
    fields: Mapping[str, Any],
    total: Limit,
    delta: float,
    fits: Callable[[WindowBudget], bool],
    windows: int,
) -> WindowBudget:
    """The budget with the largest epsilon that fits, at this delta."""

    def budget(epsilon: float) -> WindowBudget:
        return _budget(fields, epsilon, delta)

    classic = fields.get("calibration") == "classic"
    top = min(total.epsilon, 1.0) if classic else total.epsilon
    low, high = top, top
    first = budget(top)
    if not math.isfinite(first.cost.epsilon):
        raise InvalidPlan(
            "a campaign with a method that is not private",
            allowed="private selectors and releases",
            advice="choose another --selector",
            code="not-private",
        )
    # A window of Gaussian noise may have a larger epsilon at its small delta than all windows have at theirs.
    while fits(budget(high)) and high < _MOST_TIMES * top and not classic:
        low, high = high, 1.5 * high
    while not fits(budget(low)):
        low, high = low / 2, low
        if low < _LEAST_SHARE * top or not _drawable(budget, low):
            raise InvalidPlan(
                f"the total has no room for {windows:,} windows of this plan, however much noise they have",
                allowed="a larger --total-epsilon and --total-delta, a smaller --epsilon-select, or fewer windows",
                advice="'fedhist ledger show' says what other runs have taken of the ledger's limit",
                code="total-too-small",
            )
    for _ in range(_SEARCH_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(budget(middle)) else (low, middle)
    found = budget(rounded_down(low))
    while not fits(found):
        # The choice's share of an epsilon has steps, so that a slightly smaller one may cost more.
        low *= 1 - _STEP
        found = budget(rounded_down(low))
    return found


def _drawable(budget: Callable[[float], WindowBudget], epsilon: float) -> bool:
    """Whether there is a plan with so small an epsilon: samplers have a widest noise."""
    try:
        budget(epsilon)
    except InvalidPlan:
        return False
    return True


def _budget(fields: Mapping[str, Any], epsilon: float, delta: float) -> WindowBudget:
    chosen = {name: value for name, value in fields.items() if value is not None}
    if delta == 0 and chosen.get("domain", "closed") == "closed":
        chosen = {"mechanism": "laplace"} | chosen
    if "epsilon_select" not in chosen:
        some = {} if delta == 0 else {"delta": delta}
        chosen["epsilon_select"] = default_choice(epsilon, **chosen | some)
    deltas = deltas_for(epsilon, delta, chosen)
    return _of_plan(Plan(**chosen | deltas | {"epsilon": epsilon}))


def _of_plan(plan: Plan) -> WindowBudget:
    return WindowBudget(
        {name: getattr(plan, name) for name in BUDGET_FIELDS}, Spending.of(planned_charges(plan))
    )
