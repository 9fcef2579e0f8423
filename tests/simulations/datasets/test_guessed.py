"""The model population: it is what was guessed, and guesses that contradict each other are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput
from tests.support.api import GuessedPopulation, user_totals
from tests.support.populations import check_population
from tests.support.refusals import refused


def shape(population: GuessedPopulation) -> tuple[np.ndarray, float]:
    """Everybody's total, and the mean number of distinct items."""
    check_population(population)
    shards = list(population.shards())
    totals = np.concatenate([user_totals(shard) for shard in shards])
    return totals, sum(shard.nonzeros for shard in shards) / population.users


@pytest.mark.parametrize(
    "guesses",
    [
        {},
        {"mean_total": 200.0, "distinct_items": 20.0, "tail_index": 1.2},
        {"mean_total": 3.0, "distinct_items": 1.5, "tail_index": 5.0},
        {"mean_total": 1.0, "distinct_items": 1.0},
        {"mean_total": 40.0, "distinct_items": 1.0, "tail_index": 100.0},
    ],
)
def test_it_has_the_means_that_were_guessed(guesses: dict[str, Any]) -> None:
    population = GuessedPopulation(users=6_000, items=300, seed=1, **guesses)
    totals, different = shape(population)
    assert len(totals) == population.users
    assert totals.min() >= 1
    assert totals.mean() == pytest.approx(population.mean_total, rel=0.01)
    assert different == pytest.approx(population.wanted_items, rel=0.03)


@pytest.mark.parametrize("index", [1.3, 2.5])
def test_the_tail_falls_with_the_guessed_index(index: float) -> None:
    totals, _ = shape(GuessedPopulation(users=20_000, items=50, seed=1, mean_total=100.0, tail_index=index))
    above = [np.count_nonzero(totals > x) for x in (200, 800)]
    assert np.log(above[0] / above[1]) / np.log(4) == pytest.approx(index, rel=0.1)


@pytest.mark.parametrize(
    ("guesses", "told"),
    [
        ({"mean_total": 5.0, "distinct_items": 9.0}, ("bad-distinct-items",)),
        ({"items": 3, "distinct_items": 9.0}, ("bad-distinct-items",)),
        ({"distinct_items": 0.2}, ("bad-distinct-items",)),
        ({"tail_index": 1.0}, ("bad-tail-index",)),
        ({"tail_index": float("nan")}, ("bad-tail-index",)),
        ({"mean_total": 0.5}, ("bad-mean-total",)),
        ({"users": 10**8}, ("bad-users",)),
    ],
)
def test_guesses_that_contradict_each_other_are_refused(
    guesses: dict[str, Any], told: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *told):
        GuessedPopulation(**{"users": 100, "items": 50, "seed": 1} | guesses)


def test_more_different_items_than_the_totals_allow_is_refused_with_the_most_there_is() -> None:
    crowded = GuessedPopulation(users=2_000, items=50, seed=1, mean_total=60.0, distinct_items=48.0)
    with refused(InvalidInput, "unreachable-items"):
        list(crowded.shards())


def test_totals_have_the_percentiles_that_were_given() -> None:
    sizes = ((30.0, 0.0), (50.0, 8.0), (90.0, 26.0), (99.9, 386.0))
    population = GuessedPopulation(users=20_000, items=100, seed=1, distinct_items=5.0, sizes=sizes)
    totals, items = shape(population)
    for percent, total in sizes[1:]:
        assert np.percentile(totals, percent) == pytest.approx(total, abs=1, rel=0.02)
    assert np.percentile(totals, 25) == 0
    assert totals.max() > 386
    assert items == pytest.approx(5.0, rel=0.05)
