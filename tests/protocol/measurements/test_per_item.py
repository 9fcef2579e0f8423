"""Items clipped one by one: tails and sums against brute force, and a budget that is split as it must be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.client.device import answer
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.measurements.item_tail import (
    item_tail_length,
    item_tail_vector,
    read_item_tail,
    sum_clipped_items,
)
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.checks import MAX_ITEMS_ALONE
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.ledger import GaussianLoss, Ledger, PureLoss
from fedhist.protocol.privacy.mechanisms import gaussian_noise, laplace_noise
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import _item_sensitivity
from fedhist.server.selection import selector_for
from fedhist.server.selection.quantile import target_rank
from fedhist.server.steps import planned_charges
from tests.asking import release_at, select_request

relations = pytest.mark.parametrize("neighbours", list(Neighbours))
mechanisms = pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])

counts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 2**28))
populations = st.integers(1, 5).flatmap(
    lambda items: st.lists(st.lists(counts, min_size=items, max_size=items), min_size=1, max_size=8)
)
BITS = 4
CANDIDATES = np.array([16, 24, 40, 41, 160, 9000])
"""1, 1.5, 2.5, 2.5625, 10 and 562.5 counts."""


@given(rows=populations)
@settings(max_examples=100, deadline=None)
def test_the_tail_counts_the_users_above_each_candidate_of_each_item(make_histograms, rows):
    items = len(rows[0])
    vector = item_tail_vector(make_histograms(rows), CANDIDATES, bits=BITS)
    assert len(vector) == item_tail_length(items, len(CANDIDATES))
    tail = read_item_tail(vector, items, users=len(rows))
    assert tail.users == len(rows)
    for item, (k, bound) in itertools.product(range(items), enumerate(CANDIDATES.tolist())):
        assert tail.counts[item, k] == sum((row[item] << BITS) > bound for row in rows)


@given(rows=populations, data=st.data())
@settings(max_examples=100, deadline=None)
def test_the_sum_is_of_the_clipped_counts(make_histograms, rows, data):
    items = len(rows[0])
    bounds = data.draw(st.lists(st.integers(1, 2**31 - 1), min_size=items, max_size=items))
    found = sum_clipped_items(make_histograms(rows), np.array(bounds), bits=BITS)
    assert found.tolist() == [
        sum(min(row[item] << BITS, bounds[item]) for row in rows) for item in range(items)
    ]


@given(rows=populations, cut=st.integers(0, 8))
@settings(max_examples=50, deadline=None)
def test_every_sharding_adds_up_to_the_same(make_histograms, rows, cut):
    whole = make_histograms(rows)
    parts = [whole.rows(0, min(cut, whole.users)), whole.rows(min(cut, whole.users), whole.users)]
    bounds = np.full(whole.domain_size, 100)
    for statistic in (
        lambda part: item_tail_vector(part, CANDIDATES, bits=BITS),
        lambda part: sum_clipped_items(part, bounds, bits=BITS),
    ):
        assert statistic(whole).tolist() == sum(statistic(part) for part in parts).tolist()


USERS = [list(row) for row in itertools.product([0, 1, 3, 1000], repeat=2)]


def plan_of(**settings):
    return Plan(
        **({"users": 4, "items": 2, "debias": "poisson", "max_threshold": 60, "candidates": 9} | settings)
    )


def neighbours_of(neighbours):
    others = [[2, 0], [9, 9], [0, 40]]
    if neighbours is Neighbours.ADD_REMOVE:
        return [(others, [*others, one]) for one in USERS]
    return [([*others, a], [*others, b]) for a, b in itertools.product(USERS, repeat=2)]


@relations
def test_an_item_moves_by_its_own_threshold_and_no_more(make_histograms, neighbours):
    """Also under replacement: both counts lie between 0 and the threshold."""
    plan = plan_of(neighbours=neighbours)
    bounds = np.array([5, 17]) << plan.grid_bits
    request = release_at(plan, plan.at_steps(int(bounds.max())), item_thresholds=bounds)

    def total(rows):
        return answer(request, make_histograms(rows), source=SeededSource(1)).values

    moved = np.array([np.abs(total(a) - total(b)) for a, b in neighbours_of(neighbours)])
    assert moved.max(axis=0).tolist() == bounds.tolist()


@relations
def test_a_user_moves_the_tail_of_an_item_by_one_at_most(make_histograms, neighbours):
    plan = plan_of(neighbours=neighbours)

    def tail(rows):
        sent = answer(select_request(plan), make_histograms(rows), source=SeededSource(1)).values
        return read_item_tail(sent, 2, users=len(rows)).counts

    moved = np.array([np.abs(tail(a) - tail(b)) for a, b in neighbours_of(neighbours)])
    assert moved.max() == 1
    assert len(tail([[0, 0]])) == 2


@relations
@pytest.mark.parametrize("items", [1, 2, 9])
def test_laplace_noise_of_an_item_has_the_scale_d_times_its_threshold_over_epsilon(items, neighbours):
    """One user's loss is at most the sum over items of C_j / (d C_j / eps) = eps."""
    plan = plan_of(items=items, mechanism="laplace", epsilon=0.5, neighbours=neighbours)
    scales = []
    for steps in (1 << plan.grid_bits, 7 << plan.grid_bits, 60 << plan.grid_bits):
        noise = laplace_noise(_item_sensitivity(plan, steps), plan.epsilon)
        assert float(noise.spread) == pytest.approx(items * steps / 0.5)
        assert float(noise.spread) >= items * steps / 0.5
        scales.append(steps / float(noise.spread))
    assert max(scales) * items <= 0.5


