"""Simulated campaigns: one memory file for all devices, the same release on every engine, and nothing without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedhist
from fedhist import Charge, InvalidInput, Plan, Result, RoundFailed, SparsePopulation, simulate
from tests.builders import ROOT, Fedhist, population_of
from tests.support.api import ONE, Event, MemoryFile, Viewed, engine_named

MASKED: dict[str, Any] = {"masking": "secagg", "participants": 4}


def users_of(day: int) -> SparsePopulation:
    return population_of(np.random.default_rng(day).poisson(3, (60, 6)))


def plan_of(day: int, **settings: Any) -> Plan:
    terms = {"window": f"2026-11-{day:02}", "campaign": "autumn", "visits": 2, "max_threshold": 50}
    return Plan(users=60, items=6, **(terms | settings))


def ran(day: int, memory: Path, engine: str = "in-process", **settings: Any) -> Result:
    own = {name: settings.pop(name) for name in ("workers", "nodes") if name in settings}
    plan = plan_of(day, **settings)
    opened = engine_named(engine, **own)
    return simulate(users_of(day), plan, seed=day, evaluate=True, engine=opened, campaign_memory=memory)


# Flower and Ray read their environment once, so they start in a process of their own.
ON_RAY = """
from pathlib import Path
from tests.simulations.test_campaign import MASKED, ran

