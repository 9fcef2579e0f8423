"""One budget for several questions about the same people: plans whose rounds together cost no more than a total.

**Neighbours.** Two populations are neighbours if they differ in one user: in all rows of that user, and so in the
user's part of every question at once. A question that reads one column sees the same users as one that reads another.

**Why the costs compose.** Let M_i be the run of question i, a function of all rows of all users. The user's part of
M_i's input is a function of the user's rows, so populations that differ in one user give inputs of M_i that differ in
that user's part alone: M_i costs what its own plan says. All plans are fixed before anything is read, so what is
released is M_1, M_2, ... on the same population, one after another, which `tight_total` is about. Nothing is saved by
the questions' being about different columns: one user is in all of them.

**What a weight is.** A question's share of the precision of the noise. Its histogram gets noise of the variance v C^2,
where C is the threshold that is chosen for it, and the precision is 1/v. A question of weight 2 has half the variance
of one of weight 1. With Gaussian noise precisions are what adds up in a total, so shares of the precision are shares of
the budget; equal ones make the sum of all variances the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.checks import usual_delta
from fedhist.protocol.privacy.calibration import check_delta, check_epsilon, is_number
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.steps import planned_charges
from fedhist.server.totals import CLOSE, default_choice, deltas_for, rounded_down

_LARGEST_RATIO = 1e4
# Of an epsilon, for the others' noise to follow the leading question's.
_FOLLOWING = 1e-9
# Of the total, for the histogram of the leading question: with less there is no use in asking.
_LEAST_SHARE = 0.01
_COMMON = ("neighbours", "masking", "participants", "corrupt_share", "dropout_share")


def plans_for_total(
    questions: Mapping[str, Mapping[str, Any]],
    *,
    total_epsilon: float,
    total_delta: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> dict[str, Plan]:
    """The plans of several questions about the same people that cost at most a total together, with the least noise.

    Args:
        questions: fields of `Plan` by the question's name, without epsilon and deltas. If `epsilon_select` is left out,
            it is that of `default_choice`, for the part of the total that the question would have alone. If `mechanism`
            is left out, noise is Gaussian, also after a discovery, where a run by itself has `auto`; Laplace with a
            total_delta of 0.
        total_epsilon: of all rounds of all questions together, by tight composition.
        total_delta: of all rounds of all questions together, shared by weight among those that spend delta. None is
            `usual_delta` of the users.
        weights: each question's share of the precision of the noise, relative to the others; 1 where it is left out.

    Raises:
        InvalidPlan: no question, weights that are not positive, parts that contradict the total, questions that are
            not about the same users or neighbours, or a total that is too small for them.
    """
    shares = _shares(questions, weights or {})
    check_epsilon(total_epsilon, "total-epsilon")
    total, delta = float(total_epsilon), total_delta
    if delta is None:
        delta = usual_delta(max([1, *filter(is_number, (one.get("users") for one in questions.values()))]))
    if delta != 0:
        check_delta(delta, "total-delta")
    several = len(questions) > 1
    fields = {name: _checked(name, one, pure=delta == 0, several=several) for name, one in questions.items()}
    parts = _parts(total, shares, pure=delta == 0)
    fields = _with_budgets(fields, parts, delta, shares)
    plans = {name: Plan(**one, epsilon=parts[name]) for name, one in fields.items()}
    _check_together(plans)
    return _solved(total, fields, shares, plans)


def charges_of_all(plans: Mapping[str, Plan]) -> list[Charge]:
    """The most that all these runs will charge, one after another."""
    return [charge for plan in plans.values() for charge in planned_charges(plan)]


def _shares(questions: Mapping[str, Any], weights: Mapping[str, float]) -> dict[str, float]:
    """Each question's weight, of a sum of 1."""
    if not questions:
        raise InvalidPlan("there is no question", allowed="at least one question")
    for name, weight in weights.items():
        if name not in questions:
            raise InvalidPlan(
                f"a weight for {name!r}, which is no question", allowed=f"weights of {', '.join(questions)}"
            )
        if not is_number(weight) or not 0 < weight < math.inf:
            raise InvalidPlan(
                f"the weight of {name} is {weight!r}",
                allowed="a finite number above 0",
                advice="leave the question out if it should get nothing",
            )
    each = {name: float(weights.get(name, 1.0)) for name in questions}
    if max(each.values()) > _LARGEST_RATIO * min(each.values()):
        raise InvalidPlan(
            f"the weights are {min(each.values()):g} to {max(each.values()):g}",
            allowed=f"weights of which the largest is at most {_LARGEST_RATIO:g} times the smallest",
        )
    return {name: weight / math.fsum(each.values()) for name, weight in each.items()}


def _checked(name: str, fields: Mapping[str, Any], *, pure: bool, several: bool) -> dict[str, Any]:
    """The fields that are given, without budgets of their own, and the mechanism that composes best."""
    chosen = {field: value for field, value in fields.items() if value is not None}
    for part in ("epsilon", "delta", "delta_select"):
        if part in chosen:
            raise InvalidPlan(
                f"the question {name} has {part.replace('_', '-')} of its own beside the total of all questions",
                allowed="one total-epsilon and total-delta, and a weight for each question",
                advice=f"leave {part.replace('_', '-')} out, and give the question a weight",
            )
    if pure and chosen.get("domain", "closed") == "closed":
        chosen = {"mechanism": "laplace"} | chosen
    elif several and chosen.get("domain") == "open" and chosen.get("release", "discover") == "discover":
        # A choice between two mechanisms costs the other questions more than it saves here.
        chosen = {"mechanism": "gaussian"} | chosen
    return chosen


