"""Items clipped one by one: a budget that is split as it must be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist import Ledger, Neighbours, Plan, SeededSource, run_rounds
from tests.builders import Cohort
from tests.support.api import (
    MAX_ITEMS_ALONE,
    GaussianLoss,
    InvalidPlan,
    PureLoss,
    item_bounds,
    planned_charges,
    selector_for,
    target_rank,
)
from tests.support.refusals import refused

relations = pytest.mark.parametrize("neighbours", list(Neighbours))


def plan_of(**settings):
    return Plan(
        **({"users": 4, "items": 2, "debias": "poisson", "max_threshold": 60, "candidates": 9} | settings)
    )


@relations
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("items", [1, 4])
def test_the_ledger_adds_up_to_the_plans_budget(make_histograms, mechanism, items, neighbours):
    """d choices at eps'/d each, and one release for all items."""
    plan = plan_of(
        users=60, items=items, mechanism=mechanism, neighbours=neighbours, epsilon=1.5, epsilon_select=0.4
    )
    ledger = Ledger()
    rows = np.random.default_rng(3).poisson(2, size=(60, items)).tolist()
    release = run_rounds(
        plan, Cohort(make_histograms(rows), labels=range(9)), ledger=ledger, source=SeededSource(2)
    )
    *choices, noise = ledger.entries
    assert [charge.cost for charge in ledger.entries] == [charge.cost for charge in planned_charges(plan)]
    assert len(choices) == items
    assert all(charge.epsilon == pytest.approx(0.4 / items) for charge in choices)
    assert all(charge.parameters["rank"] == target_rank(plan) for charge in choices)
    share = items if mechanism == "laplace" else math.sqrt(items)
    assert noise.sensitivity == pytest.approx(share)
    assert isinstance(noise.loss, PureLoss if mechanism == "laplace" else GaussianLoss)
    assert ledger.basic().epsilon == pytest.approx(1.9)
    assert ledger.basic().delta == (0 if mechanism == "laplace" else 1e-6)
    assert ledger.tight().epsilon <= 1.9 * (1 + 1e-9)
    bounds = release.item_release.thresholds
    assert release.threshold == bounds.max()
    unit = math.sqrt(2) / 1.5 if mechanism == "laplace" else plan.multiplier
    assert release.item_release.clipped_errors == pytest.approx(share * bounds * unit, rel=1e-4)


def test_each_item_chooses_for_itself_as_the_budget_grows(make_histograms):
    rows = [[int(size), int(size) * 9] for size in np.geomspace(1, 60, 3000)]
    settings = {"users": 3000, "max_threshold": 600, "candidates": 64, "epsilon": 0.02, "epsilon_select": 1e4}
    chosen, best = (
        run_rounds(
            plan_of(**settings, selector=selector),
            Cohort(make_histograms(rows), labels=range(9)),
            ledger=Ledger(),
            source=SeededSource(2),
        ).item_release.thresholds
        for selector in ("quantile", "oracle")
    )
    small, large = chosen
    assert large / small == pytest.approx(9, rel=0.15)
    assert chosen == pytest.approx(best, rel=0.12)


def test_the_private_rank_is_that_of_the_share():
    """max(d/eps, (2 d/eps') ln(K/beta)) for Laplace: a smaller one would fall off the end of the data."""
    alone, four = (plan_of(items=d, mechanism="laplace", epsilon_select=0.1) for d in (1, 4))
    assert target_rank(alone) == math.ceil(20 * math.log(9 / 1e-3))
    assert target_rank(four) == math.ceil(80 * math.log(9 / 1e-3))
    rich = plan_of(items=4, mechanism="laplace", epsilon=0.01, epsilon_select=1e6)
    assert target_rank(rich) == 400


def test_a_fixed_threshold_is_every_items():
    plan = plan_of(selector="fixed", threshold=3.0)
    selection = selector_for(plan).select(plan, None, source=SeededSource(1))
    assert item_bounds(plan, selection).tolist() == [3 << plan.grid_bits] * 2


def test_too_many_items_to_share_a_budget_are_refused():
    with refused(InvalidPlan, "too-many-items-alone", MAX_ITEMS_ALONE):
        plan_of(items=MAX_ITEMS_ALONE + 1)
