"""A run in an accountant of Flower's: never less than it costs, and refused where it does not fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)

from fedhist import BudgetExceeded, Charge, InvalidInput, Ledger, Plan
from tests.support.api import (
    AccountantJournal,
    ApproximateLoss,
    GaussianLoss,
    PureLoss,
    SampledGaussianLoss,
    bounded_range_as_gaussian,
    composed_into,
    epsilon_at,
    planned_charges,
    pure_as_gaussian,
)

CLIENTS, DELTA = 100, 1e-6
PLAN = Plan(users=CLIENTS, items=4, epsilon=1.0, delta=1e-6)
OPEN = Plan(users=CLIENTS, domain="open", max_threshold=50)


def accountant_of(max_epsilon: float | None = None, *, replaced: bool = False) -> Any:
    relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    sampling = SamplingMethod.WITHOUT_REPLACEMENT if replaced else SamplingMethod.NO_AMPLIFICATION
    return RdpAccountant(PrivacyConfig(DELTA, CLIENTS, relation, sampling, max_epsilon))


def events_of(accountant: Any) -> list[float]:
    return [entry["event"]["noise_multiplier"] for entry in accountant.state_dict()["compositions"]]


def composed(plan: Plan, *, delta: float = 0.0, replaced: bool = False) -> tuple[Any, AccountantJournal]:
    accountant = accountant_of(replaced=replaced)
    journal = composed_into(accountant, plan, delta=delta)
    ledger = Ledger(journal=journal)
    for charge in planned_charges(plan):
        ledger.charge(charge)
    return accountant, journal


class TestEvents:
    def test_a_gaussian_release_is_its_event_and_a_selection_its_bound(self) -> None:
        accountant, journal = composed(PLAN)
        assert events_of(accountant) == [
            pytest.approx(bounded_range_as_gaussian(0.1), rel=1e-9),
            pytest.approx(PLAN.multiplier, rel=1e-9),
        ]
        assert journal.delta == 0

    def test_under_replacement_the_multiplier_is_of_that_sensitivity(self) -> None:
        plan = replace(PLAN, neighbours="replace-one")
        accountant, _ = composed(plan, replaced=True)
        assert events_of(accountant)[1] == pytest.approx(plan.multiplier, rel=1e-9)

    def test_laplace_noise_is_the_gaussian_that_dominates_it(self) -> None:
        accountant, _ = composed(replace(PLAN, mechanism="laplace"))
        assert events_of(accountant)[1] == pytest.approx(pure_as_gaussian(1.0), rel=1e-9)

    @pytest.mark.parametrize(
        "plan", [PLAN, replace(PLAN, mechanism="laplace"), replace(PLAN, mechanism="auto"), OPEN]
    )
    def test_the_accountant_never_says_less_than_the_ledger(self, plan: Plan) -> None:
        accountant, journal = composed(plan, delta=1e-6)
        for delta in (1e-7, 1e-6, 1e-4):
            ours = epsilon_at(planned_charges(plan), delta + journal.delta)
            assert ours <= accountant.get_epsilon(delta)

    def test_what_may_fail_is_handed_back_as_delta(self) -> None:
        _, journal = composed(OPEN, delta=1e-6)
        assert journal.delta == pytest.approx(1e-6)
        with pytest.raises(BudgetExceeded, match="no Gaussian event has"):
            composed_into(accountant_of(), OPEN, delta=1e-7)

    def test_noise_from_devices_costs_its_slack_too(self) -> None:
        accountant = accountant_of()
        charge = next(c for c in planned_charges(PLAN) if isinstance(c.loss, GaussianLoss))
        AccountantJournal(accountant, delta=0.0)(replace(charge, parameters={"slack": 0.5}))
        expected = 1 / math.sqrt(PLAN.multiplier**-2 + pure_as_gaussian(0.5) ** -2)
        assert events_of(accountant) == [pytest.approx(expected, rel=1e-9)]

    @pytest.mark.parametrize(
        ("loss", "epsilon", "delta", "multiplier"),
        [
            (SampledGaussianLoss(3.0, 0.1, 9, "zero-out"), 1.0, 1e-6, 1.0),
            (ApproximateLoss(), 0.5, 1e-7, pure_as_gaussian(0.5)),
            (PureLoss(), 0.0, 0.0, None),
        ],
    )
    def test_other_charges(self, loss: Any, epsilon: float, delta: float, multiplier: float | None) -> None:
        accountant = accountant_of()
        journal = AccountantJournal(accountant, delta=1e-6)
        journal(Charge("train", "test", {}, 1.0, "l2", "zero-out", epsilon, delta, loss))
        expected = [] if multiplier is None else [pytest.approx(multiplier, rel=1e-9)]
        assert events_of(accountant) == expected
        assert journal.delta == (delta if isinstance(loss, ApproximateLoss) else 0)


class TestRefusals:
    def test_a_plan_that_would_pass_the_limit_begins_not_at_all(self) -> None:
        accountant = accountant_of(1.5)
        accountant.compose(GaussianPrivacyEvent(4.0, CLIENTS, CLIENTS))
        before = accountant.state_dict()
        with pytest.raises(BudgetExceeded, match=r"max_epsilon 1\.5"):
            composed_into(accountant, PLAN)
        assert accountant.state_dict() == before
        composed_into(accountant, replace(PLAN, epsilon=0.3, epsilon_select=0.05))

    def test_a_charge_beside_the_plan_is_refused_before_its_noise(self) -> None:
        accountant = accountant_of(1.3)
        ledger = Ledger(journal=composed_into(accountant, PLAN))
        for charge in planned_charges(PLAN):
            ledger.charge(charge)
        with pytest.raises(BudgetExceeded):
            ledger.charge(charge)
        assert len(ledger.entries) == accountant.num_releases == 2

    def test_more_users_than_clients_are_another_unit(self) -> None:
        plan = replace(PLAN, users=CLIENTS + 1)
        with pytest.raises(InvalidInput, match=r"101 users .* 100 clients.*accounted"):
            composed_into(accountant_of(), plan)
        composed_into(accountant_of(replaced=True), replace(plan, neighbours="replace-one"))

    def test_another_relation(self) -> None:
        with pytest.raises(InvalidInput, match="one relation"):
            composed_into(accountant_of(), replace(PLAN, neighbours="replace-one"))

    def test_a_step_without_a_guarantee(self) -> None:
        charge = Charge(
            "select", "oracle", {}, math.inf, "l2", "zero-out", math.inf, 0.0, PureLoss(), private=False
        )
        with pytest.raises(InvalidInput, match="not private"):
            AccountantJournal(accountant_of(), delta=0.0)(charge)

    @pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
    def test_a_delta_out_of_range(self, delta: float) -> None:
        with pytest.raises(InvalidInput, match="delta"):
            composed_into(accountant_of(), PLAN, delta=delta)
