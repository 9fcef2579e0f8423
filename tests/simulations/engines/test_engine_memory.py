"""The in-process engine reads shard by shard: memory does not grow with the number of users."""

from __future__ import annotations

import tracemalloc

import pytest

from fedhist import HeavyTailedPopulation, Plan, simulate
from tests.support.api import engine_named, materialise
from tests.support.api import synthetic_module as synthetic


def peak_bytes(users: int) -> int:
    """The most memory that both rounds over so many synthetic users hold at a time."""
    population = HeavyTailedPopulation(users=users, items=50, seed=1)
    plan = Plan(users=users, items=50, selector="weighted-quantile", max_threshold=50)
    tracemalloc.start()
    try:
        simulate(population, plan, seed=1)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_peak_memory_is_that_of_a_few_shards_however_many_users(monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks that a population keeps have a limit of their own, which these users do not reach.
    monkeypatch.setattr(synthetic, "KEPT_BYTES", 0)
    peak_bytes(1_000)  # what is imported and cached once is not what is measured
    few, many = peak_bytes(10_000), peak_bytes(40_000)
    assert many < 1.2 * few
    # It would be seen: 40,000 users in memory alone are more than that.
    stored = materialise(HeavyTailedPopulation(users=40_000, items=50, seed=1)).histograms
    assert stored.items.nbytes + stored.counts.nbytes + stored.offsets.nbytes > many - few


def masked_peak_bytes(participants: int) -> int:
    """The same for a masked release over 20,000 items in one process, with drop-outs."""
    population = HeavyTailedPopulation(users=60, items=20_000, seed=1)
    plan = Plan(
        users=60, items=20_000, selector="fixed", threshold=9.0, masking="secagg", participants=participants
    )
    tracemalloc.start()
    try:
        simulate(population, plan, seed=1, evaluate=False, engine=engine_named("in-process", dropout=0.1))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_masked_round_holds_a_few_vectors_however_many_participants() -> None:
    """Forty more participants have forty more vectors of 160 kB."""
    masked_peak_bytes(20)  # what is imported and cached once
    few, many = masked_peak_bytes(20), masked_peak_bytes(60)
    assert many - few < 40 * 160_000 / 2