def _parts(total: float, shares: Mapping[str, float], *, pure: bool) -> dict[str, float]:
    """What each question would have for itself, roughly: noise is in proportion to 1/epsilon.

    Squares of epsilons add up where there is delta, and epsilons where there is none.
    """
    roots = {name: math.sqrt(share) for name, share in shares.items()}
    whole = math.fsum(roots.values()) if pure else 1.0
    return {name: total * root / whole for name, root in roots.items()}


def _with_budgets(
    fields: Mapping[str, Mapping[str, Any]],
    parts: Mapping[str, float],
    total_delta: float,
    shares: Mapping[str, float],
) -> dict[str, dict[str, Any]]:
    """The fields with epsilons' and with deltas that sum to the total: who spends none leaves it to the others."""
    chosen = {
        name: {"epsilon_select": default_choice(parts[name], **one)} | dict(one)
        for name, one in fields.items()
    }
    if total_delta == 0:
        return {name: one | deltas_for(parts[name], 0.0, one) for name, one in chosen.items()}
    alone = {name: deltas_for(parts[name], total_delta, one) for name, one in chosen.items()}
    spends = [name for name, deltas in alone.items() if any(deltas.values())]
    among = math.fsum(shares[name] for name in spends)
    return {
        name: one
        | (
            deltas_for(parts[name], rounded_down(total_delta * shares[name] / among), one)
            if name in spends
            else alone[name]
        )
        for name, one in chosen.items()
    }


def _check_together(plans: Mapping[str, Plan]) -> None:
    first_name, first = next(iter(plans.items()))
    for name, plan in plans.items():
        for field in ("users", *_COMMON):
            mine, theirs = getattr(plan, field), getattr(first, field)
            if mine != theirs:
                raise InvalidPlan(
                    f"{field.replace('_', ' ')} is {theirs} for {first_name} and {mine} for {name}",
                    allowed="questions about the same users, with the same neighbours and masking",
                )
        for charge in planned_charges(plan):
            if not charge.private:
                raise InvalidPlan(
                    f"a total-epsilon with {charge.name} for {name}, which is not private",
                    allowed="a total-epsilon with methods that are private",
                )


def _solved(
    total: float,
    fields: Mapping[str, Mapping[str, Any]],
    shares: Mapping[str, float],
    first: Mapping[str, Plan],
) -> dict[str, Plan]:
    """The plans with the largest epsilons of a few digits whose tight total is at most `total`.

    One question leads, and the noise of the others follows its noise.
    """
    from scipy.optimize import brentq  # it loads slowly, and most runs need none of it

    leading = max(shares, key=lambda name: shares[name])

    def plans(epsilon: float) -> dict[str, Plan]:
        lead = Plan(**fields[leading], epsilon=epsilon)
        made = {}
        for name, one in fields.items():
            wanted = _noise(lead) * math.sqrt(shares[leading] / shares[name])
            made[name] = lead if name == leading else _of_noise(wanted, one, start=epsilon)
        return made

    def above(epsilon: float) -> float:
        return tight_total(charges_of_all(plans(epsilon))).epsilon - total

    end = min((1.0 for one in fields.values() if one.get("calibration") == "classic"), default=math.inf)
    most, least = min(2 * total, end), total * _LEAST_SHARE
    if above(least) > 0:
        choices = math.fsum(
            basic_total(planned_charges(plan)).epsilon - plan.epsilon for plan in first.values()
        )
        raise InvalidPlan(
            f"the choices of {len(fields)} thresholds spend epsilon {choices:.4g} by addition, and nothing of the "
            f"total-epsilon {total:.4g} is left for the histograms",
            allowed="a smaller epsilon-select, or fewer questions",
            advice="leave --epsilon-select out, or raise --total-epsilon",
        )
    epsilon = most if above(most) <= 0 else brentq(above, least, most, xtol=CLOSE * total)
    while True:
        rounded = {
            name: Plan(**fields[name], epsilon=rounded_down(plan.epsilon))
            for name, plan in plans(epsilon).items()
        }
        if tight_total(charges_of_all(rounded)).epsilon <= total:
            return rounded
        epsilon *= 1 - CLOSE


def _noise(plan: Plan) -> float:
    """The standard error of the noise, for a threshold of 1."""
    return plan.releasing.one_way.unit_noise


def _of_noise(wanted: float, fields: Mapping[str, Any], *, start: float) -> Plan:
    """The plan with this noise: it falls as epsilon grows."""
    from scipy.optimize import brentq  # as above

    def above(log_epsilon: float) -> float:
        return math.log(_noise(Plan(**fields, epsilon=math.exp(log_epsilon))) / wanted)

    low, high = _bracket(above, math.log(start))
    return Plan(**fields, epsilon=math.exp(brentq(above, low, high, xtol=_FOLLOWING)))


def _bracket(above: Callable[[float], float], start: float) -> Sequence[float]:
    """Places to both sides of where a falling function is 0."""
    low = high = start
    while above(low) < 0:
        low -= 1.0
    while above(high) > 0:
        high += 1.0
    return low, high
