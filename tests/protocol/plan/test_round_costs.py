"""What a device counts of a plan is never below what a server that runs it charges, in any of the four numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedhist import Plan, Spending
from fedhist.testing import PLANS
from tests.support.api import SELECTORS, InvalidPlan, Round, choice_cost, planned_charges, round_cost

# Of noise in shares of devices: lost in the rounding of all sums.
_SLACK = 1e-40


def plans() -> list[tuple[str, Plan]]:
    """One of each kind, with each private selector that goes with it."""
    found = []
    classic = replace(PLANS["gaussian"], release="classic-gaussian")
    by_paper = replace(PLANS["open"], release="laplace-threshold-paper")
    for name, plan in (PLANS | {"classic": classic, "paper's bar": by_paper}).items():
        for selector in SELECTORS.with_installed():
            for epsilon in (0.05, 1.0, 8.0):
                try:
                    other = replace(plan, selector=selector, epsilon_select=epsilon)
                    charges = planned_charges(other)
                except InvalidPlan:
                    continue
                if all(charge.private for charge in charges):
                    found.append((f"{name}, {selector}, {epsilon}", other))
    return found


@pytest.mark.parametrize(("name", "plan"), plans(), ids=[name for name, _ in plans()])
def test_a_device_counts_at_least_what_the_server_charges(name: str, plan: Plan) -> None:
    charges = planned_charges(plan)
    for rounds in ((Round.SELECT,), (Round.DISCOVER, Round.RELEASE)):
        charged = Spending.of([charge for charge in charges if charge.round in rounds])
        counted = Spending.total(round_cost(plan, due, paid=True) for due in rounds)
        assert charged.failure <= counted.failure + _SLACK
        assert replace(charged, failure=0.0).within(counted)


def test_every_kind_of_selector_is_among_them() -> None:
    seen = {plan.selector for _, plan in plans()}
    assert seen >= set(SELECTORS.with_installed()) - {"fixed", "oracle", "median", "p90"}


def test_of_any_other_selector_only_two_numbers_are_known() -> None:
    plan = replace(PLANS["gaussian"], selector="fixed", threshold=2.0)
    known, other = choice_cost(PLANS["gaussian"]), choice_cost(plan)
    assert other == Spending.of_cost(other.cost)
    assert known.failure == 0 < other.failure
    assert known.rho < other.rho
