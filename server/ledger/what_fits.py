"""What a refused run could be, to fit into what a limit leaves."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_DOWN, Context

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.composition import basic_total
from fedhist.protocol.privacy.ledger import Cost
from fedhist.server.steps import planned_charges

_SHORT = Context(prec=3, rounding=ROUND_DOWN)


def what_fits(plan: Plan, left: Cost, *, trials: int = 1) -> str:
    """What is left, and with which epsilon and delta of its histogram this plan would fit, as a sentence.

    Both are public: they depend on plans and charges alone.
    """
    cost = basic_total(planned_charges(plan))
    room = Cost(left.epsilon / trials, left.delta / trials)
    smaller = {
        name: getattr(plan, name) - getattr(cost, name) + getattr(room, name)
        for name in ("epsilon", "delta")
        if getattr(cost, name) > getattr(room, name)
    }
    words = f"Left: epsilon {left.epsilon:.4g}, delta {left.delta:.3g}."
    if fitting := _fitting(plan, smaller, room):
        return f"{words} It would fit with {' and '.join(f'{name} {fitting[name]:g}' for name in fitting)}."
    return f"{words} Nothing of this kind fits."


def _fitting(plan: Plan, smaller: dict[str, float], room: Cost) -> dict[str, float]:
    """The numbers, shortened, if a plan with them fits; else none."""
    # Ten digits first: a sum of floats may miss a short number by its last bit.
    short = {name: float(_SHORT.create_decimal(f"{value:.10g}")) for name, value in smaller.items()}
    if not all(value > 0 for value in short.values()):
        return {}
    try:
        cost = basic_total(planned_charges(replace(plan, **short)))  # type: ignore[arg-type] # two of its floats
    except InvalidPlan:
        return {}
    return short if cost.fits(epsilon=room.epsilon, delta=room.delta) else {}
