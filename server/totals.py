"""One budget for all rounds: the plan whose rounds together cost no more than a total.

Rounds that run one after another cost less than the sum of their epsilons (`protocol/privacy/composition`). So that the
difference buys less noise, the epsilon of the histogram is the largest one at which the tight total of all rounds is
still within the budget. It is found here, once, before the plan is sent: a plan holds the solution, and devices
calibrate their noise to it as to any other.

| the rounds                                        | epsilon of the histogram                             |
|---------------------------------------------------|------------------------------------------------------|
| Gaussian noise after an exponential mechanism      | more than the total less epsilon'                    |
| all pure, or the deltas all spent on bars          | the total less epsilon': nothing composes better     |
| no choice (`fixed`)                                | the total                                            |

The second row is no weakness of the accounting. With pure rounds the loss is the sum of all epsilons with a probability
of at least 1/2 for each round, so a slack of delta lowers the total by a few times delta.
"""

from __future__ import annotations

import decimal
import functools
import math
from dataclasses import replace
from typing import Any

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import Kind, found
from fedhist.protocol.privacy.calibration import check_delta, check_epsilon
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Cost
from fedhist.server.selection import selector_for
from fedhist.server.steps import planned_charges

CHOICE_SHARE = 1 / 11
"""epsilon' over the total where the selector has no rule: the paper's 0.1 of 1.1."""

_LEAST_CHOICE, _MOST_CHOICE = 0.01, 0.3

_DIGITS = 6
_CLOSE = 1e-7
"""The search ends at this share of the total."""


def plan_for_total(*, total_epsilon: float, total_delta: float | None = None, **fields: Any) -> Plan:
    """The plan whose rounds cost at most a total by tight composition, with the least noise.

    Args:
        total_epsilon: of all rounds together.
        total_delta: of all rounds together. A selector or a table that spends delta gets the share that its epsilon
            has. None leaves the deltas as the fields or their defaults say; a plan that spends none ignores it.
        fields: of `Plan`, without epsilon. If `epsilon_select` is left out, it is that of `default_choice`.

    Raises:
        InvalidPlan: a total and a part of it that contradict each other, or a total that the other rounds use up.
    """
    check_epsilon(total_epsilon, "total-epsilon")
    chosen = {name: value for name, value in fields.items() if value is not None}
    if "epsilon" in chosen:
        raise InvalidPlan(
            "both epsilon and total-epsilon are given",
            allowed="one of them: the budget of the histogram, or of all rounds together",
            advice="leave --epsilon out",
            code="epsilon-and-total",
        )
    if total_delta is not None:
        if {"delta", "delta_select"} & set(chosen):
            raise InvalidPlan(
                "both total-delta and a delta of one round are given",
                allowed="the total or its parts",
                advice="leave --delta and --delta-select out",
                code="delta-and-total",
            )
        if total_delta == 0 and chosen.get("domain", "closed") == "closed":
            chosen = {"mechanism": "laplace"} | chosen
        else:
            check_delta(total_delta, "total-delta")
    if "epsilon_select" not in chosen:
        delta = {} if total_delta is None else {"delta": total_delta}
        chosen["epsilon_select"] = default_choice(total_epsilon, **chosen | delta)
    if total_delta is not None:
        chosen |= deltas_for(float(total_epsilon), total_delta, chosen)
    return _solved(float(total_epsilon), tuple(sorted(chosen.items())))


def planned(*, total_epsilon: float | None = None, total_delta: float | None = None, **fields: Any) -> Plan:
    """The plan of these fields; for a total where one is given.

    A delta of 0 over a closed domain asks for the mechanism that needs none, if no mechanism is named.
    """
    closed = fields.get("domain") in (None, "closed")
    if closed and fields.get("delta") == 0 and fields.get("mechanism") is None:
        fields["mechanism"] = "laplace"
    if total_epsilon is not None:
        return plan_for_total(total_epsilon=total_epsilon, total_delta=total_delta, **fields)
    if total_delta is not None:
        raise InvalidPlan(
            "total-delta without total-epsilon",
            allowed="both of them, or the budgets of single rounds",
            advice="add --total-epsilon, or use --delta",
            code="total-delta-alone",
        )
    return Plan(**fields)


def default_choice(total_epsilon: float, **fields: Any) -> float:
    """The epsilon' of a plan that says only its total: the share that its selector wants."""
    usual = rounded_down(total_epsilon * CHOICE_SHARE)
    # Before items are found, the price of their noise is not known.
    if fields.get("domain", "closed") != "closed":
        return usual
    # A rule from outside may have no noise for an epsilon as large as the total.
    plan = Plan(**fields | {"epsilon": total_epsilon, "epsilon_select": usual, "release": None})
    share = selector_for(plan).share_of_total(plan)
    if share is None:
        return usual
    return float(f"{total_epsilon * min(max(share, _LEAST_CHOICE), _MOST_CHOICE):.3g}")


