from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Histograms, Population
from fedhist.protocol.validation import checked
from fedhist.simulations.datasets.paper_sets import (
    NumberedLabels,
    PaperPopulation,
    RatesPopulation,
    ZipfPopulation,
)
from fedhist.simulations.datasets.synthetic import PoissonPopulation, materialise

Kind = Callable[..., Any]
KINDS = {
    "iid": partial(PaperPopulation, kind="iid"),
    "non-iid": partial(PaperPopulation, kind="non-iid"),
    "zipf": ZipfPopulation,
}


def parts(shard: Histograms) -> tuple[bytes, bytes, bytes, int]:
    """All that a shard says, as bytes."""
    entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
    return (
        np.diff(shard.offsets).astype(np.int64).tobytes(),
        shard.items[entries].astype(np.int64).tobytes(),
        shard.counts[entries].astype(np.int64).tobytes(),
        shard.first_user,
    )


def table_of(population: Population) -> npt.NDArray[np.float64]:
    rows = materialise(population).histograms
    table = np.zeros((rows.users, rows.domain_size))
    table[np.repeat(np.arange(rows.users), np.diff(rows.offsets)), rows.items] = rows.counts
    return table


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestEveryPopulation:
    def test_the_same_seed_gives_the_same_bytes_however_it_is_read(self, kind: Kind) -> None:
        population = kind(users=10_000, items=50, seed=3)
        whole = [parts(shard) for shard in population.shards()]
        partly = population.shards()
        next(partly)
        assert [parts(shard) for shard in partly] == whole[1:]
        assert [parts(shard) for shard in kind(users=10_000, items=50, seed=3).shards()] == whole

    def test_seeds_and_blocks_differ(self, kind: Kind) -> None:
        one, two = (list(kind(users=9_000, items=50, seed=seed).shards()) for seed in (1, 2))
        assert len(one) > 1
        assert len({parts(shard)[:3] for shard in one + two}) == len(one) + len(two)

    @pytest.mark.parametrize("users", [1, 4_096, 4_097])
    def test_a_smaller_population_is_the_beginning_of_a_larger_one(self, kind: Kind, users: int) -> None:
        small = materialise(kind(users=users, items=50, seed=8))
        large = materialise(kind(users=6_000, items=50, seed=8))
        assert small.users == users
        assert parts(small.histograms) == parts(large.histograms.rows(0, users))

    def test_shards_are_valid_histograms_of_consecutive_users(self, kind: Kind) -> None:
        population = kind(users=9_001, items=30, seed=5)
        following = 0
        for shard in population.shards():
            assert shard.first_user == following
            following += shard.users
            entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
            again = checked(
                shard.offsets - shard.offsets[0], shard.items[entries], shard.counts[entries], domain_size=30
            )
            # No item stands twice, and no zero is stored.
            assert again.nonzeros == shard.nonzeros
            assert shard.counts[entries].min() >= 1
        assert following == population.users == 9_001

    def test_totals_are_those_of_the_population_in_memory(self, kind: Kind) -> None:
        population = kind(users=5_000, items=40, seed=2)
        assert population.totals().tolist() == materialise(population).totals().tolist()

    def test_the_beginning_of_an_enormous_population_is_there_at_once(self, kind: Kind) -> None:
        first, second = islice(kind(users=2**40, items=20, seed=1).shards(), 2)
        assert (first.first_user, second.first_user) == (0, first.users)

    @pytest.mark.parametrize("items", [1, 2])
    def test_tiny_domains(self, kind: Kind, items: int) -> None:
        assert kind(users=200, items=items, seed=1).totals().min() > 0

    @pytest.mark.parametrize("size", [{"users": 0}, {"items": 0}, {"items": 10**8}])
    def test_impossible_sizes_are_refused(self, kind: Kind, size: dict[str, int]) -> None:
        with pytest.raises(InvalidInput, match="asked for; allowed: 1 to"):
            kind(**({"users": 5, "items": 5, "seed": 0} | size))


