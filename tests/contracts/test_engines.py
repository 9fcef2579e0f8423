"""Every engine releases the same, whatever is measured, and what the contract makes of wrong ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fedhist import SeededSource
from tests.builders import ROOT
from tests.support.api import ENGINES, InProcess, engine_named, materialise
from tests.support.engines import ENGINE, ENGINE_PLANS, USERS, check_engine, compared

# Flower reads its environment once, so its engine starts in a process of its own, and once for all checks.
SCRIPT = f"""
import json, sys
sys.path.append({str(ROOT)!r})
from fedhist.simulations.engines.contract import engine_named
from tests.support.engines import ENGINE, compared

faults = dict(nodes=10, dropout=0.1, faulty=dict(inflate=0.1))
here, there = engine_named("flower-simulation", **faults), engine_named("in-process", **faults)
runs, problems = compared(here, reference=there), dict()
for check in ENGINE.checks:
    try:
        ENGINE.run(check, runs)
    except AssertionError as problem:
        problems[check] = str(problem)
print(json.dumps([problems, list(runs.here)]))
"""
FEW = {name: ENGINE_PLANS[name] for name in ("gaussian", "open", "masked")}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_flowers_simulation_keeps_the_contract(tmp_path):
    """All checks in one test: two processes of pytest would each start the engine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR", "RAY"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=280, check=False,
        cwd=tmp_path, env=environment | {"FLWR_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr == ""
    problems, plans = json.loads(done.stdout)
    assert plans == list(ENGINE_PLANS)
    assert problems == {}


@pytest.fixture(scope="module")
def in_process():
    return compared(engine_named("in-process"))


@pytest.mark.parametrize("check", ENGINE.checks)
def test_the_engine_in_this_process_keeps_the_contract(in_process, check):
    assert list(in_process.here) == list(ENGINE_PLANS)
    ENGINE.run(check, in_process)


@pytest.fixture(scope="module")
def in_several_processes():
    return compared(engine_named("in-process", workers=3), population=materialise(USERS))


@pytest.mark.parametrize("check", ENGINE.checks)
def test_several_processes_keep_the_contract(in_several_processes, check):
    ENGINE.run(check, in_several_processes)


def test_these_are_all_engines():
    assert set(ENGINES) == {"in-process", "ray", "flower-simulation"}


@pytest.mark.parametrize(
    ("kept", "changes", "name"),
    [
        (None, lambda total: {"values": total.values - 1}, "the_same_plan_and_seed_give_the_same_release"),
        (
            "totals",
            lambda total: {"users": total.users - 1},
            "the_exact_totals_are_those_of_all_users",
        ),
        ("reports", lambda report: {"users": 1}, "every_round_is_reported"),
    ],
)
def test_a_wrong_one_is_caught(caught_by, kept, changes, name):
    class Wrong(InProcess):
        def total(self, request):
            total = super().total(request)
            if kept is None:
                return replace(total, **changes(total))
            said = getattr(self, kept)
            said[request.round] = replace(said[request.round], **changes(said[request.round]))
            return total

    @contextmanager
    def engine(population, *, seed):
        yield Wrong(population, SeededSource(seed))

    caught_by(name, check_engine, engine, plans=FEW)