@relations
@pytest.mark.parametrize("items", [1, 2, 9])
def test_gaussian_noise_of_an_item_has_root_d_times_the_deviation_of_one(items, neighbours):
    """Measured in deviations a user's move has the l2 norm 1/multiplier."""
    plan = plan_of(items=items, mechanism="gaussian", epsilon=0.5, delta=1e-7, neighbours=neighbours)
    sigma = noise_multiplier(0.5, 1e-7, calibration="analytic")
    steps = 30 << plan.grid_bits
    noise = gaussian_noise(_item_sensitivity(plan, steps), plan.multiplier)
    assert noise.standard_deviation == pytest.approx(math.sqrt(items) * sigma * steps, rel=1e-6)
    assert math.sqrt(items * (steps / noise.standard_deviation) ** 2) <= 1 / sigma


class Cohort:
    """A transport over one batch."""

    simulated = True

    def __init__(self, histograms):
        self.histograms = histograms

    def total(self, request):
        sent = answer(request, self.histograms, source=SeededSource(1))
        return Total(sent.users, sent.values)


@relations
@mechanisms
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
    assert noise.sensitivity == pytest.approx(items if mechanism == "laplace" else math.sqrt(items))
    assert isinstance(noise.loss, PureLoss if mechanism == "laplace" else GaussianLoss)
    assert ledger.basic().epsilon == pytest.approx(1.9)
    assert ledger.basic().delta == (0 if mechanism == "laplace" else 1e-6)
    assert ledger.tight().epsilon <= 1.9 * (1 + 1e-9)
    bounds = release.item_release.thresholds
    assert release.threshold == bounds.max()
    share = items if mechanism == "laplace" else math.sqrt(items)
    unit = math.sqrt(2) / 1.5 if mechanism == "laplace" else plan.multiplier
    assert release.item_release.clipped_errors == pytest.approx(share * bounds * unit, rel=1e-4)


def test_each_item_chooses_for_itself_as_the_budget_grows(make_histograms):
    rows = [[int(size), int(size) * 9] for size in np.geomspace(1, 60, 3000)]
    plan = plan_of(users=3000, max_threshold=600, candidates=64, epsilon=0.02, epsilon_select=1e4)
    release = run_rounds(plan, Cohort(make_histograms(rows)), ledger=Ledger(), source=SeededSource(2))
    oracle = run_rounds(
        Plan.from_json(plan.to_json() | {"selector": "oracle"}),
        Cohort(make_histograms(rows)),
        ledger=Ledger(),
        source=SeededSource(2),
    )
    small, large = release.item_release.thresholds
    assert large / small == pytest.approx(9, rel=0.15)
    assert release.item_release.thresholds == pytest.approx(oracle.item_release.thresholds, rel=0.12)
    assert not oracle.private


def test_the_private_rank_is_that_of_the_share():
    """max(d/eps, (2 d/eps') ln(K/beta)) for Laplace: a smaller one would fall off the end of the data."""
    alone, four = (plan_of(items=d, mechanism="laplace", epsilon_select=0.1) for d in (1, 4))
    assert target_rank(alone) == math.ceil(20 * math.log(9 / 1e-3))
    assert target_rank(four) == math.ceil(80 * math.log(9 / 1e-3))
    rich = plan_of(items=4, mechanism="laplace", epsilon=0.01, epsilon_select=1e6)
    assert target_rank(rich) == 400


def test_a_fixed_threshold_is_every_items(make_histograms):
    plan = plan_of(selector="fixed", threshold=3.0)
    selection = selector_for(plan).select(plan, None, source=SeededSource(1))
    assert selection.item_thresholds.tolist() == [3 << plan.grid_bits] * 2


def test_too_many_items_to_share_a_budget_are_refused():
    with pytest.raises(InvalidPlan, match=f"up to {MAX_ITEMS_ALONE}"):
        plan_of(items=MAX_ITEMS_ALONE + 1)
