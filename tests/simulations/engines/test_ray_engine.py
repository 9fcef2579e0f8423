"""Parts of the users on Ray: the same release, also when a machine of the cluster is lost. Really run."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import pytest

import fedhist
from fedhist import HeavyTailedPopulation, InvalidInput, RoundFailed, SeededSource
from fedhist.testing import PLANS
from tests.builders import ROOT
from tests.loopback_cluster import SECONDS, Cluster, environment, loopback_cluster
from tests.support.api import (
    InvalidFile,
    ItemTotals,
    RayTransport,
    _Sums,
    _Work,
    add_sums,
    materialise,
    select_request,
    sum_part,
    write_mapped,
)
from tests.support.api import ray_engine_module as ray_engine
from tests.support.refusals import refused

USERS = materialise(HeavyTailedPopulation(users=300, items=12, seed=2))


def work(population: object) -> _Work:
    return _Work((), pickle.dumps(population), pickle.dumps([ItemTotals()]))


class TestATask:
    """Called here, without Ray: what it returns is what the driver and the other tasks see."""

    @pytest.fixture(autouse=True)
    def here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray_engine, "_machine", lambda: "here")

    def test_sums_its_part_and_says_which_it_was(self, tmp_path: Path) -> None:
        sums, receipt = sum_part(work(write_mapped(USERS, tmp_path)), 7, 100, 160)
        assert sums is not None
        assert (sums.parts, sums.users, receipt.machine) == ((7,), 60, "here")
        assert np.array_equal(sums.of[0], USERS.part(100, 160).totals())

    def test_adds_up_sums_of_different_parts(self) -> None:
        some = [sum_part(work(USERS), n, 100 * n, 100 * n + 100)[0] for n in range(3)]
        added, _ = add_sums(work(USERS), *[one for one in some if one is not None])
        assert added is not None
        assert (added.parts, added.users) == ((0, 1, 2), 300)
        assert np.array_equal(added.of[0], USERS.totals())

    def test_refuses_a_part_that_is_there_twice(self) -> None:
        one = _Sums((3,), 1, [np.zeros(12, dtype=np.int64)])
        sums, receipt = add_sums(work(USERS), one, _Sums((4, 3), 2, one.of))
        assert sums is None
        with refused(RoundFailed, "summed-twice"):
            raise pickle.loads(receipt.problem)  # noqa: S301 - made here

    def test_sends_home_what_it_failed_at(self, tmp_path: Path) -> None:
        stored = write_mapped(USERS, tmp_path)
        (tmp_path / "counts.bin").write_bytes(b"")
        sums, receipt = sum_part(work(stored), 0, 0, 10)
        assert sums is None
        with refused(InvalidFile, "invalid-file"):
            raise pickle.loads(receipt.problem)  # noqa: S301 - made here


class TestRefusals:
    def test_of_masks_before_anything_is_read(self) -> None:
        with refused(InvalidInput, "engine-without-masks"):
            fedhist.histogram("missing.csv", engine="ray", masking="secagg")

    def test_of_masks_by_the_engine_itself(self) -> None:
        transport = RayTransport(USERS, SeededSource(1))
        with refused(InvalidInput, "engine-without-masks"):
            transport.total(select_request(PLANS["masked"]))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Not below pytest's folder: Ray's sockets allow short paths only.
    temporary = Path(mkdtemp(prefix="ray-"))
    try:
        with loopback_cluster(temporary, raylets=3, cores=1) as made:
            yield made
    finally:
        rmtree(temporary, ignore_errors=True)


def run(script: str, folder: Path, *arguments: str, **more: str) -> str:
    """What a script prints, in a process of its own: Ray reads its environment once."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder, env=environment(folder, **more), capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# The parent says when a round has begun and waits until the test has killed a machine. Parts are slow enough for that.
