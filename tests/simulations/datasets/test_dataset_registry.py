"""Every synthetic population of the registry keeps the same promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Histograms, Population
from fedhist.protocol.validation import checked
from fedhist.simulations.datasets.paper_sets import PaperPopulation, RatesPopulation
from fedhist.simulations.datasets.registry import DATASETS, dataset_name, is_synthetic, make_population
from fedhist.simulations.datasets.synthetic import Blocks, HeavyTailedPopulation, materialise

USERS = 140_000


def parts(shard: Histograms) -> tuple[bytes, ...]:
    """All that a shard says, as bytes."""
    entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
    arrays = (
        np.diff(shard.offsets),
        shard.items[entries],
        shard.counts[entries],
        np.array([shard.first_user]),
    )
    return tuple(array.astype(np.int64).tobytes() for array in arrays)


def blocks_of(population: Population) -> Blocks:
    shards = population.shards()
    assert isinstance(shards, Blocks)
    return shards


def small(name: str, **more: int) -> Population:
    sizes = {"users": USERS if name == "rates" else 9_000} | more
    return make_population(f"synthetic:{name}", seed=3, **sizes)


@pytest.mark.parametrize("name", DATASETS)
class TestEveryDataset:
    def test_a_block_depends_on_the_seed_and_its_number_alone(self, name: str) -> None:
        in_order = [parts(shard) for shard in small(name).shards()]
        assert len(in_order) > 2
        for number in reversed(range(len(in_order))):
            # Of a fresh population each time, so that nothing was read before.
            assert parts(blocks_of(small(name)).at(number)) == in_order[number]
        other = make_population(f"synthetic:{name}", seed=4, users=small(name).users)
        assert parts(blocks_of(other).at(1)) != in_order[1]

    def test_a_smaller_population_is_the_beginning_of_a_larger_one(self, name: str) -> None:
        first = blocks_of(small(name)).at(0)
        few = next(iter(small(name, users=100).shards()))
        assert parts(few) == parts(first.rows(0, 100))

    def test_users_follow_each_other_and_are_valid(self, name: str) -> None:
        population = small(name)
        following = 0
        for shard in population.shards():
            assert shard.first_user == following
            following += shard.users
            entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
            again = checked(
                shard.offsets - shard.offsets[0],
                shard.items[entries],
                shard.counts[entries],
                domain_size=population.domain_size,
            )
            assert again.nonzeros == shard.nonzeros
        assert following == population.users

    def test_the_far_end_of_an_enormous_population_is_there_at_once(self, name: str) -> None:
        shards = blocks_of(make_population(f"synthetic:{name}", seed=1, users=2**40))
        last = shards.at(shards.count - 1)
        assert last.first_user + last.users == 2**40

    def test_its_parameters_can_be_written_out(self, name: str) -> None:
        query = "&".join(f"{key}={value}" for key, value in DATASETS[name].defaults.items())
        assert make_population(f"synthetic:{name}?{query}", seed=1) == make_population(
            f"synthetic:{name}", seed=1
        )


class TestNames:
    def test_parameters_and_sizes_go_together(self) -> None:
        made = make_population("synthetic:heavy-tailed?exponent=1.5&items=20", seed=2, users=7, items=None)
        assert made == HeavyTailedPopulation(users=7, items=20, seed=2, exponent=1.5)

    def test_the_paper_s_sets_in_both_readings(self) -> None:
        made: Any = make_population("synthetic:paper-non-iid", seed=0)
        assert made == PaperPopulation(users=50_000, items=100, seed=0, kind="non-iid", rate_shape=0.5)
        text: Any = make_population("synthetic:paper-non-iid-text", seed=0)
        assert text == PaperPopulation(users=500_000, items=100, seed=0, kind="non-iid", rate_shape=2.0)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("synthetic:zip", "unknown synthetic population 'zip'; allowed: heavy-tailed, zipf"),
            ("synthetic:", "unknown synthetic population ''"),
            ("synthetic:zipf?user=5", "has no parameter 'user'; allowed: users, items, exponent"),
            (
                "synthetic:zipf?seed=5",
                "has no parameter 'seed'; allowed: users, items, exponent; the seed is --seed",
            ),
            ("synthetic:zipf?users", "users has no value"),
            ("synthetic:zipf?users=5&users=6", "users is given twice"),
            ("synthetic:zipf?users=many", "users is 'many'; allowed: a whole number"),
            ("synthetic:zipf?users=1.5", "users is '1.5'; allowed: a whole number"),
            ("synthetic:zipf?exponent=steep", "exponent is 'steep'; allowed: a number"),
            ("synthetic:zipf?exponent=9", "the exponent is 9.0; allowed: 0 to 4"),
            ("synthetic:zipf?exponent=nan", "the exponent is nan; allowed: 0 to 4"),
            ("synthetic:zipf?users=0", "0 users were asked for; allowed: 1 to"),
            ("synthetic:poisson?mean=-1", "the mean total of a user is -1.0"),
            ("synthetic:rates?items=5", "has no parameter 'items'; allowed: users, alpha, mean"),
            ("synthetic:rates?alpha=0", "the shape of the rates is 0.0"),
        ],
    )
    def test_mistakes_are_told_with_what_is_allowed(self, text: str, words: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            make_population(text, seed=0)
        assert words in str(caught.value)

    def test_a_size_given_twice_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="users is given twice; allowed: once; leave out --users"):
            make_population("synthetic:zipf?users=5", seed=0, users=6)

    def test_names_and_files_are_told_apart(self) -> None:
        assert is_synthetic("synthetic:zipf") and not is_synthetic("zipf.csv")
        assert dataset_name("synthetic:zipf?users=5") == "zipf"


class TestDistributions:
    @pytest.mark.parametrize(("alpha", "mean"), [(0.5, 2.0), (3.0, 1.0)])
    def test_rates_are_gamma_so_counts_are_negative_binomial(self, alpha: float, mean: float) -> None:
        population = RatesPopulation(users=200_000, seed=2, alpha=alpha, mean=mean)
        rows = materialise(population).histograms
        counts = np.zeros(population.users)
        counts[np.diff(rows.offsets) > 0] = rows.counts
        variance = mean + mean**2 / alpha
        assert counts.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / population.users))
        assert counts.var() == pytest.approx(variance, rel=0.05)
        nobody = (alpha / (alpha + mean)) ** alpha
        assert (counts == 0).mean() == pytest.approx(nobody, abs=5 * np.sqrt(nobody / population.users))

    def test_the_printed_rates_have_the_variance_of_dir_2(self) -> None:
        population = PaperPopulation(users=40_000, items=10, seed=7, kind="non-iid", rate_shape=2.0)
        rows = materialise(population).histograms
        running = np.concatenate([[0], np.cumsum(rows.counts, dtype=np.int64)])
        totals = np.diff(running[rows.offsets])
        # Gamma(2) of mean 100 has a variance of 5,000, and the Poisson counts add 100.
        assert totals.mean() == pytest.approx(100, abs=5 * np.sqrt(5_100 / 40_000))
        assert totals.var() == pytest.approx(5_100, rel=0.08)

    def test_a_larger_exponent_puts_more_on_the_first_item(self) -> None:
        heads = []
        for exponent in (0.0, 0.5, 1.0, 2.0):
            totals = HeavyTailedPopulation(users=4_096, items=100, seed=1, exponent=exponent).totals()
            heads.append(totals[0] / totals.sum())
        assert heads == sorted(heads)
        assert heads[0] == pytest.approx(0.01, abs=0.005)

    @pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
    def test_popularity_falls_with_the_exponent_asked_for(self, exponent: float) -> None:
        """Of one user's favourites, the share of the first half of ranks is that of the density (x + 2)^-exponent."""
        population = HeavyTailedPopulation(users=1, items=1_000, seed=1, exponent=exponent)
        uniforms = (np.arange(100_000) + 0.5) / 100_000
        ranks = population._ranks(uniforms)
        density = (np.arange(0, 1_000, 0.01) + 2.005) ** -exponent
        for end in (5, 50, 500):
            exact = density[: end * 100].sum() / density.sum()
            assert (ranks < end).mean() == pytest.approx(exact, abs=2e-3)
