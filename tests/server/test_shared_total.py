"""Plans of several questions: together they cost no more than the total, and hardly less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import Plan, plan_for_total
from tests.support.api import InvalidPlan, basic_total, charges_of_all, plans_for_total, tight_total

USERS = {"users": 5_000}
PLACE, CATEGORY, HOUR = USERS | {"items": 500}, USERS | {"items": 20}, USERS | {"items": 4}
CLOSED: dict[str, dict[str, Any]] = {"place": PLACE, "category": CATEGORY, "hour": HOUR}
MASKED: dict[str, Any] = {"masking": "secagg", "participants": 20, "noise_from": "devices"}
OPEN = USERS | {"domain": "open"}
KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "closed": CLOSED,
    "replace-one": {name: one | {"neighbours": "replace-one"} for name, one in CLOSED.items()},
    "fixed": {name: one | {"selector": "fixed", "threshold": 9.0} for name, one in CLOSED.items()},
    "devices": {name: one | MASKED for name, one in CLOSED.items()},
    "one laplace": CLOSED | {"hour": HOUR | {"mechanism": "laplace"}},
    "two to find": {"place": OPEN, "category": OPEN},
    "one to find": {"place": OPEN, "hour": HOUR},
}


def noise_of(plan: Plan) -> float:
    return plan.releasing.one_way.unit_noise


@pytest.mark.parametrize("kind", KINDS)
def test_all_questions_together_meet_the_total_and_share_the_precision_by_weight(kind: str) -> None:
    questions = KINDS[kind]
    first, *others = questions
    plans = plans_for_total(questions, total_epsilon=1.0, total_delta=1e-6, weights={first: 4.0})
    cost = tight_total(charges_of_all(plans))
    assert 0.99 < cost.epsilon <= 1.0
    assert 0.99e-6 < cost.delta <= 1e-6
    for name in others:
        assert noise_of(plans[name]) == pytest.approx(2 * noise_of(plans[first]), rel=1e-4)


def test_tight_composition_buys_less_noise_than_a_share_of_the_epsilon_for_each() -> None:
    together = plans_for_total(CLOSED, total_epsilon=1.0, total_delta=1e-6)
    alone = plan_for_total(**PLACE, total_epsilon=1 / 3, total_delta=1e-6 / 3)
    assert noise_of(together["place"]) < 0.7 * noise_of(alone)
    assert basic_total(charges_of_all(together)).epsilon > 1.5


def test_two_discoveries_compose_better_than_by_addition() -> None:
    plans = plans_for_total(KINDS["two to find"], total_epsilon=1.0, total_delta=1e-6)
    assert basic_total(charges_of_all(plans)).epsilon > 1.3
    assert {plan.mechanism for plan in plans.values()} == {"gaussian"}


def test_a_single_question_has_the_plan_that_it_has_alone() -> None:
    [plan] = plans_for_total({"place": PLACE}, total_epsilon=1.0, total_delta=1e-6).values()
    assert plan == plan_for_total(**PLACE, total_epsilon=1.0, total_delta=1e-6)


def test_without_delta_all_questions_have_laplace_noise_and_epsilons_add_up() -> None:
    plans = plans_for_total(CLOSED, total_epsilon=1.0, total_delta=0)
    assert {plan.mechanism for plan in plans.values()} == {"laplace"}
    assert basic_total(charges_of_all(plans)).epsilon == pytest.approx(1.0, rel=1e-4)
    assert basic_total(charges_of_all(plans)).delta == 0


def test_a_user_moves_all_questions_at_once_by_no_more_than_their_plans_say() -> None:
    """The worst neighbours: one user at the threshold of every question, so that all Gaussian losses add up.

    The loss of the sums side by side is that of one Gaussian whose squared shift is the sum of all. It has the delta
    that the total says, at the epsilon that the total says.
    """
    from scipy.stats import norm

    fixed = KINDS["fixed"]
    plans = plans_for_total(fixed, total_epsilon=1.0, total_delta=1e-6, weights={"place": 2.0})
    shifts = [1 / noise_of(plan) for plan in plans.values()]
    spread, epsilon = float(np.sqrt(np.sum(np.square(shifts)))), tight_total(charges_of_all(plans)).epsilon
    delta = norm.cdf(spread / 2 - epsilon / spread) - np.exp(epsilon) * norm.cdf(
        -spread / 2 - epsilon / spread
    )
    assert delta <= 1e-6
    assert delta > 0.95e-6


@pytest.mark.parametrize(
    ("questions", "settings", "words"),
    [
        ({}, {}, "no question"),
        (CLOSED, {"weights": {"place": 0}}, "the weight of place is 0"),
        (CLOSED, {"weights": {"place": -1.0}}, "the weight of place is -1.0"),
        (CLOSED, {"weights": {"place": float("nan")}}, "the weight of place is nan"),
        (CLOSED, {"weights": {"place": "2"}}, "the weight of place is '2'"),
        (CLOSED, {"weights": {"shop": 1.0}}, "'shop', which is no question"),
        (CLOSED, {"weights": {"place": 1e6}}, "weights of which the largest"),
        (CLOSED | {"hour": HOUR | {"epsilon": 1.0}}, {}, "hour has epsilon of its own"),
        (CLOSED | {"hour": HOUR | {"users": 9}}, {}, "users is 5000 for place and 9 for hour"),
        (CLOSED | {"hour": HOUR | {"neighbours": "replace-one"}}, {}, "neighbours is"),
        (CLOSED | {"hour": HOUR | {"selector": "oracle"}}, {}, "not private"),
        (CLOSED | {"hour": HOUR | {"epsilon_select": 2.0}}, {}, "nothing of the total-epsilon 1 is left"),
        (CLOSED, {"total_epsilon": 0}, "total-epsilon"),
        (CLOSED, {"total_delta": 1.0}, "total-delta"),
    ],
)
def test_what_has_no_plans_is_refused_in_words(
    questions: dict[str, dict[str, Any]], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidPlan, match=words.replace("(", r"\(")):
        plans_for_total(questions, **{"total_epsilon": 1.0, "total_delta": 1e-6} | settings)


def test_a_plan_with_a_little_more_epsilon_would_pass_the_total() -> None:
    plans = plans_for_total(CLOSED, total_epsilon=1.0, total_delta=1e-6)
    more = {name: replace(plan, epsilon=plan.epsilon * 1.001) for name, plan in plans.items()}
    assert tight_total(charges_of_all(more)).epsilon > 1.0