class TestPaper:
    def test_iid_users_are_alike_with_a_mean_total_of_100(self) -> None:
        population = PaperPopulation(users=3_000, items=20, seed=4, kind="iid")
        alike = PoissonPopulation(users=3_000, items=20, seed=4, mean=100.0)
        assert [parts(shard) for shard in population.shards()] == [parts(shard) for shard in alike.shards()]
        assert population.item_probabilities() == pytest.approx(alike.item_probabilities())
        assert population.labels is None

    def test_non_iid_totals_are_a_gamma_mixture_of_poisson_totals(self) -> None:
        totals = table_of(PaperPopulation(users=60_000, items=30, seed=7, kind="non-iid")).sum(axis=1)
        # Rates are 200 Gamma(1/2): mean 100, variance 20,000, and a Poisson variance of 100 on top. Five standard
        # errors; the fourth moment of the rates is 3.75 variances squared above that of a normal.
        assert totals.mean() == pytest.approx(100, abs=5 * np.sqrt(20_100 / 60_000))
        assert totals.var() == pytest.approx(20_100, rel=5 * np.sqrt(14 / 60_000))
        # E exp(-200 Gamma(1/2)) = 201^(-1/2) of the users have nothing.
        nobody = 201**-0.5
        assert (totals == 0).mean() == pytest.approx(nobody, abs=5 * np.sqrt(nobody / 60_000))

    def test_the_paper_s_median_and_90_percent_baselines_lose_what_reproduced_it(self) -> None:
        totals = table_of(PaperPopulation(users=50_000, items=50, seed=1, kind="non-iid")).sum(axis=1)
        for quantile, lost in ((0.5, 0.702), (0.9, 0.169)):
            threshold = np.quantile(totals, quantile)
            assert np.maximum(totals - threshold, 0).sum() / totals.sum() == pytest.approx(lost, abs=0.012)

    def test_non_iid_cells_have_the_moments_of_a_dirichlet(self) -> None:
        population = PaperPopulation(users=100_000, items=8, seed=9, kind="non-iid")
        table = table_of(population)
        p = population.item_probabilities()
        assert p == pytest.approx((1 / np.arange(51, 59)) / (1 / np.arange(51, 59)).sum())
        # Dir(p/2) has E q_j = p_j and E q_j q_k = (p_j p_k / 2 + [j = k] p_j) / 1.5; rates have E R^2 = 30,000.
        second = (np.outer(p, p) / 2 + np.diag(p)) / 1.5
        expected = 30_000 * second + np.diag(100 * p)
        error = np.sqrt(table.var(axis=0) / len(table))
        assert (np.abs(table.mean(axis=0) - 100 * p) < 5 * error).all()
        products = table.T @ table / len(table)
        squares = table**2
        spread = np.sqrt(squares.T @ squares / len(table) - products**2) / np.sqrt(len(table))
        assert (np.abs(products - expected) < 5 * spread).all()

    def test_non_iid_users_have_few_items_of_their_own(self) -> None:
        population = materialise(PaperPopulation(users=20_000, items=200, seed=2, kind="non-iid"))
        # Of m samples from a Dirichlet of weight 1/2, about 1 + ln(m)/2 are of different items, however many there are.
        assert 2 < population.nonzeros / population.users < 4

    def test_other_kinds_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="unknown kind 'both'; allowed: iid or non-iid"):
            PaperPopulation(users=5, items=5, seed=0, kind="both")  # type: ignore[arg-type] # what is tested


class TestZipf:
    def test_popularity_falls_with_the_rank(self) -> None:
        totals = ZipfPopulation(users=20_000, items=5_000, seed=1).totals()
        shares = [
            totals[group].sum() / totals.sum() for group in (slice(0, 10), slice(10, 100), slice(100, 5_000))
        ]
        # The integral of 1/(x + 2) over each group, over ln(5,002 / 2).
        expected = np.log([12 / 2, 102 / 12, 5_002 / 102]) / np.log(5_002 / 2)
        assert shares == pytest.approx(expected, rel=0.1)

    def test_totals_of_users_have_a_long_tail(self) -> None:
        table = table_of(ZipfPopulation(users=8_000, items=500, seed=1))
        median, late = np.quantile(table.sum(axis=1), [0.5, 0.99])
        assert 17 <= median <= 23
        assert late > 20 * median

    def test_names_are_made_when_asked_for(self) -> None:
        population = ZipfPopulation(users=5, items=1_000_000, seed=1)
        assert len(population.labels) == population.domain_size == 1_000_000
        assert population.labels[123] == "item-000123"


class TestNumberedLabels:
    def test_is_a_sequence_of_different_names(self) -> None:
        names = NumberedLabels(101)
        assert list(names) == [names[number] for number in range(101)]
        assert len(set(names)) == len(names) == 101
        assert names[7] == "item-007"
        assert names[-1] == "item-100"
        assert names[2:4] == ["item-002", "item-003"]
        assert names.index("item-042") == 42
        assert "item-101" not in names
        assert names.count("item-042") == 1

    def test_names_are_in_order_of_their_numbers(self) -> None:
        assert sorted(NumberedLabels(1_200)) == list(NumberedLabels(1_200))

    @pytest.mark.parametrize("number", [3, -4])
    def test_there_is_no_name_beyond_the_end(self, number: int) -> None:
        with pytest.raises(IndexError):
            NumberedLabels(3)[number]

    def test_one_name_and_none(self) -> None:
        assert list(NumberedLabels(1)) == ["item-0"]
        assert list(NumberedLabels(0)) == []


class TestRatesOfOneItem:
    @pytest.mark.parametrize(("alpha", "mean"), [(0.5, 1.0), (3.0, 10.0), (1e6, 2.0)])
    def test_counts_have_the_mean_and_spread_of_a_gamma_poisson(self, alpha: float, mean: float) -> None:
        counts = table_of(RatesPopulation(users=100_000, seed=4, alpha=alpha, mean=mean))[:, 0]
        variance = mean + mean**2 / alpha
        assert counts.mean() == pytest.approx(mean, abs=5 * (variance / len(counts)) ** 0.5)
        assert counts.var() == pytest.approx(variance, rel=0.1)

    def test_a_smaller_one_is_the_beginning_of_a_larger_one(self) -> None:
        small, large = (table_of(RatesPopulation(users, 1, alpha=2.0)) for users in (70_000, 140_000))
        assert (small == large[:70_000]).all()

    @pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0, "mean": 0.0}, {"alpha": float("nan")}])
    def test_a_shape_or_mean_out_of_range_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(InvalidInput):
            RatesPopulation(users=10, seed=1, **wrong)


@pytest.mark.parametrize("shape", [0.5, 2.0])
def test_the_shape_of_the_rates_sets_the_spread_of_totals(shape: float) -> None:
    """Poisson totals with Gamma rates of mean 100 have the variance 100 + 100^2 / shape."""
    totals = table_of(PaperPopulation(40_000, 50, seed=2, kind="non-iid", rate_shape=shape)).sum(axis=1)
    assert totals.mean() == pytest.approx(100, rel=0.05)
    assert totals.var() == pytest.approx(100 + 100**2 / shape, rel=0.1)
