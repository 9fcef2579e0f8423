"""What a refused run could be, to fit into what a limit leaves."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_DOWN, Context

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.concentrated import Limit, Spending
from fedhist.server.ledger.budget_file import BudgetFile
from fedhist.server.steps import planned_charges

_SHORT = Context(prec=2, rounding=ROUND_DOWN)
_LEAST = 1e-3
_SEARCH_STEPS = 24


def what_fits(plan: Plan, budget: BudgetFile) -> str:
    """What is left of the limit, and with which epsilon of its histogram this plan would fit, as a sentence.

    Both are public: they depend on plans and charges alone.
    """
    limit, left = budget.limit, budget.left()
    if limit is None or left is None:
        return "There is no limit."
    words = f"Left: epsilon {left.epsilon:.4g} at delta {left.delta:.3g}. "
    epsilon = _largest(plan, limit, budget.counted())
    if epsilon is None:
        return f"{words}Nothing of this kind fits."
    return f"{words}It would fit with epsilon {epsilon:g}."


def _largest(plan: Plan, limit: Limit, spent: Spending) -> float | None:
    """The largest epsilon of two digits with which the plan fits; None if not even a thousandth of it does."""
    if not _fits(plan, _LEAST * plan.epsilon, limit, spent):
        return None
    low, high = _LEAST * plan.epsilon, plan.epsilon
    for _ in range(_SEARCH_STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _fits(plan, middle, limit, spent) else (low, middle)
    short = float(_SHORT.create_decimal(f"{low * (1 + 1e-6):.10g}"))
    return short if _fits(plan, short, limit, spent) else low


def _fits(plan: Plan, epsilon: float, limit: Limit, spent: Spending) -> bool:
    try:
        charges = planned_charges(replace(plan, epsilon=epsilon))
    except InvalidPlan:
        return False
    return limit.admits(spent, Spending.of(charges))
