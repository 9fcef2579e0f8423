"""Builders for runs on a Flower grid in this process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from local_grid import Fault, LocalGrid, be_a_server

from fedhist import SeededSource, SparsePopulation, SystemSource
from fedhist.client import Policy, mount
from tests.builders import population_of
from tests.support.api import Source

UNLIMITED = Policy()


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    be_a_server()
    yield


class Lab:
    """Builders for the scenarios."""

    def population(
        self, users: int = 60, items: int = 6, seed: int = 3, named: bool = False
    ) -> SparsePopulation:
        random = np.random.default_rng(seed)
        table = random.poisson(2.0, (users, items)) * random.integers(1, 9, (users, 1))
        labels = [f"item-{i}" for i in range(items)] if named else None
        return population_of(table, labels=labels)

    def part(self, whole: SparsePopulation, number: int, parts: int) -> SparsePopulation:
        start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
        return SparsePopulation(whole.histograms.rows(start, stop), labels=whole.labels)

    def app(
        self, population: SparsePopulation, *, seed: int | None = None, policy: Policy = UNLIMITED
    ) -> ClientApp:
        """The app of a virtual node; it draws from the operating system without a seed."""
        source: Source = SystemSource() if seed is None else SeededSource(seed)
        return mount(
            ClientApp(),
            lambda context: population,
            policy=policy,
            source=lambda context: source,
            simulated=lambda context: True,
        )

    def grid(
        self,
        whole: SparsePopulation,
        nodes: int = 6,
        *,
        seed: int | None = None,
        faults: dict[int, Fault] | None = None,
        policy: Policy = UNLIMITED,
    ) -> LocalGrid:
        """The population over nodes numbered 100, 101, ...; faults by place."""
        parts = (self.part(whole, place, nodes) for place in range(nodes))
        return LocalGrid.of((self.app(part, seed=seed, policy=policy) for part in parts), faults)


@pytest.fixture
def lab() -> Lab:
    return Lab()
