"""What the releases of a campaign cost together: never more than one Gaussian release of the campaign's multiplier."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Charge, Cost, Limit, Plan, Spending
from tests.support.api import (
    GaussianLoss,
    InvalidPlan,
    basic_total,
    campaign_spending,
    epsilon_at,
    gaussian_delta,
    gaussian_rho,
    noise_multiplier,
    planned_charges,
    tight_total,
)

USUAL: dict[str, Any] = {"users": 100, "items": 5, "window": "2026-W01", "campaign": "autumn", "visits": 3}


def plan_of(**settings: Any) -> Plan:
    return Plan(**(USUAL | {"selector": "fixed", "threshold": 10} | settings))


def release_of(**settings: Any) -> Charge:
    (charge,) = planned_charges(plan_of(**settings))
    return charge


OTHER = Charge("release", "gauss", {}, 8.0, "l2", "zero-out", 1.0, 1e-6, GaussianLoss(4.2243))


@pytest.mark.parametrize("visits", [1, 2, 3, 30, 1000])
def test_a_window_has_the_noise_of_its_visits_and_is_charged_for_itself(visits: int) -> None:
    plan, charge = plan_of(visits=visits), release_of(visits=visits)
    z = noise_multiplier(1.0, 1e-6)
    assert math.isclose(plan.multiplier, z * math.sqrt(visits), rel_tol=1e-12)
    assert plan.multiplier >= z * math.sqrt(visits)
    # The charge is true of this noise, and one of less noise would not be.
    assert gaussian_delta(plan.multiplier, charge.epsilon) <= charge.delta * (1 + 1e-9)
    assert visits > 100 or gaussian_delta(0.99 * plan.multiplier, charge.epsilon) > charge.delta


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.05, 8))
def test_all_releases_cost_the_smaller_of_their_sum_and_one_gaussian(
    visits: int, releases: int, epsilon: float
) -> None:
    charge = release_of(visits=visits, epsilon=epsilon)
    entries, z = [charge] * releases, noise_multiplier(epsilon, 1e-6)
    spent = Spending.of(entries)
    assert (spent.epsilon, spent.delta, spent.failure) == (epsilon, 1e-6, 0.0)
    assert math.isclose(spent.rho, min(releases / visits, 1) * gaussian_rho(z))
    basic, tight = basic_total(entries), tight_total(entries)
    sums = Cost(releases * charge.epsilon, releases * charge.delta)
    assert basic == Cost(epsilon, 1e-6) or (
        releases <= visits and math.isclose(basic.epsilon, sums.epsilon) and basic.epsilon <= epsilon
    )
    assert basic.delta <= 1e-6 * (1 + 1e-12)
    assert tight.epsilon <= min(epsilon, sums.epsilon) * (1 + 1e-9)
    if releases >= visits:
        assert math.isclose(tight.epsilon, epsilon, rel_tol=1e-6) and tight.delta == 1e-6
    else:
        several = z * math.sqrt(visits / releases)
        assert gaussian_delta(several, tight.epsilon) <= tight.delta * (1 + 1e-6)


def test_what_comes_beside_a_campaign_adds_up_as_ever() -> None:
    entries = [release_of(), OTHER, release_of(), release_of(), release_of()]
    spent = Spending.of(entries)
    assert spent.epsilon == 2.0 and spent.delta == 2e-6
    assert math.isclose(spent.rho, gaussian_rho(noise_multiplier(1.0, 1e-6)) + gaussian_rho(4.2243))
    one = Charge(
        "release", "gauss", {}, 8.0, "l2", "zero-out", 1.0, 1e-6, GaussianLoss(noise_multiplier(1.0, 1e-6))
    )
    assert math.isclose(epsilon_at(entries, 1e-5), epsilon_at([one, OTHER], 1e-5), rel_tol=1e-6)
    assert Spending.total([Spending.of(entries[:2]), Spending.of(entries[2:])]) == spent


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([("a", 1), ("a", 3), ("b", 30), (None, 0)]), min_size=1, max_size=40))
def test_a_limit_never_claims_less_than_tight_composition(runs: list[tuple[str | None, int]]) -> None:
    entries = [OTHER if name is None else release_of(campaign=name, visits=visits) for name, visits in runs]
    for limit in (Limit(10.0, 1e-5), Limit(10.0, 1e-4)):
        assert limit.claimed(Spending.of(entries)) >= epsilon_at(entries, limit.delta) * (1 - 1e-9)


@pytest.mark.parametrize(
    "other",
    [{"campaign": "winter"}, {"visits": 4}, {"epsilon": 1.5}, {"delta": 1e-7}, {"calibration": "classic"}],
)
def test_other_terms_are_another_campaign(other: dict[str, Any]) -> None:
    entries = [release_of(), release_of(**other)] * 40
    assert math.isclose(Spending.of(entries).epsilon, 1.0 + plan_of(**other).epsilon)
    assert plan_of(neighbours="replace-one").of_campaign != plan_of().of_campaign


@pytest.mark.parametrize(
    "same",
    [
        {"threshold": 20},
        {"items": 9},
        {"window": "2026-W02"},
        {"users": 7},
        {"masking": "secagg", "participants": 50},
    ],
)
def test_windows_thresholds_and_items_may_change_within_one(same: dict[str, Any]) -> None:
    assert plan_of(**same).of_campaign == plan_of().of_campaign


def test_a_charge_is_read_as_it_was_written() -> None:
    charge = release_of()
    assert Charge.from_json(json.loads(json.dumps(charge.to_json()))) == charge


@pytest.mark.parametrize(
    "wrong",
    [
        {"visits": None},
        {"campaign": None},
        {"campaign": ""},
        {"campaign": "a\nb"},
        {"campaign": "x" * 101},
        {"visits": 0},
        {"visits": 2**21},
        {"window": None},
        {"items": None, "domain": "open", "selector": None, "threshold": None},
        {"mechanism": "laplace"},
        {"mechanism": "auto", "selector": None, "threshold": None},
        {"debias": "poisson", "selector": None, "threshold": None},
        {"masking": "secagg", "participants": 50, "noise_from": "devices"},
    ],
    ids=str,
)
def test_a_campaign_of_anything_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlan, match=r"campaign|visits"):
        plan_of(**wrong)


def test_a_total_is_refused_for_a_campaign() -> None:
    from tests.support.api import planned

    with pytest.raises(InvalidPlan, match="total-epsilon with a campaign"):
        planned(total_epsilon=1.0, **USUAL)


def test_a_multiplier_from_another_machine_is_of_the_same_campaign() -> None:
    """Machines may differ in the last digits of a search for z: a ledger that moves keeps its campaigns."""
    here = plan_of().of_campaign
    assert here is not None
    there = replace(here, multiplier=here.multiplier * (1 + 1e-13))
    for one, other in ((here, there), (here.of_two_bounds(), there.of_two_bounds())):
        both = campaign_spending(one) + campaign_spending(other)
        assert (both.epsilon, both.delta) == (one.epsilon, one.delta)
        assert [count for _, count in both.campaigns] == [2]
    assert here != plan_of(epsilon=2.0).of_campaign
