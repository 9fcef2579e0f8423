"""Predictions against the mean of seeded runs, and what they reuse against what they would compute anew."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from fedhist import (
    HeavyTailedPopulation,
    InvalidInput,
    Plan,
    Population,
    Result,
    SeededSource,
    SparsePopulation,
    simulate,
)
from tests.builders import population_of
from tests.support.api import (
    Binning,
    GuessedPopulation,
    InProcess,
    InvalidPlan,
    Norm,
    Observer,
    Predictor,
    Request,
    Total,
    answer_population,
    ignore,
    materialise,
    read_statistic,
    select_request,
    selector_for,
)
from tests.support.refusals import refused

USERS, ITEMS, TRIALS = 1_000, 40, 30
OPEN = {
    "domain": "open",
    "release": "truncated-laplace",
    "max_threshold": 300,
    "candidates": 32,
    "delta": 1e-3,
}
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {"items": ITEMS, "mechanism": "gaussian"},
    "gaussian, replace-one": {"items": ITEMS, "mechanism": "gaussian", "neighbours": "replace-one"},
    "laplace": {"items": ITEMS, "mechanism": "laplace"},
    "laplace, replace-one": {"items": ITEMS, "mechanism": "laplace", "neighbours": "replace-one"},
    "truncated-laplace": OPEN | {"release": "truncated-laplace"},
    "laplace-threshold": OPEN | {"release": "laplace-threshold"},
}
DISCOVER = OPEN | {"release": "discover"}
DISCOVERED: dict[str, dict[str, Any]] = {
    "half of all items": {"epsilon": 0.3},
    "nearly all items": {"epsilon": 1.0},
    "one look or two": {"epsilon": 4.0},
    "laplace": {"epsilon": 1.0, "mechanism": "laplace"},
    "either mechanism": {"epsilon": 1.0, "mechanism": "auto"},
    "replace-one": {"epsilon": 2.0, "neighbours": "replace-one"},
    "known items": {"epsilon": 0.3, "known_items": "1\n17\n39\nnobody's"},
}
EPSILONS = (0.3, 1.0, 4.0)


@pytest.fixture(scope="module")
def population() -> SparsePopulation:
    return materialise(HeavyTailedPopulation(users=USERS, items=ITEMS, seed=3))


@pytest.fixture(scope="module")
def predictor(population: SparsePopulation) -> Predictor:
    return Predictor(population)


def plan_of(kind: str, epsilon: float, **more: Any) -> Plan:
    return Plan(users=USERS, **KINDS[kind] | {"epsilon": epsilon} | more)


class Unweighed(InProcess):
    """The usual transport without measuring how long messages are, which takes most of the time of small runs."""

    def total(self, request: Request) -> Total:
        sent = answer_population(request, self.population, source=self.source)
        self.totals[request.round] = Total(sent.users, sent.values, sent.keyed)
        return self.totals[request.round]


@contextmanager
def unweighed(population: Population, *, seed: int | None, observe: Observer = ignore) -> Iterator[Unweighed]:
    yield Unweighed(population, SeededSource(seed or 0))


def measured(population: SparsePopulation, plan: Plan, trials: int = TRIALS) -> list[Result]:
    return [simulate(population, plan, seed=seed, evaluate=True, engine=unweighed) for seed in range(trials)]


def agrees(predicted: float, runs: list[float], slack: float = 0.01) -> bool:
    """Within 3.5 standard errors of the runs' mean, and the slack.

    The budget of the choice is large in these tests, so that no rare, far too high threshold makes up half of a mean:
    thirty runs may have none of those, and then a standard error that is too small as well.
    """
    error = statistics.stdev(runs) / math.sqrt(len(runs))
    mean = statistics.mean(runs)
    return abs(predicted - mean) <= 3.5 * error + slack * abs(mean)


def losses(results: list[Result]) -> list[float]:
    return [result.relative_loss or 0.0 for result in results]


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [(kind, e) for kind in KINDS for e in ((1.0,) if kind.endswith("replace-one") else EPSILONS)],
)
def test_a_prediction_is_the_mean_of_runs(
    population: SparsePopulation, predictor: Predictor, kind: str, epsilon: float
) -> None:
    if (kind, epsilon) == ("laplace-threshold", 0.3):
        epsilon = 0.6  # At 0.3 nearly all runs choose the largest threshold, and thirty may miss the others.
    plan = plan_of(kind, epsilon, epsilon_select=1.0)
    results = measured(population, plan)
    prediction = predictor.predict(plan)
    known = [result.diagnostics for result in results]
    assert agrees(prediction.relative_loss, losses(results))
    assert agrees(prediction.threshold, [result.threshold for result in results])
    for name in ("clipping_error", "noise_error", "clipped_users"):
        assert agrees(getattr(prediction, name), [getattr(one, name) for one in known]), name
    assert agrees(prediction.released_items, [float(len(result.release.histogram)) for result in results])
    inside = [prediction.threshold_low <= result.threshold <= prediction.threshold_high for result in results]
    assert sum(inside) >= 0.7 * len(inside)


@pytest.mark.parametrize("kind", DISCOVERED)
def test_a_prediction_of_a_discovery_is_near_the_mean_of_runs(
    population: SparsePopulation, predictor: Predictor, kind: str
) -> None:
    """Five discoveries stand for all: six percent beside the standard errors."""
    plan = Plan(users=USERS, **DISCOVER | DISCOVERED[kind], epsilon_select=0.5)
    results = measured(population, plan, 20)
    prediction = predictor.predict(plan)
    found = [result.diagnostics for result in results]
    pairs = {
        name: (getattr(prediction, name), [getattr(one, name) for one in found])
        for name in ("relative_loss", "clipping_error", "noise_error", "clipped_users")
    }
    pairs["items"] = prediction.released_items, [float(len(result.release.histogram)) for result in results]
    pairs["threshold"] = prediction.threshold, [result.threshold for result in results]
    for name, (predicted, runs) in pairs.items():
        assert agrees(predicted, runs, slack=0.06), name
    if kind == "half of all items":
        wrong = Plan.from_json(plan.to_json() | {"epsilon": 0.7})
        assert not agrees(predictor.predict(wrong).relative_loss, losses(results), slack=0.06)
    if kind == "one look or two":
        assert len({result.release.discovery_share for result in results}) == 2


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [("gaussian", 0.5), ("laplace", 0.2), ("truncated-laplace", 0.5), ("laplace-threshold", 0.5)],
)
def test_the_comparison_notices_a_wrong_prediction(
    population: SparsePopulation, predictor: Predictor, kind: str, epsilon: float
) -> None:
    """At a fixed threshold, where little but the noise varies between runs."""
    plan = plan_of(kind, epsilon, selector="fixed", threshold=40)
    runs = losses(measured(population, plan))
    right = predictor.predict(plan)
    assert agrees(right.relative_loss, runs, slack=0.003)
    # Bias and noise added up, as if neither hid part of the other.
    assert not agrees(right.clipping_error + right.noise_error, runs, slack=0.003)
    # The noise of other neighbours, half the budget, half the threshold.
    for change in ({"neighbours": "replace-one"}, {"epsilon": epsilon / 2}, {"threshold": 20}):
        wrong = Plan.from_json(plan.to_json() | change)
        assert not agrees(predictor.predict(wrong).relative_loss, runs, slack=0.003), change


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("gaussian", "dpsgd"),
        ("gaussian", "output-perturbation"),
        ("gaussian", "m-quantile"),
        ("gaussian", "oracle"),
        ("laplace", "quantile"),
        ("truncated-laplace", "exponential-sharp"),
        ("truncated-laplace", "median"),
        ("truncated-laplace", "p90"),
        ("truncated-laplace", "oracle"),
    ],
)
def test_every_selector_can_be_predicted(
    population: SparsePopulation, predictor: Predictor, kind: str, selector: str
) -> None:
    plan = plan_of(kind, 1.0, selector=selector)
    prediction = predictor.predict(plan)
    runs = losses(measured(population, plan, 30))
    slack = 3.5 * prediction.sampling_error
    mean, error = statistics.mean(runs), statistics.stdev(runs) / math.sqrt(len(runs))
    assert abs(prediction.relative_loss - mean) <= 3.5 * error + slack + 0.01 * mean
    drawn = selector in ("dpsgd", "output-perturbation", "m-quantile")
    assert (prediction.draws is not None) == drawn == (prediction.sampling_error > 0)


def test_what_is_reused_is_what_would_be_computed_anew(population: SparsePopulation) -> None:
    """Also where the budget changes the grid, the candidates, the domain or the norm between two predictions."""
    shared = Predictor(population)
    plans = [plan_of(kind, epsilon) for kind in KINDS for epsilon in EPSILONS]
    plans += [plan_of("gaussian", epsilon, max_threshold=2.0**18) for epsilon in (1e-2, 0.1, 1.0)]
    plans += [plan_of("gaussian", 1.0, sparsity=4), plan_of("gaussian", 1.0, candidates=20)]
    plans += [plan_of("laplace", 1.0, selector="fixed", threshold=t) for t in (7.5, 80.0)]
    plans += [Plan(users=USERS, **DISCOVER | settings) for settings in DISCOVERED.values()]
    assert len({plan.grid_bits for plan in plans}) > 2
    for plan in plans:
        assert shared.predict(plan) == Predictor(population).predict(plan)


def test_a_few_users_stand_for_many() -> None:
    """A sample of users whose sums are scaled predicts a run over all of them."""
    many = materialise(GuessedPopulation(users=40_000, items=50, seed=1))
    few = Predictor(GuessedPopulation(users=8_000, items=50, seed=2), users=40_000)
    for kind in ({"items": 50}, {"items": 50, "mechanism": "laplace"}, DISCOVER):
        plan = Plan(users=40_000, **kind, epsilon=0.3, epsilon_select=0.1)
        exact = Predictor(many).predict(plan)
        assert few.predict(plan).relative_loss == pytest.approx(exact.relative_loss, rel=0.1)
        wrong = Predictor(GuessedPopulation(users=8_000, items=50, seed=2)).predict(
            Plan.from_json(plan.to_json() | {"users": 8_000})
        )
        assert wrong.relative_loss != pytest.approx(exact.relative_loss, rel=0.1)


def test_a_curve_reads_the_population_three_times(population: SparsePopulation) -> None:
    reads = []

    class Counted:
        users, domain_size, labels = population.users, population.domain_size, None

        def shards(self):
            reads.append(1)
            return population.shards()

    predictor = Predictor(Counted())
    for epsilon in np.geomspace(0.1, 10, 8):
        for share in (0.02, 0.1, 0.3):
            budgets = {"epsilon": epsilon * (1 - share), "epsilon_select": epsilon * share}
            predictor.predict(plan_of("gaussian", sparsity=9, **budgets))
    assert len(reads) == 3


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "truncated-laplace"])
def test_chances_of_thresholds_are_those_of_the_selector_s_draws(predictor: Predictor, kind: str) -> None:
    plan = plan_of(kind, 1.0, candidates=12, epsilon_select=0.05)
    sent = answer_population(select_request(plan), predictor.population, source=SeededSource(0))
    selector, statistic = selector_for(plan), read_statistic(plan, Total(sent.users, sent.values, sent.keyed))
    chances = selector.choice(plan, statistic).probabilities()
    draws = [
        selector.select(plan, statistic, source=SeededSource(seed)).threshold.steps for seed in range(600)
    ]
    found = np.array([draws.count(steps) for steps in plan.candidate_steps.tolist()])
    assert chances.sum() == pytest.approx(1.0)
    spread = np.sqrt(600 * chances * (1 - chances)) + 1
    assert np.all(np.abs(found - 600 * chances) < 4 * spread)
    assert not np.all(np.abs(found - 600 / len(chances)) < 4 * spread)


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
def test_clipped_sums_are_the_sums_of_clipped_histograms(norm: Norm) -> None:
    rows = np.array([[3, 4, 0], [0, 0, 0], [1, 0, 0], [30, 40, 0], [0, 0, 9]])
    steps = np.array([2, 5, 18, 64, 200])
    binning = Binning(steps, bits=1, norm=norm, items=3)
    for shard in population_of(rows).shards():
        binning.add(shard)
    table = binning.result().table(steps, bits=1)
    norms = rows.sum(axis=1) if norm is Norm.L1 else np.sqrt((rows**2).sum(axis=1))
    for place, threshold in enumerate(steps / 2):
        shares = np.minimum(1.0, threshold / np.maximum(norms, 1e-9))
        assert table.kept[:, place] == pytest.approx(shares @ rows, rel=1e-8)
        assert table.users_above[place] == (norms > threshold).sum()
    assert table.truth.tolist() == [34.0, 44.0, 9.0]


def test_items_that_nobody_has_get_noise_over_a_closed_domain_only(population: SparsePopulation) -> None:
    held = population.histograms
    wider = SparsePopulation.from_arrays(held.offsets, held.items, held.counts, domain_size=400)
    plan = Plan(users=USERS, items=400, selector="fixed", threshold=30.0)
    assert agrees(Predictor(wider).predict(plan).relative_loss, losses(measured(wider, plan, 20)))
    kept = plan_of("truncated-laplace", 1.0, selector="fixed", threshold=30)
    without, with_them = (Predictor(users).predict(kept).relative_loss for users in (population, wider))
    assert with_them == pytest.approx(without)


def test_costs_are_the_ledger_s(population: SparsePopulation, predictor: Predictor) -> None:
    plan = plan_of("gaussian", 1.0)
    prediction, result = predictor.predict(plan), simulate(population, plan, seed=0)
    assert prediction.total == result.total
    assert prediction.tight == result.tight
    assert prediction.tight.epsilon < prediction.total.epsilon


def test_what_cannot_be_predicted_is_refused(predictor: Predictor) -> None:
    few = Predictor(predictor.population, users=2 * USERS)
    with refused(InvalidInput, "not-predicted"):
        few.predict(Plan(users=2 * USERS, items=ITEMS, debias="poisson"))
    with refused(InvalidInput, "other-size"):
        predictor.predict(Plan(users=7, items=ITEMS))
    with refused(InvalidPlan, "unknown-selector", "nope"):
        predictor.predict(plan_of("gaussian", 1.0, selector="nope"))
    empty = SparsePopulation.from_arrays(np.array([0, 0]), np.zeros(0, int), np.zeros(0, int), domain_size=2)
    with refused(InvalidInput, "no-items"):
        Predictor(empty).predict(Plan(users=1, items=2))


def test_debiased_counts_are_whole_runs(population: SparsePopulation, predictor: Predictor) -> None:
    plan = plan_of("gaussian", 1.0, debias="poisson", max_threshold=50)
    prediction = predictor.predict(plan)
    runs = [simulate(population, plan, seed=seed, evaluate=True) for seed in range(5)]
    assert prediction.relative_loss == pytest.approx(statistics.mean(losses(runs)))
    assert prediction.released_items == ITEMS
    assert (prediction.draws, prediction.sampling_error > 0) == (5, True)
