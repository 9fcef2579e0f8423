"""A plan for a total: its rounds cost no more than that, and hardly less."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from fedhist import HeavyTailedPopulation, Plan, plan_for_total, simulate
from tests.support.api import (
    InvalidPlan,
    basic_total,
    default_choice,
    planned,
    planned_charges,
    tight_total,
    total_words,
)
from tests.support.refusals import refused

SIZES: dict[str, Any] = {"users": 5_000, "items": 100}
MASKED: dict[str, Any] = {"masking": "secagg", "participants": 20}
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": SIZES,
    "replace-one": SIZES | {"neighbours": "replace-one"},
    "laplace": SIZES | {"mechanism": "laplace"},
    "either": SIZES | {"mechanism": "auto"},
    "fixed": SIZES | {"selector": "fixed", "threshold": 9.0},
    "two gaussians": SIZES | {"selector": "dpsgd"},
    "debiased": SIZES | {"items": 5, "debias": "poisson"},
    "devices": SIZES | MASKED | {"noise_from": "devices"},
    "devices, laplace": SIZES | MASKED | {"noise_from": "devices", "mechanism": "laplace"},
    "discovered": {"users": 5_000, "domain": "open"},
    "discovered, laplace": {"users": 5_000, "domain": "open", "mechanism": "laplace"},
    "discovered, masked": {"users": 5_000, "domain": "open", "max_items": 500} | MASKED,
    "open": {"users": 5_000, "domain": "open", "release": "truncated-laplace"},
}


def worst_delta(epsilon: float, multiplier: float, choice: float) -> float:
    """delta of an exponential mechanism and then Gaussian noise, the largest over positions t of its range.

    Both losses of the choice are at the ends of [t - choice, t]; the Gaussian's closed form needs no grid.
    """

    def gaussian(at: float) -> float:
        first = stats.norm.cdf(0.5 / multiplier - at * multiplier)
        return float(first - math.exp(at) * stats.norm.cdf(-0.5 / multiplier - at * multiplier))

    deltas = []
    for high in np.linspace(1e-9, choice - 1e-9, 400):
        low = high - choice
        share = math.expm1(-low) / (math.expm1(-low) - math.expm1(-high))
        deltas.append(share * gaussian(epsilon - high) + (1 - share) * gaussian(epsilon - low))
    return max(deltas)


@pytest.mark.parametrize("total", [0.2, 1.1, 6.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-4])
def test_by_an_independent_computation_a_plan_keeps_the_total_and_a_little_more_epsilon_does_not(
    total: float, delta: float
) -> None:
    plan = plan_for_total(total_epsilon=total, total_delta=delta, **SIZES)
    assert worst_delta(total, plan.multiplier, plan.epsilon_select) <= delta
    more = replace(plan, epsilon=plan.epsilon * 1.01)
    assert worst_delta(total, more.multiplier, more.epsilon_select) > delta


def test_two_gaussian_rounds_keep_the_total_on_a_finer_grid_of_another_accountant() -> None:
    plan = plan_for_total(total_epsilon=1.1, total_delta=1e-6, **KINDS["two gaussians"])
    losses = [charge.loss for charge in planned_charges(plan)]
    rounds = [
        pld.from_gaussian_mechanism(loss.multiplier, value_discretization_interval=1e-5)  # type: ignore[union-attr]
        for loss in losses
    ]
    both = rounds[0].compose(rounds[1])
    assert both.get_delta_for_epsilon(1.1 * 1.0001) <= 1e-6
    assert both.get_delta_for_epsilon(1.1 * 0.999) > 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delta", [None, 3e-7])
def test_every_kind_of_plan_meets_the_total_and_never_passes_it(kind: str, delta: float | None) -> None:
    plan = plan_for_total(total_epsilon=1.1, total_delta=delta, **KINDS[kind])
    cost = tight_total(planned_charges(plan))
    assert 1.1 * (1 - 1e-4) < cost.epsilon <= 1.1
    if delta is not None:
        assert cost.delta == 0 or delta * (1 - 1e-5) < cost.delta <= delta
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("kind", ["gaussian", "either", "two gaussians", "discovered", "open", "devices"])
def test_what_a_run_charges_is_within_the_total(kind: str) -> None:
    """Charges that are known before the run are the most that it makes."""
    users = HeavyTailedPopulation(users=5_000, items=100, seed=2)
    plan = plan_for_total(total_epsilon=1.1, total_delta=1e-6, **KINDS[kind])
    tight = simulate(users, plan, seed=1).tight
    assert tight.epsilon <= 1.1
    assert tight.delta <= 1e-6


@pytest.mark.parametrize("kind", ["laplace", "open", "fixed"])
def test_where_nothing_composes_better_the_parts_add_up_to_the_total(kind: str) -> None:
    plan = plan_for_total(total_epsilon=1.1, epsilon_select=0.1, **KINDS[kind])
    assert basic_total(planned_charges(plan)).epsilon == pytest.approx(1.1, rel=1e-6)
    assert "less noise" not in total_words(plan, 1.1)


def test_a_total_of_the_usual_budgets_has_seven_percent_less_noise_than_their_sum() -> None:
    plan = plan_for_total(total_epsilon=1.1, epsilon_select=0.1, **SIZES)
    saved = 1 - plan.unit_noise / Plan(epsilon=1.0, **SIZES).unit_noise
    assert 0.06 < saved < 0.08
    words = total_words(plan, 1.1)
    assert f"{saved:.1%} less noise" in words
    assert f"they count {plan.epsilon + 0.1:.4g}" in words


def test_a_total_delta_of_zero_asks_for_noise_without_delta() -> None:
    plan = plan_for_total(total_epsilon=1.0, total_delta=0, **SIZES)
    assert (plan.mechanism, plan.delta, plan.delta_select) == ("laplace", 0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"total_epsilon": 1.1, "epsilon": 1.0}, ("epsilon-and-total", "--epsilon")),
        ({"total_epsilon": 1.1, "total_delta": 1e-6, "delta": 1e-6}, ("delta-and-total",)),
        ({"total_epsilon": 1.1, "epsilon_select": 1.1}, ("nothing-left",)),
        ({"total_epsilon": 1.1, "selector": "oracle"}, ("not-private",)),
        ({"total_epsilon": 0.0}, ("bad-epsilon", "total-epsilon")),
        ({"total_epsilon": 1.1, "total_delta": 0.7}, ("bad-delta", "total-delta", "0.7")),
        ({"total_delta": 1e-6}, ("total-delta-alone", "--total-epsilon")),
        (
            {"total_epsilon": 1.1, "total_delta": 1e-12} | KINDS["discovered, masked"] | {"items": None},
            ("total-delta-too-small",),
        ),
    ],
)
def test_totals_that_contradict_something_are_refused(fields: dict[str, Any], told: tuple[str, ...]) -> None:
    with refused(InvalidPlan, *told):
        planned(**SIZES | fields)


def test_the_default_choice_gets_less_of_a_total_when_there_are_more_items() -> None:
    shares = [
        default_choice(1.1, users=20_000, items=items, sparsity=50) for items in (50, 100, 1_000, 5_000)
    ]
    assert shares == sorted(shares, reverse=True)
    assert max(shares) <= 0.33
    # A ten times larger price of noise makes the choice ten times as sharp, of which it needs the root.
    assert shares[1] / shares[2] == pytest.approx(math.sqrt(10), rel=0.02)
