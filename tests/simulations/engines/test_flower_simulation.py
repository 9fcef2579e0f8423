"""The parts of the engine on Flower's simulation, which starts for the contract of engines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import HeavyTailedPopulation, InvalidInput
from tests.builders import population_of, table_of
from tests.support.api import ENVIRONMENT, LOOPBACK, engine_named, quieten, read_part, write_mapped
from tests.support.refusals import refused


class TestNodeFiles:
    @pytest.mark.parametrize("parts", [1, 3, 7])
    @pytest.mark.parametrize("labels", [None, ["a", 7, "\ud800", "ü"]], ids=["numbers", "names"])
    def test_the_parts_are_the_population(self, tmp_path: Path, parts: int, labels: Any) -> None:
        table = np.random.default_rng(1).integers(0, 3, (7, 4))
        write_mapped(population_of(table, labels=labels), tmp_path)
        read = [read_part(tmp_path, number, parts) for number in range(parts)]
        assert {part.labels for part in read} == {None if labels is None else tuple(labels)}
        assert [user for part in read for shard in part.shards() for user in shard.user_numbers()] == [
            *range(7)
        ]
        assert np.array_equal(np.concatenate([table_of(part) for part in read]), table)

    def test_users_without_anything(self, tmp_path: Path) -> None:
        write_mapped(population_of(np.zeros((3, 2), dtype=np.int64)), tmp_path)
        assert read_part(tmp_path, 1, 2).users == 2


@pytest.mark.parametrize("nodes", [0, 6])
def test_every_node_has_a_user(nodes: int) -> None:
    population = HeavyTailedPopulation(users=5, items=2, seed=1)
    engine = engine_named("flower-simulation", nodes=nodes)
    with refused(InvalidInput, "bad-nodes"), engine(population, seed=1):
        pass


class TestTelemetry:
    def test_it_is_off_before_flower_is_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ENVIRONMENT:
            monkeypatch.setenv(name, "")
        for name in ("flwr", "ray"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        quieten()
        assert {name: os.environ[name] for name in ENVIRONMENT} == ENVIRONMENT

    def test_too_late_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "flwr", sys)
        monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
        with refused(InvalidInput, "telemetry-on", "FLWR_TELEMETRY_ENABLED=0"):
            quieten()

    def test_so_is_a_ray_that_would_listen_to_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(LOOPBACK)
        monkeypatch.setitem(sys.modules, "ray", sys)
        quieten(loopback=False)
        assert LOOPBACK not in os.environ
        with refused(InvalidInput, "ray-not-on-loopback", LOOPBACK):
            quieten()
