"""Every synthetic population of the registry keeps the same promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import HeavyTailedPopulation, Histograms, InvalidInput, PoissonPopulation, Population
from tests.support.api import DATASETS, PaperPopulation, make_population, materialise
from tests.support.populations import check_population
from tests.support.refusals import refused


def parts(shard: Histograms) -> tuple[bytes, bytes, bytes, int]:
    """All that a shard says, as bytes."""
    entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
    arrays = (np.diff(shard.offsets), shard.items[entries], shard.counts[entries])
    lengths, items, counts = (array.astype(np.int64).tobytes() for array in arrays)
    return lengths, items, counts, shard.first_user


def made(name: str, *, seed: int = 3, **sizes: int) -> Any:
    """A population of some blocks, unless sizes say otherwise."""
    return make_population(
        f"synthetic:{name}", seed=seed, **({"users": 140_000 if name == "rates" else 9_001} | sizes)
    )


@pytest.mark.parametrize("name", DATASETS)
class TestEveryDataset:
    def test_a_block_depends_on_the_seed_and_its_number_alone(self, name: str) -> None:
        in_order = [parts(shard) for shard in made(name).shards()]
        assert len(in_order) > 2
        for number in reversed(range(len(in_order))):
            # Of a fresh population each time, so that nothing was read before.
            population = made(name)
            block, left = population.block(number), population.users - number * population.block_users
            assert parts(block.rows(0, min(left, block.users))) == in_order[number]
        other = [parts(shard) for shard in made(name, seed=4).shards()]
        assert len({part[:3] for part in in_order + other}) == 2 * len(in_order)

    @pytest.mark.parametrize("users", [1, 100, 4_096, 4_097])
    def test_a_smaller_population_is_the_beginning_of_a_larger_one(self, name: str, users: int) -> None:
        few, many = materialise(made(name, users=users)), materialise(made(name))
        assert few.users == users
        assert parts(few.histograms) == parts(many.histograms.rows(0, users))

    def test_it_keeps_the_contract_and_stores_no_zero(self, name: str) -> None:
        population = made(name)
        check_population(population)
        stored = materialise(population)
        assert stored.histograms.counts.min() >= 1
        assert population.totals().tolist() == stored.totals().tolist()

    def test_the_far_end_of_an_enormous_population_is_there_at_once(self, name: str) -> None:
        population = made(name, seed=1, users=2**40)
        last = population.block((2**40 - 1) // population.block_users)
        assert last.first_user < 2**40 <= last.first_user + last.users

    @pytest.mark.parametrize("seed", [0, -1, 2**80])
    def test_any_integer_is_a_seed(self, name: str, seed: int) -> None:
        population = made(name, seed=seed, users=1)
        assert population.totals().shape == (population.domain_size,)

    @pytest.mark.parametrize("items", [1, 2])
    def test_tiny_domains(self, name: str, items: int) -> None:
        sizes = {"items": items} if "items" in DATASETS[name].defaults else {}
        assert made(name, users=200, **sizes).totals().min() > 0

    @pytest.mark.parametrize(
        ("size", "wrong"), [("users", 0), ("users", -1), ("users", 2**40 + 1), ("items", 0), ("items", 10**8)]
    )
    def test_impossible_sizes_are_refused(self, name: str, size: str, wrong: int) -> None:
        expected = f"bad-{size}" if size in DATASETS[name].defaults else "unknown-parameter"
        with refused(InvalidInput, expected):
            made(name, **{size: wrong})

    def test_its_parameters_can_be_written_out(self, name: str) -> None:
        query = "&".join(f"{key}={value}" for key, value in DATASETS[name].defaults.items())
        written = make_population(f"synthetic:{name}?{query}", seed=1)
        assert written == make_population(f"synthetic:{name}", seed=1)


class TestNames:
    @pytest.mark.parametrize(
        ("text", "sizes", "expected"),
        [
            (
                "heavy-tailed?exponent=1.5&items=20",
                {"users": 7, "items": None},
                HeavyTailedPopulation(users=7, items=20, seed=2, exponent=1.5),
            ),
            # The paper's sets in both readings.
            ("paper-iid", {}, PoissonPopulation(users=50_000, items=100, seed=2, mean=100.0)),
            ("paper-iid-text", {}, PoissonPopulation(users=500_000, items=100, seed=2, mean=100.0)),
            ("paper-non-iid", {}, PaperPopulation(users=50_000, items=100, seed=2, rate_shape=0.5)),
            ("paper-non-iid-text", {}, PaperPopulation(users=500_000, items=100, seed=2, rate_shape=2.0)),
        ],
    )
    def test_a_name_parameters_and_sizes_go_together(
        self, text: str, sizes: dict[str, Any], expected: Population
    ) -> None:
        found: Population = make_population(f"synthetic:{text}", seed=2, **sizes)
        assert found == expected

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("synthetic:zip", "unknown synthetic population 'zip'; allowed: heavy-tailed, zipf"),
            (
                "synthetic:zipf?seed=5",
                "has no parameter 'seed'; allowed: users, items, exponent; the seed is --seed",
            ),
            ("synthetic:zipf?users", "users has no value"),
            ("synthetic:zipf?users=5&users=6", "users is given twice"),
            ("synthetic:zipf?users=many", "users is 'many'; allowed: a whole number"),
            ("synthetic:zipf?exponent=steep", "exponent is 'steep'; allowed: a number"),
            ("synthetic:zipf?exponent=nan", "the exponent is nan; allowed: 0 to 4"),
        ],
    )
    def test_mistakes_are_told_with_what_is_allowed(self, text: str, words: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            make_population(text, seed=0)
        assert words in str(caught.value)

    def test_a_size_given_twice_is_refused(self) -> None:
        with refused(InvalidInput, "given-twice", "--users"):
            make_population("synthetic:zipf?users=5", seed=0, users=6)
