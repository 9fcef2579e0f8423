"""Faulty nodes on Flower are those of one process: the same release, sums, counts and effects for the same seed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_lost_nodes import (
    FOUND,
    FOUND_MASKED,
    MASKED,
    NODES,
    PLAIN,
    POPULATION,
    in_round_two,
    nobody,
    release_of,
)
from test_lost_nodes import simulation as on_nodes

from fedhist import Plan, RoundFailed, simulate
from tests.support.api import _mapped, engine_named, read_identities
from tests.support.refusals import refused

KINDS: dict[str, Any] = {
    "dropout": 0.1,
    "faulty": {"fail": 0.1, "inflate": 0.1},
}
LIES: dict[str, Any] = {"dropout": 0.05, "faulty": {"fail": 0.05, "inflate": 0.1}}
KEPT = Plan(users=400, domain="open", release="truncated-laplace", max_threshold=60)
SIGNED = Plan.from_json(MASKED.to_json() | {"masking": "secagg-signed"})
BY_DEVICES = Plan.from_json(MASKED.to_json() | {"noise_from": "devices"})
RUNS = {
    "closed": (PLAIN, KINDS),
    "found": (FOUND, KINDS),
    "kept": (KEPT, KINDS),
    "debiased": (Plan(users=400, items=12, debias="poisson"), KINDS),
    "masked": (MASKED, LIES),
    "signed": (SIGNED, LIES),
    "noised by devices": (BY_DEVICES, LIES),
    "found, masked": (FOUND_MASKED, {"dropout": 0.05, "faulty": {"inflate": 0.1}}),
}


@pytest.fixture(autouse=True)
def _files() -> None:
    """Each test has a folder of its own."""
    _mapped.cache_clear()
    read_identities.cache_clear()


@pytest.mark.parametrize("name", RUNS)
def test_every_engine_has_the_same_faulty_nodes(tmp_path: Path, name: str) -> None:
    plan, shares = RUNS[name]
    with on_nodes(tmp_path, nobody, **shares) as engine:
        there = simulate(POPULATION, plan, seed=8, engine=lambda *_, **__: nullcontext(engine))  # type: ignore[arg-type]
    here = simulate(POPULATION, plan, seed=8, engine=engine_named("in-process", nodes=NODES, **shares))
    assert np.array_equal(there.release.histogram, here.release.histogram)
    assert (there.threshold, there.users, there.diagnostics) == (here.threshold, here.users, here.diagnostics)
    assert there.faults == here.faults
    for round_, report in there.rounds.items():
        if not plan.is_masked:
            assert report.faults == here.rounds[round_].faults
        assert report.answered == here.rounds[round_].answered


@pytest.mark.parametrize("shares", [{}, {"dropout": 0.1}, KINDS], ids=["no faults", "dropouts", "all kinds"])
def test_a_loss_beyond_the_modelled_ones_still_fails_the_round(tmp_path: Path, shares: Any) -> None:
    with on_nodes(tmp_path, in_round_two, **shares) as engine:
        drawn = engine.assignment
        assert drawn is None or 7 not in drawn.missing(list(drawn.dropped)[-1], masked=False)
        with refused(RoundFailed, "nodes-lost", "20"):
            release_of(engine, PLAIN)
