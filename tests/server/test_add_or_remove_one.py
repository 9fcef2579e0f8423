"""One user in a table or not, under a number of users that was given: exact chances, and sums at worst."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import Plan, Population, SeededSource
from fedhist.client import Policy
from tests.asking import first_request, release_at, select_request
from tests.builders import population_of
from tests.support.api import (
    MAX_USERS,
    SELECTORS,
    BoundedRangeLoss,
    Envelope,
    Floats,
    GivenUsers,
    InProcess,
    Integers,
    InvalidPlan,
    Refusal,
    Refused,
    Request,
    ScoringSelector,
    Total,
    check,
    check_runnable,
    fitting,
    minimiser,
    minimiser_sensitivity,
    norm_pairs,
    selector_for,
)
from tests.support.api import PolicyMemory as Memory
from tests.support.refusals import refused

GIVEN, ITEMS = 12, 3
COMMON: dict[str, Any] = {
    "users": GIVEN, "neighbours": "add-or-remove-one", "epsilon": 1.0, "epsilon_select": 0.7, "delta_select": 1e-3,
    "min_threshold": 1.0, "max_threshold": 40.0, "candidates": 8, "delta": 0.05,
}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {
    "gaussian": {"items": ITEMS, "mechanism": "gaussian"},
    "laplace": {"items": ITEMS, "mechanism": "laplace"},
    "auto": {"items": ITEMS, "mechanism": "auto"},
    "single items": {"items": ITEMS, "debias": "poisson", "mechanism": "laplace"},
    "open": {"domain": "open", "release": "truncated-laplace"},
}
PLANS = {
    f"{selector}, {mode}": plan
    for mode, settings in MODES.items()
    for selector in SELECTORS.with_installed()
    if selector != "fixed"
    for plan in [Plan(**COMMON, **settings, selector=selector)]
    if selector in fitting(plan) and selector_for(plan).private
}
SIZES = (1, GIVEN, GIVEN + 1, 3 * GIVEN)
"""Users of the larger of two neighbouring tables."""


def tables(size: int) -> list[tuple[Integers, Integers]]:
    """Pairs of a table of this many users and the same without one: small and huge users, the one who goes the last."""
    generator, pairs = np.random.default_rng(size), []
    for others in (
        np.array([[40, 0, 0]]),
        np.array([[1, 1, 1], [0, 2, 0], [0, 90, 9]]),
        np.array([[5, 0, 0]]),
    ):
        rows = generator.choice(others, size=size)
        pairs += [
            (np.vstack([rows[:-1], user]), rows[:-1])
            for user in ([10**6, 0, 0], [3, 3, 3], [0, 0, 1], [0, 0, 0], [10**5, 10**5, 10**5], [41, 0, 0])
        ]
    return pairs


def summed(request: Request, rows: Integers, *, seed: int = 1) -> Total:
    """What the engine hands to the server of a table with these rows."""
    users: Population = population_of(rows.reshape(-1, ITEMS), labels=["a", "b", "c"])
    return InProcess(GivenUsers(users, GIVEN), SeededSource(seed), counts=False).total(request)


def chances(plan: Plan, rows: Integers) -> list[Floats]:
    """Of each candidate, for each choice that is drawn."""
    request, selector = select_request(plan), selector_for(plan)
    assert isinstance(selector, ScoringSelector)
    statistic = request.measurement.read(summed(request, rows))
    drawn = selector.item_choices(plan, statistic) if plan.per_item else [selector.choice(plan, statistic)]  # type: ignore[attr-defined]
    return [choice.probabilities() for choice in drawn]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name", [name for name, plan in PLANS.items() if isinstance(selector_for(plan), ScoringSelector)]
)
def test_a_user_changes_the_odds_of_a_choice_by_no_more_than_is_charged(name: str, size: int) -> None:
    plan, largest = PLANS[name], 0.0
    charges = selector_for(plan).charges(plan)
    assert math.isclose(math.fsum(charge.epsilon for charge in charges), plan.epsilon_select)
    assert all(isinstance(charge.loss, BoundedRangeLoss) for charge in charges)
    for with_user, without in tables(size):
        pairs = zip(chances(plan, with_user), chances(plan, without), strict=True)
        losses = [np.log(one) - np.log(other) for one, other in pairs]
        largest = max(largest, math.fsum(np.ptp(loss) for loss in losses))
        assert max(np.abs(loss).max() for loss in losses) <= plan.epsilon_select
    assert largest <= plan.epsilon_select * (1 + 1e-9)
    # Nobody can be told from nobody by scores of what is lost: one user alone, under every bar, loses all.
    assert largest > 0.02 * plan.epsilon_select or (size, plan.selector) == (1, "exponential-sharp")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name", [name for name, plan in PLANS.items() if not isinstance(selector_for(plan), ScoringSelector)]
)
def test_a_user_moves_what_is_noised_by_no_more_than_its_sensitivity(name: str, size: int) -> None:
    plan, request = PLANS[name], select_request(PLANS[name])
    assert plan.selector in ("dpsgd", "m-quantile", "output-perturbation")
    for rows in tables(size):
        one, other = (request.measurement.read(summed(request, each)) for each in rows)
        assert one.users == other.users == GIVEN
        for part, claimed in request.measurement.sensitivities.items():
            assert np.abs(getattr(one, part) - getattr(other, part)).max() <= claimed.value
        places = [minimiser(plan, each.weights / 2**10) * 2**plan.grid_bits for each in (one, other)]
        assert abs(round(places[0]) - round(places[1])) <= minimiser_sensitivity(plan).value


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["gaussian", "laplace", "single items"])
def test_a_user_moves_the_sum_by_a_bound_whoever_else_is_there(mode: str, size: int) -> None:
    plan = Plan(**COMMON, **MODES[mode], selector="fixed", threshold=4.0)
    bounds = np.full(ITEMS, plan.fixed_threshold.steps) if plan.per_item else None
    request = release_at(plan, plan.fixed_threshold, bounds)
    reached = 0.0
    for number, (with_user, without) in enumerate(tables(size)):
        # The one who goes is the last, so that all others round as before.
        one, other = (summed(request, rows, seed=number).values for rows in (with_user, without))
        moved = np.linalg.norm(one - other, ord=2 if plan.mechanism == "gaussian" else 1)
        most = ITEMS * 4.0 if plan.per_item else plan.release_sensitivity(plan.fixed_threshold.steps).value
        scale = 2.0**plan.grid_bits if plan.per_item else 1.0
        reached = max(reached, moved / (most * scale))
    assert 0.57 < reached <= 1


@pytest.mark.parametrize("size", SIZES)
def test_a_user_moves_the_weights_of_a_discovery_by_one(size: int) -> None:
    plan = Plan(**COMMON, domain="open")
    request = first_request(plan)
    for with_user, without in tables(size):
        one, other = (summed(request, rows) for rows in (with_user, without))
        found = [
            dict(zip(total.keyed.keys.tolist(), total.keyed.values[:, 0].tolist(), strict=True))
            for total in (one, other)
            if total.keyed is not None
        ]
        moves = [found[0].get(key, 0) - found[1].get(key, 0) for key in found[0] | found[1]]
        assert np.linalg.norm(moves) <= plan.discovery.sensitivity.value
        assert one.users == other.users == GIVEN


def test_every_private_selector_is_here() -> None:
    private = {
        name for name, selector in SELECTORS.with_installed().items() if selector.private and selector.reads
    }
    assert {plan.selector for plan in PLANS.values()} == private


def test_sums_have_room_for_all_users_that_there_may_be() -> None:
    few = Plan(**COMMON, items=5_000, sparsity=5_000, mechanism="auto")
    many = replace(few, users=MAX_USERS, neighbours="zero-out")
    counted = replace(few, neighbours="zero-out")
    assert norm_pairs(few).fine_bits == norm_pairs(many).fine_bits < norm_pairs(counted).fine_bits
    wide: dict[str, Any] = COMMON | MODES["open"] | {"max_threshold": 2.0**15}
    assert Plan(**wide | {"neighbours": "zero-out"}).most_users == GIVEN
    with refused(InvalidPlan, "sum-too-large", "2,147,483,648"):
        Plan(**wide)


@pytest.mark.parametrize(
    "setting",
    [
        {"masking": "secagg", "participants": 10},
        {"minimum_cohort": 2},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_where_users_are_counted_their_number_is_not_hidden(setting: dict[str, Any]) -> None:
    with refused(InvalidPlan, "shows-users"):
        Plan(**COMMON, **MODES["gaussian"] | setting)
    Plan(**COMMON | {"neighbours": "zero-out"}, **MODES["gaussian"] | setting)


def test_a_deployment_refuses_to_hide_the_number_and_so_does_a_node() -> None:
    plan = Plan(**COMMON | {"delta": 1e-7, "delta_select": 1e-7}, **MODES["gaussian"])
    check_runnable(plan, simulated=True)
    with refused(InvalidPlan, "shows-users"):
        check_runnable(plan, simulated=False)
    with refused(Refused, Refusal.TELLS_USERS.value):
        check(Policy(), Memory(), Envelope("0" * 32, select_request(plan)))
