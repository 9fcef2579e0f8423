from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from fedhist import HeavyTailedPopulation, Histograms, InvalidInput, PoissonPopulation, Population
from tests.builders import population_of, table_of
from tests.support.api import InvalidPopulation, item_probabilities, materialise, user_totals
from tests.support.api import populations_module as populations
from tests.support.api import synthetic_module as synthetic
from tests.support.refusals import refused


def totals_of(population: Population) -> npt.NDArray[np.int64]:
    return np.concatenate([user_totals(shard) for shard in population.shards()])


class TestHeavyTail:
    population = HeavyTailedPopulation(users=50_000, items=1_000, seed=11)

    def test_totals_have_a_small_median_and_a_long_tail(self) -> None:
        median, late, last = np.quantile(totals_of(self.population), [0.5, 0.99, 0.999])
        assert 17 <= median <= 23
        assert 400 <= late <= 900
        assert 1_400 <= last <= 2_600

    def test_popularity_falls_like_a_power_of_the_rank(self) -> None:
        shares = self.population.totals() / self.population.totals().sum()
        # The density 1/(x + 2) gives item j a share proportional to log((j + 3) / (j + 2)).
        ranks = np.arange(1_000)
        expected = np.log((ranks + 3) / (ranks + 2)) / np.log(1_002 / 2)
        for group in (slice(0, 1), slice(1, 10), slice(10, 100), slice(100, 1_000)):
            assert shares[group].sum() == pytest.approx(expected[group].sum(), rel=0.1)

    def test_users_have_favourites_of_their_own(self) -> None:
        population = materialise(self.population)
        lengths = np.diff(population.histograms.offsets)
        heavy = np.flatnonzero((lengths > 20) & (totals_of(population) > 100))[:500]
        favourites, shares = [], []
        for user in heavy:
            row = population.histograms.rows(int(user), int(user) + 1)
            counts = row.counts[row.offsets[0] : row.offsets[1]]
            favourites.append(int(row.items[row.offsets[0] + counts.argmax()]))
            shares.append(counts.max() / counts.sum())
        # The most popular item has a share of 0.065; a user's favourite has far more, and favourites differ.
        assert np.mean(shares) > 0.15
        assert len(set(favourites)) > 100

    @pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
    def test_popularity_falls_with_the_exponent_asked_for(self, exponent: float) -> None:
        """The share of ranks below a bound is that of the density (x + 2)^-exponent."""
        population = HeavyTailedPopulation(users=1, items=1_000, seed=1, exponent=exponent)
        ranks = population._ranks((np.arange(100_000) + 0.5) / 100_000)
        density = (np.arange(0, 1_000, 0.01) + 2.005) ** -exponent
        for end in (5, 50, 500):
            exact = density[: end * 100].sum() / density.sum()
            assert (ranks < end).mean() == pytest.approx(exact, abs=2e-3)


class TestKeptBlocks:
    """Users are the same whether they were kept, and what is kept has a limit."""

    @pytest.mark.parametrize(("limit", "blocks"), [(0, 0), (500_000, 1), (synthetic.KEPT_BYTES, 3)])
    def test_every_pass_has_the_same_users(
        self, monkeypatch: pytest.MonkeyPatch, limit: int, blocks: int
    ) -> None:
        monkeypatch.setattr(synthetic, "KEPT_BYTES", limit)
        population = HeavyTailedPopulation(users=10_000, items=500, seed=3)
        assert (table_of(population) == table_of(population)).all()
        kept = population._kept.blocks.values()
        assert len(kept) == blocks
        assert sum(one.items.nbytes + one.counts.nbytes + one.offsets.nbytes for one in kept) <= limit

    def test_a_population_is_still_what_it_is_drawn_with(self) -> None:
        population = HeavyTailedPopulation(users=5_000, items=50, seed=3)
        population.totals()
        assert population == HeavyTailedPopulation(users=5_000, items=50, seed=3)
        assert len(pickle.dumps(population)) < 1_000


class TestPoisson:
    def test_cells_have_the_mean_and_variance_of_the_law(self) -> None:
        population = PoissonPopulation(users=40_000, items=20, seed=4)
        p = 1 / (np.arange(1, 21) + 50)
        expected = 100 * p / p.sum()
        assert item_probabilities(20) == pytest.approx(p / p.sum())
        table = table_of(population)
        # Five standard errors of the mean and of the variance of 40,000 Poisson draws.
        assert np.abs(table.mean(axis=0) - expected).max() < 5 * np.sqrt(expected.max() / 40_000)
        assert np.abs(table.var(axis=0) / expected - 1).max() < 5 * np.sqrt(2.5 / 40_000)
        # Cells are independent, so a user's total is Poisson too.
        assert table.sum(axis=1).var() == pytest.approx(100, rel=5 * np.sqrt(2.1 / 40_000))

    @pytest.mark.parametrize("mean", [1e-9, 0.01, 3.0, 10_000.0])
    def test_the_mean_is_a_setting(self, mean: float) -> None:
        population = PoissonPopulation(users=100, items=500, seed=4, mean=mean)
        assert population.totals().sum() == pytest.approx(100 * mean, abs=5 * np.sqrt(100 * mean))

    @pytest.mark.parametrize("mean", [0.0, float("nan"), 10_001.0])
    def test_impossible_means_are_refused(self, mean: float) -> None:
        with refused(InvalidInput, "bad-mean-total"):
            PoissonPopulation(users=5, items=5, seed=0, mean=mean)


class TestMaterialise:
    def test_what_shards_hold_is_checked(self) -> None:
        class Wrong:
            users = 1
            domain_size = 2

            def shards(self) -> Iterator[Histograms]:
                yield Histograms(np.array([0, 1]), np.array([5]), np.array([1]), domain_size=2)

        with refused(InvalidPopulation, "item-outside-domain"):
            materialise(Wrong())

    def test_views_into_larger_arrays_and_labels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = population_of([[1, 2, 0], [0, 0, 3], [4, 0, 5]], labels=["a", "b", "c"])
        monkeypatch.setattr(populations, "SHARD_USERS", 1)
        again = materialise(whole)
        assert (table_of(again) == table_of(whole)).all()
        assert again.labels == ("a", "b", "c")