here = Path(".")
others = {"ray": {"engine": "ray"}, "masked": {"engine": "flower-simulation", "nodes": 4} | MASKED}
for day in (1, 2):
    usual = ran(day, here / "usual")
    for name, settings in others.items():
        other = ran(day, here / name, **settings)
        print(name, day, (usual.release.histogram == other.release.histogram).all())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ray_and_flowers_nodes_release_the_same(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR", "RAY"))}
    done = subprocess.run(
        [sys.executable, "-c", ON_RAY],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env=environment | {"FLWR_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    names = [f"{name} {day} True" for day in (1, 2) for name in ("ray", "masked")]
    assert done.stdout.splitlines() == names, done.stderr


@pytest.mark.parametrize(("engine", "masks"), [({"workers": 2}, {}), ({}, MASKED)])
def test_the_same_seed_has_the_same_releases_wherever_devices_run(
    tmp_path: Path, engine: dict[str, Any], masks: dict[str, Any]
) -> None:
    for day in (1, 2, 3):
        usual, other = ran(day, tmp_path / "a"), ran(day, tmp_path / "b", **engine, **masks)
        assert (usual.release.histogram == other.release.histogram).all()
        assert usual.threshold == other.threshold
    key = plan_of(1).of_campaign
    assert key is not None
    for name in ("a", "b"):
        memory = MemoryFile(tmp_path / name)
        keys = fedhist.client.files.user_keys.number_keys(0, 60, memory.user_key())
        left = memory.left(key.key, keys)
        assert (left >= 0).all() and (left < ONE).all()
        # Poisson users fill more than a visit of every window.
        assert np.median(left) < ONE / 3


def test_later_windows_lose_what_was_used_and_the_result_says_what_it_costs(tmp_path: Path) -> None:
    results = [ran(day, tmp_path / "m", selector="fixed", threshold=5.0, epsilon=50.0) for day in range(1, 5)]
    clipped = [result.diagnostics.clipped_mass for result in results if result.diagnostics]
    assert clipped[0] == pytest.approx(clipped[1], abs=0.1) and clipped[3] > 0.99
    document = results[0].to_json()
    assert document["campaign"]["name"] == "autumn" and document["campaign"]["visits"] == 2
    assert document["campaign"]["all_releases_at_most"] == {"epsilon": 50.0, "delta": 1e-6}
    assert document["total"] == document["campaign"]["this_release"]
    assert document["total"]["epsilon"] < 50.0 and document["total"]["delta"] == 5e-7
    assert any("all releases of the campaign 'autumn'" in note for note in document["notes"])


@pytest.mark.parametrize("counts", [3, 0])
def test_a_run_that_another_one_overtook_releases_nothing_whatever_that_one_took(
    tmp_path: Path, counts: int
) -> None:
    """Also if nobody had anything there: to go on then would tell that nobody had."""
    other = population_of(np.full((60, 6), counts))

    def overtake(charge: Charge) -> None:
        if charge.round == "select":
            simulate(other, plan_of(1), evaluate=False, campaign_memory=tmp_path / "m")

    with pytest.raises(RoundFailed, match="another run has used"):
        simulate(users_of(2), plan_of(2), evaluate=False, journal=overtake, campaign_memory=tmp_path / "m")
    ran(2, tmp_path / "m")


def test_a_round_that_is_broken_off_uses_up_nobodys_bound(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, Viewed) and event.round == "release":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(
            users_of(1), plan_of(1), seed=1, evaluate=False, observe=interrupt, campaign_memory=tmp_path / "m"
        )
    again, whole = ran(1, tmp_path / "m"), ran(1, tmp_path / "other")
    assert again.release.histogram.tolist() == whole.release.histogram.tolist()


def test_a_campaign_and_its_memory_go_together(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="without a memory"):
        simulate(users_of(1), plan_of(1))
    with pytest.raises(InvalidInput, match="without a campaign"):
        simulate(users_of(1), Plan(users=60, items=6), campaign_memory=tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_users_of_a_table_are_known_by_their_names(tmp_path: Path) -> None:
    rows = [
        (f"u{user}", "ab"[user % 2], f"2026-11-{day:02}")
        for day in (1, 2, 3)
        for user in range(20)
        for _ in range(9)
    ]
    table = pl.DataFrame(rows, schema=["user", "item", "when"], orient="row")
    usual: dict[str, Any] = {
        "time": "when",
        "items": ["a", "b"],
        "epsilon": 100.0,
        "seed": 1,
        "evaluate": True,
    }
    usual |= {"campaign": "autumn", "visits": 1, "campaign_memory": tmp_path / "m"}
    usual |= {"selector": "fixed", "threshold": 9.0}
    whole = fedhist.histogram(table, window="2026-11-01", **usual)
    again = fedhist.histogram(table.reverse(), window="2026-11-02", **usual)
    assert whole.release.histogram == pytest.approx([90, 90], abs=20)
    assert again.release.histogram == pytest.approx([0, 0], abs=20)
    with pytest.raises(InvalidInput, match="campaign_memory"):
        fedhist.histogram(table, window="2026-11-03", **(usual | {"campaign_memory": None}))


def test_another_memory_is_no_second_bound_for_a_campaign_that_is_charged(tmp_path: Path) -> None:
    rows = [(f"u{user}", "ab"[user % 2], f"2026-11-{day:02}") for day in (1, 2) for user in range(20)]
    table = pl.DataFrame(rows, schema=["user", "item", "when"], orient="row")
    usual: dict[str, Any] = {"time": "when", "items": ["a", "b"], "ledger": tmp_path / "l", "visits": 1}
    usual |= {"selector": "fixed", "threshold": 9.0}

    def asked(day: int, memory: str, campaign: str = "autumn") -> Result:
        window = {"window": f"2026-11-{day:02}", "campaign": campaign}
        return fedhist.histogram(table, **window, campaign_memory=tmp_path / memory, **usual)

    asked(1, "m")
    shutil.copy(tmp_path / "m", tmp_path / "copy")
    with pytest.raises(InvalidInput, match="the memory mistyped knows of none"):
        asked(2, "mistyped")
    assert len(fedhist.BudgetFile.open(tmp_path / "l", create=False).runs()) == 1
    asked(2, "m")
    with pytest.raises(InvalidInput, match="the memory copy knows of 1"):
        asked(1, "copy")
    # A new campaign may have a memory of its own: it is charged.
    asked(2, "mistyped", campaign="winter")
    assert fedhist.BudgetFile.open(tmp_path / "l", create=False).spent().epsilon == 2.0


def test_the_command_runs_a_window_of_a_campaign(fedhist: Fedhist, tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("user,item,when\n" + "".join(f"u{n},a,2026-11-01\n" for n in range(50)))
    (tmp_path / "items.txt").write_text("a\nb\n")
    flags = f"run --data {tmp_path}/v.csv --items-file {tmp_path}/items.txt --time-column when --window 2026-11 --json"
    campaign = (
        f"--campaign autumn --visits 3 --campaign-memory {tmp_path}/m --ledger {tmp_path}/l --no-evaluate"
    )
    out = fedhist(*flags.split(), *campaign.split()).out
    assert json.loads(out)["campaign"]["visits"] == 3
    shown = json.loads(fedhist("ledger", "show", f"{tmp_path}/l", "--json").out)
    assert shown["runs"][0]["plan"]["campaign"] == "autumn"
    fedhist("ledger", "limit", f"{tmp_path}/l", "--epsilon", "9", "--delta", "1e-5")
    fedhist(*flags.split(), *campaign.split(), "--selector", "fixed", "--threshold", "3")
    assert "room for any number of runs like the last" in fedhist("ledger", "show", f"{tmp_path}/l").out
