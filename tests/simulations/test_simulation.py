"""`simulate`: what it returns is what brute force says, for any sharding, and nothing is charged for mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedhist import (
    BudgetExceeded,
    Charge,
    Diagnostics,
    Plan,
    Result,
    SparsePopulation,
    simulate,
)
from tests.builders import population_of
from tests.support.api import InvalidPopulation
from tests.support.refusals import refused

Dense = npt.NDArray[np.int64]
MECHANISMS = ("gaussian", "laplace")
OPEN = {
    "domain": "open",
    "release": "truncated-laplace",
    "max_threshold": 300,
    "epsilon": 5.0,
    "candidates": 40,
}
CLOSED = {"items": 200, "max_threshold": 50}
both_domains = pytest.mark.parametrize("settings", [CLOSED, OPEN], ids=["closed", "open"])


def table_of(users: int, items: int, *, seed: int = 1) -> Dense:
    """Counts with a heavy tail and some empty users."""
    generator = np.random.default_rng(seed)
    table: Dense = generator.poisson(generator.lognormal(0, 1.5, size=(users, 1)), size=(users, items))
    table[::17] = 0
    return table


def norms_of(table: Dense, mechanism: str) -> npt.NDArray[np.float64]:
    return np.linalg.norm(table, ord=2 if mechanism == "gaussian" else 1, axis=1)


def clipped_sum(table: Dense, mechanism: str, threshold: float) -> npt.NDArray[np.float64]:
    """The sum of the clipped histograms as the paper writes it, in floating point."""
    norms = norms_of(table, mechanism)
    scale = np.minimum(1.0, threshold / np.maximum(norms, 1e-9))
    total: npt.NDArray[np.float64] = (table * scale[:, None]).sum(axis=0)
    return total


def fixed_plan(table: Dense, mechanism: str, threshold: float, **settings: Any) -> Plan:
    users, items = table.shape
    return Plan(
        users=users, items=items, mechanism=mechanism, selector="fixed", threshold=threshold, **settings
    )


def known(result: Result) -> Diagnostics:
    assert result.diagnostics is not None
    return result.diagnostics


class TestDiagnostics:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("threshold", [1.0, 6.5, 1000.0])
    def test_they_are_what_brute_force_says(self, mechanism: str, threshold: float) -> None:
        table = table_of(200, 6)
        result = simulate(
            population_of(table), fixed_plan(table, mechanism, threshold), seed=3, evaluate=True
        )
        found, total, truth = known(result), table.sum(), table.sum(axis=0)
        clipped = clipped_sum(table, mechanism, threshold)
        assert found.clipped_users == np.mean(norms_of(table, mechanism) > threshold)
        # Clipped users are rounded to the grid of 1/1024, and in l2 shrunk by a little to leave room for it.
        near = {"rel": 2e-3, "abs": 1e-9}
        assert found.clipped_mass == pytest.approx(1 - clipped.sum() / total, **near)
        assert found.clipping_error == pytest.approx(np.abs(clipped - truth).sum() / total, **near)
        released = result.release.histogram
        assert found.relative_loss == pytest.approx(np.abs(released - truth).sum() / total, rel=1e-12)
        rounding = 2e-3 * clipped.sum() / total
        assert found.noise_error == pytest.approx(np.abs(released - clipped).sum() / total, abs=rounding)
        assert found.relative_loss == result.relative_loss

    def test_without_the_truth_they_are_left_out(self) -> None:
        table = table_of(50, 4)
        plan = Plan(users=50, items=4)
        with_truth, without = (
            simulate(population_of(table), plan, seed=2, evaluate=t) for t in (True, False)
        )
        assert without.diagnostics is None
        assert without.relative_loss is None
        assert "truth" not in without.seconds
        document = without.to_json()
        assert document["relative_loss"] is None
        assert not {"not_private", "clipping_error", "noise_error", "clipped_users", "clipped_mass"} & set(
            document
        )
        # Looking at the truth changes nothing that is released.
        assert np.array_equal(with_truth.release.histogram, without.release.histogram)


class TestRelease:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_its_mean_over_many_runs_is_the_clipped_sum(self, mechanism: str) -> None:
        table, threshold, trials = table_of(60, 4), 5.0, 400
        population, plan = population_of(table), fixed_plan(table, mechanism, threshold)
        results = [simulate(population, plan, seed=seed, evaluate=False) for seed in range(trials)]
        mean = np.mean([result.release.histogram for result in results], axis=0)
        error = results[0].release.standard_error / math.sqrt(trials)
        scores = (mean - clipped_sum(table, mechanism, threshold)) / error
        assert np.abs(scores).max() < 4.5
        # The test can tell: by the sum without clipping it fails, and by a bound 10 % off too.
        assert np.abs((mean - table.sum(axis=0)) / error).max() > 4.5
        assert np.abs((mean - clipped_sum(table, mechanism, 1.1 * threshold)) / error).max() > 4.5


class TestSeeds:
    @both_domains
    def test_the_same_seed_repeats_and_without_one_every_release_is_new(
        self, settings: dict[str, Any]
    ) -> None:
        plan, words = Plan(users=350, **settings), population_of(np.tile([9, 3] + [0] * 198, (350, 1)))
        one, again, other, *drawn = (
            simulate(words, plan, seed=seed, evaluate=False) for seed in (1, 1, 2, None, None)
        )
        assert one.release.histogram.tobytes() == again.release.histogram.tobytes()
        assert len({result.release.histogram.tobytes() for result in (one, other, *drawn)}) == 4
        assert any("seed" in note for note in one.notes)
        for result in drawn:
            assert result.seed is None
            assert not result.release.seeded
            assert not any("seed" in note for note in result.notes)

    def test_noise_of_one_seed_does_not_depend_on_the_data(self) -> None:
        """Else it could not be called noise: the same seed on a neighbour differs by that user alone."""
        table = np.ones((3, 4), dtype=np.int64)
        plan = fixed_plan(table, "gaussian", 10.0)
        more = table.copy()
        more[1, 2] += 1
        first, second = (simulate(population_of(t), plan, seed=1).release.histogram for t in (table, more))
        assert (second - first).tolist() == [0, 0, 1, 0]


class TestRefusals:
    @pytest.mark.parametrize(("users", "items"), [(9, 3), (11, 3), (10, 2), (10, 4)])
    def test_a_plan_for_another_population(self, users: int, items: int) -> None:
        charges: list[Charge] = []
        with refused(InvalidPopulation, "other-size", "10"):
            simulate(population_of(np.ones((10, 3))), Plan(users=users, items=items), journal=charges.append)
        assert charges == []

    @pytest.mark.parametrize("stored", [0, 2], ids=["nothing", "zeros that are stored"])
    def test_a_population_without_a_count(self, stored: int) -> None:
        offsets, counts = [0] + [stored] * 10, [0] * stored
        empty = SparsePopulation.from_arrays(offsets, [*range(stored)], counts, domain_size=3)
        plan = Plan(users=10, items=3)
        with refused(InvalidPopulation, "no-items"):
            simulate(empty, plan, evaluate=True)
        # Without a look at the truth an empty population is released like any other.
        assert simulate(empty, plan, seed=1, evaluate=False).release.histogram.shape == (3,)

    def test_a_journal_that_refuses_stops_the_run(self) -> None:
        charges: list[Charge] = []

        def refuse(charge: Charge) -> None:
            charges.append(charge)
            raise BudgetExceeded("no more")

        with pytest.raises(BudgetExceeded):
            simulate(population_of(np.ones((10, 3))), Plan(users=10, items=3), journal=refuse)
        assert [charge.round for charge in charges] == ["select"]


class TestResult:
    def test_the_journal_sees_each_charge_and_phases_come_in_order(self) -> None:
        charges: list[Charge] = []
        phases: list[str] = []
        result = simulate(
            population_of(np.ones((10, 3))),
            Plan(users=10, items=3),
            journal=charges.append,
            on_phase=phases.append,
        )
        assert tuple(charges) == result.release.charges
        assert phases == ["plan", "select", "release", "account"]
        assert set(result.seconds) == set(phases)

    @pytest.mark.parametrize(("delta", "noted"), [(1e-2, True), (1e-6, False)])
    def test_a_delta_above_one_over_ten_times_the_users_is_noted(self, delta: float, noted: bool) -> None:
        plan = Plan(users=1_000, items=2, delta=delta)
        notes = simulate(population_of(np.ones((1_000, 2))), plan, seed=1).notes
        assert any("above 1/(10 users)" in note for note in notes) is noted


class TestOpenDomain:
    def test_the_oracle_is_about_the_best_of_all_fixed_thresholds(self) -> None:
        shares = 1 / np.arange(1, 31)
        draw = np.random.default_rng(8)
        population = population_of(draw.multinomial(draw.geometric(1 / 30, size=600), shares / shares.sum()))
        plan = Plan(**OPEN | {"users": 600, "max_threshold": 200, "epsilon": 4.0, "candidates": 6})

        def mean_loss(**changes: object) -> float:
            one = Plan.from_json(plan.to_json() | changes)
            results = (simulate(population, one, seed=seed, evaluate=True) for seed in range(5))
            return float(np.mean([result.relative_loss for result in results]))

        fixed = {
            steps: mean_loss(selector="fixed", threshold=float(steps))
            for steps in plan.candidate_steps.tolist()
        }
        assert max(fixed.values()) > 1.5 * min(fixed.values())
        assert min(fixed, key=fixed.__getitem__) not in (1, 200)
        assert mean_loss(selector="oracle") <= 1.02 * min(fixed.values())

    def test_the_recall_is_the_share_of_all_items_that_somebody_has(self) -> None:
        table = np.zeros((200, 8), dtype=int)
        table[:, :3], table[0, 3] = 2, 1
        plan = Plan(
            users=200,
            domain="open",
            release="truncated-laplace",
            epsilon=9.0,
            selector="fixed",
            threshold=7.0,
        )
        result = simulate(population_of(table), plan, seed=2, evaluate=True)
        assert result.release.labels == ["0", "1", "2"]
        assert result.to_json()["precision_recall"] == {"precision": 1, "recall": 0.75}
