"""The curve of expected losses is the one that runs at every threshold have on average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Round
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import Release
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation
from fedhist.simulations.engines.in_process import InProcess
from fedhist.simulations.prediction.threshold_curve import MAX_POINTS, measure
from fedhist.simulations.simulation import simulate, true_histogram

USERS, ITEMS = 400, 12
POPULATION = HeavyTailedPopulation(users=USERS, items=ITEMS, seed=3)
MODES: dict[str, dict[str, Any]] = {
    "gaussian": {"items": ITEMS},
    "replace": {"items": ITEMS, "neighbours": "replace"},
    "laplace": {"items": ITEMS, "mechanism": "laplace"},
    "open": {"domain": "open", "epsilon": 8.0},
}


def fixed(mode: str, threshold: float, **changes: Any) -> Plan:
    wanted = {"users": USERS, "max_threshold": 300, "selector": "fixed", "threshold": threshold}
    return Plan(**(wanted | MODES[mode] | changes))


def release_of(plan: Plan, seed: int) -> tuple[Release, Floats]:
    """A release without what takes long in a run, and the clipped sums."""
    transport = InProcess(POPULATION, SeededSource(seed))
    release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(seed))
    total = transport.totals[Round.RELEASE]
    if total.keyed is None:
        return release, np.ldexp(total.values.astype(np.float64), -plan.grid_bits)
    clipped = np.zeros(ITEMS)
    clipped[total.keyed.keys] = total.keyed.values[:, 0]
    return release, clipped


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threshold", [2.0, 30.0, 250.0])
def test_it_is_the_mean_of_many_runs(mode: str, threshold: float) -> None:
    truth = true_histogram(POPULATION)
    plan = fixed(mode, threshold)
    losses, clippings = [], []
    for seed in range(40):
        release, clipped = release_of(plan, seed)
        released = np.zeros(ITEMS)
        released[slice(None) if release.keys is None else release.keys] = release.histogram
        losses.append(np.abs(released - truth).sum() / truth.sum())
        clippings.append(np.abs(clipped - truth).sum() / truth.sum())
    curve = measure(POPULATION, release).curve
    assert curve is not None
    place = curve.thresholds.index(threshold)
    # Five standard errors of the mean, and half a percent for what the closed forms leave out.
    room = 5 * np.std(losses) / np.sqrt(len(losses)) + 0.005 * curve.loss[place]
    assert abs(np.mean(losses) - curve.loss[place]) <= room
    assert np.mean(clippings) == pytest.approx(curve.clipping[place], rel=0.01, abs=1e-3)


def test_clipping_falls_noise_rises_and_the_loss_lies_between() -> None:
    release = simulate(POPULATION, fixed("gaussian", 30.0), seed=1).release
    curve = measure(POPULATION, release).curve
    assert curve is not None
    assert len(curve.thresholds) <= MAX_POINTS + 1
    assert curve.thresholds == sorted(curve.thresholds)
    assert np.all(np.diff(curve.clipping) <= 1e-12)
    assert np.all(np.diff(curve.noise) >= 0)
    clipping, noise, loss = map(np.array, (curve.clipping, curve.noise, curve.loss))
    assert np.all(loss >= np.maximum(clipping, noise) * (1 - 1e-9))
    assert np.all(loss <= (clipping + noise) * (1 + 1e-9))


@pytest.mark.parametrize("mode", ["gaussian", "laplace"])
def test_every_user_is_in_one_bin_of_the_norms(mode: str) -> None:
    measured = measure(POPULATION, simulate(POPULATION, fixed(mode, 30.0), seed=1).release)
    sizes = measured.users
    assert len(sizes.edges) == len(sizes.users) + 1
    assert sum(sizes.users) + sizes.empty == USERS
    totals = np.concatenate([np.add.reduceat(np.append(s.counts, 0), s.offsets[:-1]) * (np.diff(s.offsets) > 0)
                             for s in POPULATION.shards()])  # fmt: skip
    assert sizes.empty == int((totals == 0).sum())
    if mode == "laplace":
        cut = sizes.edges[5]
        assert sum(sizes.users[:5]) == int(((totals > 0) & (totals <= cut)).sum())


def test_somebody_beyond_every_edge_is_counted_too(make_histograms: Any) -> None:
    from fedhist.client.populations import SparsePopulation

    population = SparsePopulation(make_histograms([[1, 0], [0, 10_000_000], [0, 0]]))
    plan = Plan(users=3, items=2, max_threshold=5, selector="fixed", threshold=2)
    sizes = measure(population, simulate(population, plan, seed=1).release).users
    assert (sum(sizes.users), sizes.empty, len(sizes.edges)) == (2, 1, len(sizes.users) + 1)


def test_the_true_counts_are_exact() -> None:
    measured = measure(POPULATION, simulate(POPULATION, fixed("gaussian", 30.0), seed=1).release)
    assert np.array_equal(measured.truth, true_histogram(POPULATION))


def test_items_with_a_bound_of_their_own_have_no_curve() -> None:
    plan = Plan(users=USERS, items=ITEMS, debias="poisson", max_threshold=50)
    assert measure(POPULATION, simulate(POPULATION, plan, seed=1).release).curve is None


def test_nobody_with_anything_has_no_curve(make_histograms: Any) -> None:
    from fedhist.client.populations import SparsePopulation

    population = SparsePopulation(make_histograms([[0, 0], [0, 0]]))
    result = simulate(population, Plan(users=2, items=2), seed=1, truth=False)
    measured = measure(population, result.release)
    assert (measured.curve, measured.users.empty) == (None, 2)
