"""Items clipped one by one: a budget that is split as it must be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.client.device import answer
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.checks import MAX_ITEMS_ALONE
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.ledger import GaussianLoss, Ledger, PureLoss
from fedhist.protocol.privacy.mechanisms import gaussian_noise, laplace_noise
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.debiased_items import item_bounds, item_sensitivity
from fedhist.server.selection import selector_for
from fedhist.server.selection.quantile import target_rank
from fedhist.server.steps import planned_charges

relations = pytest.mark.parametrize("neighbours", list(Neighbours))


def plan_of(**settings):
    return Plan(
        **({"users": 4, "items": 2, "debias": "poisson", "max_threshold": 60, "candidates": 9} | settings)
    )


@relations
@pytest.mark.parametrize("items", [1, 2, 9])
def test_laplace_noise_of_an_item_has_the_scale_d_times_its_threshold_over_epsilon(items, neighbours):
    """One user's loss is at most the sum over items of C_j / (d C_j / eps) = eps."""
    plan = plan_of(items=items, mechanism="laplace", epsilon=0.5, neighbours=neighbours)
    for steps in (1 << plan.grid_bits, 7 << plan.grid_bits, 60 << plan.grid_bits):
        scale = float(laplace_noise(item_sensitivity(plan, steps), plan.epsilon).spread)
        assert scale == pytest.approx(items * steps / 0.5)
        assert items * steps / scale <= 0.5


@relations
@pytest.mark.parametrize("items", [1, 2, 9])
def test_gaussian_noise_of_an_item_has_root_d_times_the_deviation_of_one(items, neighbours):
    """Measured in deviations a user's move has the l2 norm 1/multiplier."""
    plan = plan_of(items=items, mechanism="gaussian", epsilon=0.5, delta=1e-7, neighbours=neighbours)
    sigma = noise_multiplier(0.5, 1e-7, calibration="analytic")
    steps = 30 << plan.grid_bits
    noise = gaussian_noise(item_sensitivity(plan, steps), plan.multiplier)
    assert noise.standard_deviation == pytest.approx(math.sqrt(items) * sigma * steps, rel=1e-6)
    assert math.sqrt(items * (steps / noise.standard_deviation) ** 2) <= 1 / sigma


class Cohort:
    """A transport over one batch."""

    simulated = True

    def __init__(self, histograms):
        self.histograms = histograms

    def total(self, request):
        sent = answer(request, self.histograms, source=SeededSource(1), labels=range(9))
        return Total(sent.users, sent.values)


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
    release = run_rounds(plan, Cohort(make_histograms(rows)), ledger=ledger, source=SeededSource(2))
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
            Cohort(make_histograms(rows)),
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
    with pytest.raises(InvalidPlan, match=f"up to {MAX_ITEMS_ALONE}"):
        plan_of(items=MAX_ITEMS_ALONE + 1)
