"""The curve of expected losses, and the users by size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import HeavyTailedPopulation, Plan, Population, simulate, true_histogram
from tests.builders import population_of, table_of
from tests.support.api import MAX_POINTS, Predictor, measure

USERS, ITEMS = 400, 12
POPULATION = HeavyTailedPopulation(users=USERS, items=ITEMS, seed=3)
MODES: dict[str, dict[str, Any]] = {
    "gaussian": {"items": ITEMS},
    "replace-one": {"items": ITEMS, "neighbours": "replace-one"},
    "laplace": {"items": ITEMS, "mechanism": "laplace"},
    "open": {"domain": "open", "epsilon": 8.0, "release": "truncated-laplace"},
    "all items discovered": {"domain": "open", "epsilon": 1000.0},
}


def fixed(mode: str, threshold: float, **changes: Any) -> Plan:
    wanted = {"users": USERS, "max_threshold": 300, "selector": "fixed", "threshold": threshold}
    return Plan(**(wanted | MODES[mode] | changes))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threshold", [2.0, 30.0, 250.0])
def test_it_is_the_prediction_of_a_run_at_that_threshold(mode: str, threshold: float) -> None:
    """And predictions are the mean of runs: `test_prediction`."""
    plan = fixed(mode, threshold)
    curve = measure(POPULATION, simulate(POPULATION, plan, seed=1).release).curve
    assert curve is not None
    assert len(curve.thresholds) <= MAX_POINTS + 1
    place = curve.thresholds.index(threshold)
    predicted = Predictor(POPULATION).predict(plan)
    found = (curve.loss[place], curve.clipping[place], curve.noise[place])
    assert found == pytest.approx(
        (predicted.relative_loss, predicted.clipping_error, predicted.noise_error),
        rel=0.05 if "discovered" in mode else 1e-9,
    )


def test_items_that_were_not_found_are_lost_at_every_threshold() -> None:
    plan = fixed("all items discovered", 30.0, epsilon=0.3, delta=1e-3)
    result = simulate(POPULATION, plan, seed=1)
    measured = measure(POPULATION, result.release)
    assert measured.curve is not None
    found = [int(name) for name in result.release.labels or ()]
    assert 0 < len(found) < ITEMS
    truth = true_histogram(POPULATION)
    assert np.array_equal(measured.truth, truth)
    missed = 1 - truth[found].sum() / truth.sum()
    assert min(measured.curve.clipping) >= missed
    assert measured.curve.clipping[-1] == pytest.approx(missed, abs=0.02)
    assert sum(measured.users.users) + measured.users.empty == USERS


EMPTY = population_of(np.zeros((2, 2), dtype=int))


@pytest.mark.parametrize(
    ("population", "plan"),
    [
        (POPULATION, fixed("all items discovered", 30.0, epsilon=0.01)),
        (POPULATION, Plan(users=USERS, items=ITEMS, debias="poisson", max_threshold=50)),
        (EMPTY, Plan(users=2, items=2)),
    ],
    ids=["nothing was found", "items have bounds of their own", "nobody has anything"],
)
def test_without_one_bound_and_one_item_there_is_no_curve(population: Population, plan: Plan) -> None:
    measured = measure(population, simulate(population, plan, seed=1, evaluate=False).release)
    assert measured.curve is None
    assert measured.truth.tolist() == true_histogram(population).tolist()
    assert sum(measured.users.users) + measured.users.empty == population.users


@pytest.mark.parametrize("mode", ["gaussian", "laplace"])
def test_the_true_counts_are_exact_and_every_user_is_in_one_bin(mode: str) -> None:
    measured = measure(POPULATION, simulate(POPULATION, fixed(mode, 30.0), seed=1).release)
    assert np.array_equal(measured.truth, true_histogram(POPULATION))
    sizes = measured.users
    assert len(sizes.edges) == len(sizes.users) + 1
    assert sum(sizes.users) + sizes.empty == USERS
    totals = table_of(POPULATION).sum(axis=1)
    assert sizes.empty == int((totals == 0).sum())
    if mode == "laplace":
        cut = sizes.edges[5]
        assert sum(sizes.users[:5]) == int(((totals > 0) & (totals <= cut)).sum())


def test_somebody_beyond_every_edge_is_counted_too() -> None:
    population = population_of([[1, 0], [0, 10_000_000], [0, 0]])
    plan = Plan(users=3, items=2, max_threshold=5, selector="fixed", threshold=2)
    sizes = measure(population, simulate(population, plan, seed=1).release).users
    assert (sum(sizes.users), sizes.empty, len(sizes.edges)) == (2, 1, len(sizes.users) + 1)
