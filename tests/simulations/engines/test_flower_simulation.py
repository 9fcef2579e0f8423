"""Flower's Simulation Engine: a real one with ten nodes, and the parts of the engine alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.mapped_files import write_mapped
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation
from fedhist.simulations.engines.contract import engine_named
from fedhist.simulations.engines.node_files import read_part
from fedhist.simulations.engines.quiet import ENVIRONMENT, LOOPBACK, quieten
from fedhist.simulations.simulation import simulate
from tests.builders import population_of

ROOT = Path(__file__).resolve().parent.parent.parent

# One start of Flower and Ray for all modes: the nodes answer any plan.
SCRIPT = """
import json, sys, warnings
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.coordinator import run_rounds
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation
from fedhist.simulations.engines.contract import engine_named

assert "flwr" not in sys.modules
population = HeavyTailedPopulation(users=300, items=12, seed=2)
with engine_named("flower-simulation", nodes=10, dropout=0.1)(population, seed=8) as transport:
    for settings in json.loads(sys.argv[1]):
        plan = Plan(users=300, **settings)
        release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(8))
        print(json.dumps([release.threshold, release.histogram.tolist(), release.labels]))
"""
MASKED = {"masking": "secagg", "participants": 10}
MODES: list[dict[str, Any]] = [
    {"items": 12},
    {"items": 12, "mechanism": "laplace"},
    {"domain": "open", "epsilon": 4.0, "max_threshold": 100},
    {"domain": "open", "epsilon": 4.0, "max_threshold": 100, "statistic": "bucketed", "buckets": 32},
    {"items": 12, "debias": "poisson", "mechanism": "laplace"},
    {"items": 12, "selector": "oracle"},
    {"items": 12} | MASKED,
    {"items": 12, "noise_from": "devices", "mechanism": "laplace"} | MASKED,
    {"items": 12} | MASKED | {"masking": "secagg-signed"},
    {"domain": "open", "epsilon": 4.0, "max_threshold": 100, "buckets": 32, "table_capacity": 20} | MASKED,
]


# Ray starts within this, also on a busy machine.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.slow
def test_ten_real_nodes_release_the_same_bit_for_bit_in_every_mode(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR", "RAY"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(MODES)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env=environment | {"FLWR_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    there = [json.loads(line) for line in done.stdout.splitlines()]
    population = HeavyTailedPopulation(users=300, items=12, seed=2)
    for settings, (threshold, histogram, labels) in zip(MODES, there, strict=True):
        engine = engine_named("in-process", dropout=0.1)
        here = simulate(population, Plan(users=300, **settings), seed=8, engine=engine).release
        assert threshold == here.threshold
        assert histogram == here.histogram.tolist()
        assert labels == (None if here.labels is None else list(here.labels))


class TestNodeFiles:
    @pytest.mark.parametrize("parts", [1, 3, 7])
    @pytest.mark.parametrize("labels", [None, ["a", 7, "\ud800", "ü"]], ids=["numbers", "names"])
    def test_the_parts_are_the_population(self, tmp_path: Path, parts: int, labels: Any) -> None:
        table = np.random.default_rng(1).integers(0, 3, (7, 4))
        write_mapped(population_of(table, labels=labels), tmp_path)
        read = [read_part(tmp_path, number, parts) for number in range(parts)]
        rows = []
        for part in read:
            assert part.labels == (None if labels is None else tuple(labels))
            for shard in part.shards():
                assert shard.first_user == len(rows)
                for user in range(shard.users):
                    row = np.zeros(4, dtype=np.int64)
                    own = slice(int(shard.offsets[user]), int(shard.offsets[user + 1]))
                    row[shard.items[own]] = shard.counts[own]
                    rows.append(row)
        assert np.array_equal(rows, table)

    def test_users_without_anything(self, tmp_path: Path) -> None:
        write_mapped(population_of(np.zeros((3, 2), dtype=np.int64)), tmp_path)
        assert read_part(tmp_path, 1, 2).users == 2


class TestChoosingAnEngine:
    def test_an_unknown_one_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="allowed: in-process, flower-simulation"):
            engine_named("cloud")

    @pytest.mark.parametrize("nodes", [0, 6])
    def test_every_node_has_a_user(self, nodes: int) -> None:
        population = HeavyTailedPopulation(users=5, items=2, seed=1)
        with (
            pytest.raises(InvalidInput, match="at least one user each"),
            engine_named("flower-simulation", nodes=nodes)(population, seed=1),
        ):
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
        with pytest.raises(InvalidInput, match="FLWR_TELEMETRY_ENABLED=0"):
            quieten()

    def test_so_is_a_ray_that_would_listen_to_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(LOOPBACK)
        monkeypatch.setitem(sys.modules, "ray", sys)
        quieten(loopback=False)
        assert LOOPBACK not in os.environ
        with pytest.raises(InvalidInput, match=f"{LOOPBACK}=0"):
            quieten()
