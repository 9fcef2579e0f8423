"""The table of a discovery under masks: how much room it has, the noisy test for room, and what both cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedhist import Plan
from tests.oracles import laplace_chances
from tests.support.api import (
    COUNTED,
    InvalidPlan,
    OpenNoise,
    Round,
    TableShape,
    basic_total,
    decoding_delta,
    fit_noise,
    is_tested,
    most_of_table,
    planned_charges,
    round_cost,
    table_notes,
    table_room,
    table_shape,
    terms_module,
    tight_total,
)
from tests.support.refusals import refused

relations = pytest.mark.parametrize("neighbours", COUNTED)


def plan_of(**settings: Any) -> Plan:
    defaults = {
        "users": 20_000,
        "domain": "open",
        "masking": "secagg",
        "participants": 10,
        "max_threshold": 40,
    }
    return Plan(**defaults | settings)


def hockey_stick(noise: OpenNoise, epsilon: float, shift: int) -> tuple[float, float]:
    """H at e^epsilon between D + Z and D + shift + Z, in both orders."""
    chances = laplace_chances(float(noise.scale), noise.bar)
    first = np.concatenate([chances, np.zeros(shift)])
    second = np.concatenate([np.zeros(shift), chances])
    return tuple(
        float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in ((first, second), (second, first))
    )


class TestTheTest:
    @relations
    @pytest.mark.parametrize("most", [1, 3, 20, 100])
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (2.0, 1e-6), (0.1, 1e-2)])
    def test_the_number_of_items_with_noise_is_private_and_no_more_than_that(
        self, monkeypatch, neighbours, most, epsilon, delta
    ):
        """Worst neighbours: N and N + D. The whole noisy number, of which passing or failing is a function."""
        monkeypatch.setattr(terms_module, "USER_ITEMS", most)
        noise = fit_noise(plan_of(epsilon_select=epsilon, delta_select=delta, neighbours=neighbours))
        worst = max(max(hockey_stick(noise, epsilon, shift)) for shift in range(1, most + 1))
        assert worst <= noise.delta * (1 + 1e-9)
        assert worst > 0.9 * noise.delta
        assert noise.delta <= delta

    @pytest.mark.parametrize(("users", "capacity", "tested"), [(100, 10_000, False), (100, 9_999, True)])
    def test_there_is_none_where_the_users_can_t_have_more_than_fit(self, users, capacity, tested):
        plan = plan_of(users=users, max_items=capacity)
        assert is_tested(plan) == tested
        assert (table_room(plan) > capacity) == tested
        names = [charge.name for charge in planned_charges(plan)]
        assert ("table-fit" in names) == tested and "table-decoding" in names


class TestCharges:
    @relations
    def test_the_test_and_decoding_are_charged(self, neighbours):
        plan = plan_of(neighbours=neighbours, delta_select=1e-5)
        _, fit, decoding, *_ = planned_charges(plan)
        assert (fit.name, decoding.name) == ("table-fit", "table-decoding")
        assert (fit.epsilon, fit.delta) == (plan.epsilon_select, fit_noise(plan).delta)
        assert fit.delta <= 1e-5
        assert decoding.epsilon == 0

    def test_decoding_costs_twice_the_bound(self):
        plan = plan_of()
        (decoding,) = (charge for charge in planned_charges(plan) if charge.name == "table-decoding")
        assert decoding.delta == decoding_delta(plan) == 2 * table_shape(plan).failure_bound < 2e-9

    def test_the_tight_total_takes_an_entry_without_an_epsilon(self):
        charges = planned_charges(plan_of())
        tight = tight_total(charges)
        assert 1 < tight.epsilon <= basic_total(charges).epsilon
        without = tight_total([charge for charge in charges if charge.name != "table-decoding"])
        assert without.epsilon == pytest.approx(tight.epsilon, rel=1e-3)

    def test_a_device_books_no_less_than_the_ledger_reserves(self):
        plan = plan_of()
        booked = round_cost(plan, Round.DISCOVER, paid=False)
        reserved = basic_total([charge for charge in planned_charges(plan) if charge.round == "discover"])
        assert booked.epsilon == pytest.approx(reserved.epsilon)
        assert reserved.delta <= booked.delta <= 1.002 * reserved.delta
        assert booked.epsilon == pytest.approx(plan.epsilon + plan.epsilon_select)

    def test_other_plans_pay_for_no_table(self):
        for plan in (
            Plan(users=100, domain="open", release="truncated-laplace"),
            Plan(users=100, items=3, masking="secagg", participants=5),
        ):
            assert (most_of_table(plan).epsilon, most_of_table(plan).delta) == (0, 0)
            assert not [charge for charge in planned_charges(plan) if charge.name.startswith("table-")]
            assert table_notes(plan) == []


class TestPlans:
    def test_without_a_delta_for_the_test_a_plan_is_refused(self):
        with refused(InvalidPlan, "no-delta-select", "2,000,000"):
            plan_of(delta_select=0.0)
        assert not is_tested(plan_of(users=50, delta_select=0.0))
        with refused(InvalidPlan, "no-delta-select"):  # no capacity is large enough
            plan_of(users=10**6, delta_select=0.0)

    def test_a_table_that_the_test_makes_too_long_is_refused_with_advice(self):
        with refused(InvalidPlan, "table-too-large"):
            plan_of(epsilon_select=0.0002)

    def test_a_table_that_needs_no_test_has_the_room_that_was_asked_for(self):
        roomy = plan_of(users=10, participants=3)
        assert table_shape(roomy) == TableShape(roomy.max_items, roomy.max_item_bytes)
