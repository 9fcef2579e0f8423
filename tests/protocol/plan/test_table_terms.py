"""The table of round 2 under masks: how much room it has, the noisy test for room, and what both cost."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import Plan
from tests.oracles import laplace_chances
from tests.support.api import (
    COUNTED,
    TABLE_TRUST,
    InvalidPlan,
    OpenNoise,
    Round,
    TableShape,
    basic_total,
    decoding_delta,
    fit_delta,
    fit_noise,
    is_tested,
    most_of_table,
    planned_charges,
    round_cost,
    rule_for,
    table_notes,
    table_room,
    table_shape,
    tight_total,
)
from tests.support.refusals import refused

relations = pytest.mark.parametrize("neighbours", COUNTED)


def plan_of(**settings: Any) -> Plan:
    defaults = {
        "users": 20_000,
        "domain": "open",
        "release": "truncated-laplace",
        "masking": "secagg",
        "participants": 10,
        "max_threshold": 40,
    }
    return Plan(**defaults | settings)


def fixed(threshold: int, **settings: Any) -> Plan:
    return plan_of(selector="fixed", threshold=threshold, **settings)


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
    @pytest.mark.parametrize("threshold", [1, 3, 20])
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (2.0, 1e-6), (0.1, 1e-2)])
    def test_the_number_of_items_with_noise_is_private_and_no_more_than_that(
        self, neighbours, threshold, epsilon, delta
    ):
        """Worst neighbours: D and D + C. The whole noisy number, of which passing or failing is a function."""
        plan = fixed(threshold, epsilon_select=epsilon, delta_select=delta, neighbours=neighbours)
        noise = fit_noise(plan, threshold)
        worst = max(max(hockey_stick(noise, epsilon, shift)) for shift in range(1, threshold + 1))
        assert worst <= noise.delta * (1 + 1e-9)
        assert worst > 0.9 * noise.delta
        assert noise.delta <= delta

    @pytest.mark.parametrize(("users", "capacity", "tested"), [(100, 4_000, False), (100, 3_999, True)])
    def test_there_is_none_where_the_users_can_t_have_more_than_fit(self, users, capacity, tested):
        plan = plan_of(users=users, table_capacity=capacity)
        assert is_tested(plan) == tested
        assert (table_room(plan, 40) > capacity) == tested
        names = [charge.name for charge in planned_charges(plan)]
        assert ("table-fit" in names) == tested and names[-1] == "table-decoding"

    @pytest.mark.parametrize(
        ("threshold", "room"), [(5, 1_088), (20, 4_348), (100, 21_740), (1_500, 326_106)]
    )
    def test_the_room_at_the_default_budget(self, threshold, room):
        plan = fixed(threshold, max_threshold=1_500)
        assert table_room(plan, threshold) - plan.table_capacity == room


class TestCharges:
    @relations
    def test_what_is_charged_is_what_was_planned_or_less(self, neighbours):
        plan = plan_of(neighbours=neighbours)
        charges = {}
        for threshold in (None, plan.at_steps(1), plan.at_steps(40)):
            release, fit, decoding = rule_for(plan).charges(plan, threshold)
            assert (fit.name, decoding.name) == ("table-fit", "table-decoding")
            assert fit.epsilon == plan.epsilon_select and decoding.epsilon == 0
            charges[threshold] = [charge.cost for charge in (release, fit, decoding)]
        planned, low, high = charges.values()
        assert low == high
        assert all(p.epsilon == c.epsilon and p.delta >= c.delta for p, c in zip(planned, low, strict=True))
        assert planned_charges(plan)[1:] == rule_for(plan).charges(plan, None)

    def test_decoding_costs_twice_the_largest_bound_over_all_thresholds(self):
        plan = plan_of(max_threshold=30)
        bounds = [table_shape(plan, int(steps)).failure_bound for steps in plan.candidate_steps]
        assert len(set(bounds)) > 5
        assert decoding_delta(plan) == 2 * max(bounds) < 2e-9
        assert rule_for(plan).charges(plan, plan.at_steps(2))[2].delta == decoding_delta(plan)

    def test_the_tight_total_takes_an_entry_without_an_epsilon(self):
        charges = planned_charges(plan_of())
        basic, tight = basic_total(charges), tight_total(charges)
        assert basic.epsilon == pytest.approx(1.2)
        assert tight.delta == basic.delta == pytest.approx(2e-6 + charges[-1].delta)
        assert 1 < tight.epsilon <= basic.epsilon
        without = tight_total(charges[:-1])
        assert without.epsilon == pytest.approx(tight.epsilon, rel=1e-3)

    def test_the_exact_delta_of_the_test_is_charged(self):
        plan = plan_of(delta_select=1e-5)
        largest = max(fit_noise(plan, int(steps)).delta for steps in plan.candidate_steps)
        assert fit_delta(plan) == largest <= 1e-5
        assert rule_for(plan).charges(plan, plan.at_steps(7))[1].delta == largest

    def test_a_device_books_no_less_than_the_ledger_reserves(self):
        plan = plan_of()
        booked, reserved = (
            round_cost(plan, Round.RELEASE, paid=False),
            basic_total(rule_for(plan).charges(plan, None)),
        )
        assert booked.epsilon == pytest.approx(reserved.epsilon)
        assert reserved.delta <= booked.delta <= reserved.delta + 2e-9
        assert booked.epsilon == pytest.approx(plan.epsilon + plan.epsilon_select)

    def test_other_plans_pay_for_no_table(self):
        for plan in (
            Plan(users=100, domain="open", release="truncated-laplace"),
            Plan(users=100, items=3, masking="secagg", participants=5),
        ):
            assert (most_of_table(plan).epsilon, most_of_table(plan).delta) == (0, 0)
            assert len(rule_for(plan).charges(plan, None)) == 1
            assert table_notes(plan) == []


class TestPlans:
    def test_without_a_delta_for_the_test_a_plan_is_refused(self):
        with refused(InvalidPlan, "no-delta-select", "800,000"):
            plan_of(delta_select=0.0)
        assert not is_tested(plan_of(users=50, delta_select=0.0))
        with refused(InvalidPlan, "no-delta-select"):  # no capacity is large enough
            plan_of(users=10**6, delta_select=0.0)

    def test_a_table_that_the_test_makes_too_long_is_refused_with_advice(self):
        with refused(InvalidPlan, "table-too-large"):
            plan_of(max_threshold=1_500, epsilon_select=0.005)

    def test_a_table_that_becomes_much_longer_is_noted_before_it_costs_anything(self):
        short, long = table_notes(plan_of(max_threshold=5)), table_notes(plan_of(max_threshold=1_500))
        assert short == [TABLE_TRUST]
        assert long[0] == TABLE_TRUST
        assert "times as long" in long[1] and "--max-threshold" in long[1]

    @pytest.mark.parametrize("page", ["open-domain.md", "privacy-not-protected.md"])
    def test_the_documents_say_what_a_table_does_not_withstand_in_the_same_words(self, page):
        text = " ".join((Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8").split())
        text = text.replace(
            "[whatever the other participants hold](privacy-masking.md#tables)",
            "whatever the other participants hold",
        )
        assert TABLE_TRUST[1:] in text

    def test_the_table_is_made_for_the_threshold_that_was_chosen(self):
        plan = plan_of()
        assert table_shape(plan, 1).length < table_shape(plan, 40).length
        roomy = dataclasses.replace(plan, users=10, participants=3)
        assert table_shape(roomy, 40) == TableShape(plan.table_capacity, plan.label_bytes)