def total_words(plan: Plan, total_epsilon: float) -> str:
    """What each round of a plan for this total got, and what it is worth, as a sentence."""
    cost, sum_ = tight_total(planned_charges(plan)), basic_total(planned_charges(plan))
    parts = [
        f"{plan.epsilon:.6g} for {'finding items and releasing them' if plan.discovers else 'the histogram'}"
    ]
    if sum_.epsilon > plan.epsilon:
        parts.insert(0, f"{plan.epsilon_select:.6g} for the choice of the threshold")
    words = (
        f"total epsilon {total_epsilon:.6g}: {' and '.join(parts)} cost {cost.epsilon:.4g} by tight composition, at "
        f"delta {cost.delta:.3g}"
    )
    gain = noise_saved(plan, total_epsilon)
    if gain >= 0.0005:
        words += f", with {gain:.1%} less noise than a total by addition"
    if sum_.epsilon > total_epsilon * 1.001:
        words += f". The limits of ledgers and nodes add epsilons up: they count {sum_.epsilon:.4g}"
    return words


def noise_saved(plan: Plan, total_epsilon: float) -> float:
    """The share of the noise that a plan for this total saves, against one whose epsilons add up to the total."""
    others = basic_total(planned_charges(plan)).epsilon - plan.epsilon
    if not 0 < total_epsilon - others < plan.epsilon:
        return 0.0
    added = replace(plan, epsilon=total_epsilon - others)
    return 1 - plan.releasing.one_way.unit_noise / added.releasing.one_way.unit_noise


def deltas_for(total_epsilon: float, total_delta: float, chosen: dict[str, Any]) -> dict[str, Any]:
    """The fields of a plan that spends this delta in all."""
    if total_delta == 0:
        return {"delta": 0.0, "delta_select": 0.0}
    share = min(chosen["epsilon_select"] / total_epsilon, 0.5)
    plan = Plan(**chosen | {"epsilon": total_epsilon / 2, "delta_select": rounded_down(total_delta * share)})
    spends = _sum(replace(plan, delta_select=plan.delta_select / 2)).delta < _sum(plan).delta
    selects = plan.delta_select if spends else 0.0
    if plan.delta == 0:
        return {"delta": 0.0, "delta_select": selects}
    others = max(_sum(plan).delta - plan.delta, 0.0)
    if not others < total_delta:
        raise InvalidPlan(
            f"total-delta is {total_delta:g}, and what comes beside the histogram spends {others:.3g} of it",
            allowed=f"a total-delta well above {others:.3g}",
            advice="raise --total-delta",
            code="total-delta-too-small",
        )
    return {"delta": rounded_down(total_delta - others), "delta_select": selects}


@functools.lru_cache(maxsize=1024)
def _solved(total: float, fields: tuple[tuple[str, Any], ...]) -> Plan:
    """The plan with the largest epsilon of _DIGITS digits whose tight total is at most `total`."""

    def plan(epsilon: float) -> Plan:
        return Plan(**dict(fields) | {"epsilon": epsilon})

    def above(epsilon: float) -> float:
        return tight_total(planned_charges(plan(epsilon))).epsilon - total

    rule = found(Kind.RELEASE, dict(fields).get("release"))
    end = math.inf if rule is None else float(rule.thing.most_epsilon)
    most = min(total, end)
    first = plan(most)
    others = _sum(first).epsilon - most
    if math.isinf(others):
        raise InvalidPlan(
            f"a total-epsilon with the selector {first.selector}, which is not private",
            allowed="a total-epsilon with selectors that are private",
            advice="use --epsilon",
            code="not-private",
        )
    if others >= total:
        raise InvalidPlan(
            f"the rounds before the histogram spend epsilon {others:.4g} of the total-epsilon {total:.4g}, and nothing "
            "is left for the histogram",
            allowed="a smaller epsilon-select",
            advice="leave --epsilon-select out, or raise --total-epsilon",
            code="nothing-left",
        )
    if others > 0:
        # A histogram that has a part of delta alone may have a larger epsilon than all rounds have with all of it.
        most = min(2 * total, end)
    if above(most) <= 0:
        return plan(rounded_down(most))
    # By addition this much is sure to fit.
    least = (total - others) * (1 - _CLOSE)
    from scipy.optimize import brentq  # it loads slowly, and most runs need none of it

    epsilon = rounded_down(brentq(above, least, most, xtol=_CLOSE * total))
    while above(epsilon) > 0:
        epsilon = rounded_down(epsilon * (1 - _CLOSE))
    return plan(epsilon)


def _sum(plan: Plan) -> Cost:
    return basic_total(planned_charges(plan))


def rounded_down(value: float) -> float:
    """The value with a few digits, never above it."""
    rounding = decimal.Context(prec=_DIGITS, rounding=decimal.ROUND_DOWN)
    # A double that stands for a short number keeps it.
    return float(rounding.create_decimal(repr(float(value))))
