"""`simulate`: what it returns is what brute force says, for any sharding, and nothing is charged for mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import BudgetExceeded, InvalidPopulation
from fedhist.protocol.histograms import Histograms
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.simulation import Result, mean_over_trials, simulate, true_histogram

Dense = npt.NDArray[np.int64]
MECHANISMS = ("gaussian", "laplace")


def population_of(table: npt.ArrayLike) -> SparsePopulation:
    return SparsePopulation.from_scipy(scipy.sparse.csr_array(np.asarray(table)))


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


@dataclass(frozen=True)
class Sharded:
    """A population cut into pieces of a chosen number of users."""

    whole: SparsePopulation
    shard_users: int

    @property
    def users(self) -> int:
        return self.whole.users

    @property
    def domain_size(self) -> int:
        return self.whole.domain_size

    @property
    def labels(self) -> None:
        return None

    def shards(self) -> Iterator[Histograms]:
        for start in range(0, self.users, self.shard_users):
            yield self.whole.histograms.rows(start, min(start + self.shard_users, self.users))


class TestDiagnostics:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("threshold", [1.0, 6.5, 1000.0])
    def test_they_are_what_brute_force_says(self, mechanism: str, threshold: float) -> None:
        table = table_of(200, 6)
        result = simulate(population_of(table), fixed_plan(table, mechanism, threshold), seed=3)
        known, total, truth = result.diagnostics, table.sum(), table.sum(axis=0)
        clipped = clipped_sum(table, mechanism, threshold)
        assert known is not None
        assert known.clipped_users == np.mean(norms_of(table, mechanism) > threshold)
        # Clipped users are rounded to the grid of 1/1024, and in l2 shrunk by a little to leave room for it.
        near = {"rel": 2e-3, "abs": 1e-9}
        assert known.clipped_mass == pytest.approx(1 - clipped.sum() / total, **near)
        assert known.clipping_error == pytest.approx(np.abs(clipped - truth).sum() / total, **near)
        released = result.release.histogram
        assert known.relative_loss == pytest.approx(np.abs(released - truth).sum() / total, rel=1e-12)
        rounding = 2e-3 * clipped.sum() / total
        assert known.noise_error == pytest.approx(np.abs(released - clipped).sum() / total, abs=rounding)
        assert known.relative_loss == result.relative_loss

    def test_below_the_bound_nothing_is_lost_and_all_error_is_noise(self) -> None:
        table = table_of(50, 4)
        result = simulate(population_of(table), fixed_plan(table, "gaussian", 1500), seed=1)
        assert result.diagnostics is not None
        assert result.diagnostics.clipping_error == 0
        assert result.diagnostics.clipped_mass == 0
        assert result.diagnostics.noise_error == result.diagnostics.relative_loss

    def test_without_the_truth_they_are_left_out(self) -> None:
        table = table_of(50, 4)
        plan = Plan(users=50, items=4)
        with_truth, without = (simulate(population_of(table), plan, seed=2, truth=t) for t in (True, False))
        assert without.diagnostics is None
        assert without.relative_loss is None
        assert "truth" not in without.seconds
        assert without.to_json()["relative_loss"] is None
        assert "not_private" not in without.to_json()
        # Looking at the truth changes nothing that is released.
        assert np.array_equal(with_truth.release.histogram, without.release.histogram)

    def test_the_true_histogram_is_exact(self) -> None:
        table = table_of(300, 7)
        assert true_histogram(Sharded(population_of(table), 13)).tolist() == table.sum(axis=0).tolist()


class TestRelease:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_its_mean_over_many_runs_is_the_clipped_sum(self, mechanism: str) -> None:
        table, threshold, trials = table_of(60, 4), 5.0, 400
        population, plan = population_of(table), fixed_plan(table, mechanism, threshold)
        results = [simulate(population, plan, seed=seed, truth=False) for seed in range(trials)]
        mean = np.mean([result.release.histogram for result in results], axis=0)
        error = results[0].release.standard_error / math.sqrt(trials)
        scores = (mean - clipped_sum(table, mechanism, threshold)) / error
        assert np.abs(scores).max() < 4.5
        # The test can tell: by the sum without clipping it fails, and by a bound 10 % off too.
        assert np.abs((mean - table.sum(axis=0)) / error).max() > 4.5
        assert np.abs((mean - clipped_sum(table, mechanism, 1.1 * threshold)) / error).max() > 4.5

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
    def test_the_standard_error_is_that_of_the_noise(self, mechanism: str, neighbours: str) -> None:
        items = 60_000
        table = np.ones((1, items), dtype=np.int64)
        plan = fixed_plan(table, mechanism, 2.0**16, max_threshold=2.0**17, neighbours=neighbours)
        release = simulate(population_of(table), plan, seed=5, truth=False).release
        ratio = np.std(release.histogram - 1) / release.standard_error
        # Five standard deviations of the estimate: 0.3 % of a Gaussian's, 0.5 % of a Laplace's.
        assert abs(ratio - 1) < 0.025
        assert abs(ratio * 1.05 - 1) > 0.025
        assert abs(ratio / 1.05 - 1) > 0.025

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_the_standard_error_is_the_calibrated_one(self, mechanism: str) -> None:
        table = np.ones((2, 3), dtype=np.int64)
        release = simulate(population_of(table), fixed_plan(table, mechanism, 8.0), seed=5).release
        # 4.2247 is the analytic Gaussian's multiplier at (1, 1e-6); a Laplace of scale b deviates sqrt(2) b.
        expected = 8 * 4.2247 if mechanism == "gaussian" else 8 * math.sqrt(2)
        assert release.standard_error == pytest.approx(expected, rel=1e-4)


class TestSharding:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("shard_users", [1, 7, 100])
    def test_a_release_does_not_depend_on_it(self, mechanism: str, shard_users: int) -> None:
        table = table_of(250, 8)
        whole = population_of(table)
        plan = Plan(users=250, items=8, mechanism=mechanism, max_threshold=50)
        at_once = simulate(Sharded(whole, 250), plan, seed=9)
        in_pieces = simulate(Sharded(whole, shard_users), plan, seed=9)
        assert np.array_equal(at_once.release.histogram, in_pieces.release.histogram)
        assert at_once.threshold == in_pieces.threshold
        assert at_once.diagnostics == in_pieces.diagnostics
        assert at_once.bytes_per_user == in_pieces.bytes_per_user
        assert at_once.diagnostics is not None
        assert at_once.diagnostics.clipped_users > 0

    def test_a_synthetic_population_may_be_in_memory_or_not(self) -> None:
        made = HeavyTailedPopulation(users=6_000, items=30, seed=4)
        plan = Plan(users=6_000, items=30)
        streamed, stored = (simulate(p, plan, seed=1) for p in (made, materialise(made)))
        assert np.array_equal(streamed.release.histogram, stored.release.histogram)
        assert streamed.diagnostics == stored.diagnostics


class TestSeeds:
    def test_the_same_seed_repeats_and_another_does_not(self) -> None:
        table = table_of(100, 5)
        population, plan = population_of(table), Plan(users=100, items=5)
        one, again, other = (simulate(population, plan, seed=s).release.histogram for s in (1, 1, 2))
        assert np.array_equal(one, again)
        assert not np.array_equal(one, other)

    def test_without_a_seed_every_release_is_new(self) -> None:
        table = table_of(100, 5)
        plan = fixed_plan(table, "gaussian", 4.0)
        one, other = (simulate(population_of(table), plan) for _ in range(2))
        assert not np.array_equal(one.release.histogram, other.release.histogram)
        assert one.seed is None
        assert not one.release.seeded
        assert not any("seed" in note for note in one.notes)

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
        with pytest.raises(InvalidPopulation, match="10 users and 3 items"):
            simulate(population_of(np.ones((10, 3))), Plan(users=users, items=items), journal=charges.append)
        assert charges == []

    def test_a_population_without_a_count(self) -> None:
        charges: list[Charge] = []
        empty, plan = population_of(np.zeros((10, 3), dtype=int)), Plan(users=10, items=3)
        with pytest.raises(InvalidPopulation, match="no user has any item"):
            simulate(empty, plan, journal=charges.append)
        assert charges == []
        # Without a look at the truth an empty population is released like any other.
        assert simulate(empty, plan, seed=1, truth=False).release.histogram.shape == (3,)

    def test_stored_zeros_are_no_counts(self) -> None:
        stored = SparsePopulation.from_arrays([0, 1, 2], [0, 1], [0, 0], domain_size=2)
        with pytest.raises(InvalidPopulation, match="no user has any item"):
            simulate(stored, Plan(users=2, items=2))

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
            seed=1,
            journal=charges.append,
            on_phase=phases.append,
        )
        assert tuple(charges) == result.release.charges
        assert phases == ["truth", "plan", "select", "release", "account", "truth"]
        assert set(result.seconds) == set(phases)

    def test_bytes_depend_on_the_plan_and_not_on_the_data(self) -> None:
        plan = Plan(users=10, items=300)
        few, many = np.zeros((10, 300), dtype=int), np.full((10, 300), 9)
        few[0, 0] = 1
        sizes = [simulate(population_of(table), plan, seed=1).bytes_per_user for table in (few, many)]
        assert sizes[0] == sizes[1]
        # A header of 45 bytes; K + 1 bins of a count and a weight, and an item each, of 4 bytes.
        assert sizes[0] == {"select": 45 + 4 * 2 * 129, "release": 45 + 4 * 300}

    def test_the_oracle_is_told_from_private_selectors(self) -> None:
        table = table_of(50, 3)
        oracle = simulate(population_of(table), Plan(users=50, items=3, selector="oracle"), seed=1)
        assert not oracle.release.private
        assert math.isinf(oracle.total.epsilon)
        assert math.isinf(oracle.tight.epsilon)
        assert oracle.notes[0].startswith("not private")

    @pytest.mark.parametrize(("delta", "noted"), [(1e-2, True), (1e-6, False)])
    def test_a_delta_above_one_over_users_is_noted(self, delta: float, noted: bool) -> None:
        plan = Plan(users=1_000, items=2, delta=delta)
        notes = simulate(population_of(np.ones((1_000, 2))), plan, seed=1).notes
        assert any("above 1/users" in note for note in notes) is noted

    def test_means_over_trials(self) -> None:
        population, plan = population_of(table_of(80, 3)), Plan(users=80, items=3)
        results = [simulate(population, plan, seed=seed) for seed in (4, 5, 6)]
        document = mean_over_trials(results)
        assert [trial["seed"] for trial in document["trials"]] == [4, 5, 6]
        assert document["threshold"] == pytest.approx(np.mean([r.threshold for r in results]))
        for name in known(results[0]).to_json():
            assert document[name] == pytest.approx(np.mean([getattr(known(r), name) for r in results]))


def known(result: Result) -> Any:
    assert result.diagnostics is not None
    return result.diagnostics