KILLED = """
import sys, time
from dataclasses import dataclass
from fedhist.protocol.plan import Plan
from fedhist.protocol.events import Read
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation
from fedhist.simulations.engines.contract import engine_named
from fedhist.simulations.simulation import simulate

population = HeavyTailedPopulation(users=400_000, items=50, seed=1)
plan = Plan(users=population.users, items=50)
parts = 0

def observe(event):
    global parts
    if isinstance(event, Read):
        parts += 1
        if parts == 4:
            import ray

            print("begun", sum(machine["Alive"] for machine in ray.nodes()), flush=True)
            sys.stdin.readline()

there = simulate(population, plan, seed=3, observe=observe, engine=engine_named("ray", ray_address=sys.argv[1]))
here = simulate(population, plan, seed=3)
print(there.release.histogram.tolist() == here.release.histogram.tolist())
print(there.diagnostics == here.diagnostics, there.users == here.users == {"select": 400_000, "release": 400_000})
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("cluster")
class TestOnACluster:
    def test_a_command_is_that_of_one_machine(self, cluster: Cluster, tmp_path: Path) -> None:
        table = tmp_path / "t.csv"
        rows = [f"u{user},i{item}" for user in range(300) for item in range(user % 7)]
        table.write_text("user,item\n" + "\n".join(rows) + "\n")
        asked = [
            "run",
            "--data",
            str(table),
            "--domain",
            "open",
            "--epsilon",
            "5",
            "--seed",
            "1",
            "--quiet",
            "--evaluate",
        ]
        script = "import sys; from fedhist.commands.cli import main; main(sys.argv[1:])"
        ray = ["--engine", "ray", "--ray-address", cluster.address]
        run(script, tmp_path, *asked, "--out", "here")
        run(script, tmp_path, *asked, "--out", "there", *ray)
        for name in ("histogram.csv", "simulation.json"):
            assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()

    def test_a_machine_that_is_lost_in_a_round_changes_nothing(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        driver = subprocess.Popen(
            [sys.executable, "-c", KILLED, cluster.address],
            cwd=tmp_path, env=environment(tmp_path), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "begun 4\n"
            cluster.kill(0)
            cluster.kill(1)
            said, errors = driver.communicate("go on\n", timeout=300)
        finally:
            driver.kill()
        assert driver.returncode == 0, errors
        assert said.split() == ["True", "True", "True"]


LOCAL = """
import json, sys
sys.path.append(ROOT)
from fedhist.simulations.engines.contract import engine_named
from fedhist.simulations.datasets.synthetic import materialise
from tests.support.engines import ENGINE, ENGINE_PLANS, USERS, compared

plans = {name: plan for name, plan in ENGINE_PLANS.items() if not plan.is_masked}
problems = {}
faults = {"dropout": 0.1, "faulty": {"inflate": 0.1, "fail": 0.1}}
for population, shares in ((USERS, {}), (materialise(USERS), faults), (materialise(USERS).part(0, 1), {})):
    here, there = (engine_named(name, **shares) for name in ("ray", "in-process"))
    runs = compared(here, population=population, plans=plans, reference=there)
    for check in ENGINE.checks:
        try:
            ENGINE.run(check, runs)
        except AssertionError as problem:
            problems[check] = str(problem)
print(json.dumps([problems, len(runs.here)]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_ray_of_our_own_keeps_the_engine_s_contract(tmp_path: Path) -> None:
    problems, plans = json.loads(run(LOCAL.replace("ROOT", repr(str(ROOT))), tmp_path))
    assert problems == {}
    assert plans > 3


HIDDEN = """
import json
import polars as pl
import fedhist

rows = pl.DataFrame({"user": [f"u{n % 70}" for n in range(400)], "item": [f"i{n * n % 5}" for n in range(400)]})
how = {"items": [f"i{n}" for n in range(5)], "users": 50, "neighbours": "add-or-remove-one", "seed": 3}
runs = [fedhist.histogram(rows.head(USED), engine=engine, **how) for engine in ("in-process", "ray")]
print(json.dumps([(one.release.histogram.tolist(), one.users, one.to_json()["bytes_per_user"]) for one in runs]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rows", [400, 0])
def test_a_hidden_number_of_users_is_as_hidden_on_ray(tmp_path: Path, rows: int) -> None:
    """Twenty users more than the given number, and none at all: the same release as in one process."""
    here, there = json.loads(run(HIDDEN.replace("USED", str(rows)), tmp_path))
    assert here == there
    assert there[1] == {"select": 50, "release": 50}
