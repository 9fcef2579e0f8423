"""Forty plans whose releases must not change by accident: threshold, values, noise, charges and total, bit for bit.

The results stand in `tests/vectors/forty_plans.json`. A change that is meant writes them anew, in the same commit:

    FEDHIST_RECORD=1 python -m pytest tests/contracts/test_forty_plans.py -m "slow or not slow" -n 0
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array

import fedhist
from tests.builders import ROOT, python
from tests.support.api import engine_named

RECORDED = Path(__file__).parents[1] / "vectors" / "forty_plans.json"
RECORDING = os.environ.get("FEDHIST_RECORD") == "1"
USERS, ITEMS = 3_000, 60
SEED = 17
# Below a hundredth of a count; the noise of these releases is 75 and more.
ROUNDED = 0.02


@cache
def table(items: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Population A (60 items) or B (3): heavy-tailed totals, each user with their own favourites."""
    rng = np.random.Generator(np.random.PCG64(20_261_118 + items))
    totals = np.minimum(1 + rng.pareto(1.3, USERS) * 6, 400).astype(np.int64)
    gammas = rng.gamma(0.3, size=(USERS, items)) + 1e-9
    return rng.multinomial(totals, gammas / gammas.sum(axis=1, keepdims=True))


@cache
def population(items: int = ITEMS, name: Callable[[int], str] | None = None) -> fedhist.SparsePopulation:
    labels = None if name is None else [name(item) for item in range(items)]
    return fedhist.SparsePopulation.from_scipy(csr_array(table(items)), labels=labels)


def long_name(item: int) -> str:
    """Forty bytes."""
    return f"item-{item:03d}-" + "x" * 31


CLOSED = {"users": USERS, "items": ITEMS}
OPEN = {"users": USERS, "domain": "open"}
ABOVE = OPEN | {"epsilon": 4.0, "epsilon_select": 1.0, "release": "truncated-laplace", "max_threshold": 100.0}
MASKED = {"masking": "secagg", "participants": 30}
SIGNED = {"masking": "secagg-signed", "participants": 30}
TABLES = {"max_items": 80}
BY_DEVICES = CLOSED | MASKED | {"noise_from": "devices"}

PLANS: dict[str, dict[str, Any]] = {
    "01 defaults": CLOSED,
    "02 laplace": CLOSED | {"mechanism": "laplace"},
    "03 auto": CLOSED | {"mechanism": "auto"},
    "04 replace-one": CLOSED | {"neighbours": "replace-one"},
    "05 replace-one with laplace": CLOSED | {"neighbours": "replace-one", "mechanism": "laplace"},
    "06 epsilon .3 and .05": CLOSED | {"epsilon": 0.3, "epsilon_select": 0.05},
    "07 quantile": CLOSED | {"selector": "quantile", "mechanism": "laplace"},
    "08 fixed at 9": CLOSED | {"selector": "fixed", "threshold": 9.0},
    "09 dpsgd": CLOSED | {"selector": "dpsgd"},
    "10 output-perturbation": CLOSED | {"selector": "output-perturbation"},
    "11 m-quantile": CLOSED | {"selector": "m-quantile"},
    "12 oracle": CLOSED | {"selector": "oracle"},
    "13 32 candidates up to 200": CLOSED | {"candidates": 32, "max_threshold": 200.0},
    "14 delta 1e-4": CLOSED | {"delta": 1e-4},
    "15 sparsity 20": CLOSED | {"sparsity": 20},
    "16 minimum cohort 500": CLOSED | {"minimum_cohort": 500},
    "17 secagg": CLOSED | MASKED,
    "18 secagg-signed": CLOSED | SIGNED,
    "19 noise from devices": BY_DEVICES,
    "20 noise from devices, laplace": BY_DEVICES | {"mechanism": "laplace"},
    "21 secagg, a tenth drops out": CLOSED | MASKED,
    "22 secagg-signed, a tenth drops out": CLOSED | SIGNED,
    "23 secagg, some drop out after sending": CLOSED | MASKED | {"participants": 40},
    "24 open": OPEN,
    "25 open, laplace": OPEN | {"mechanism": "laplace"},
    "26 open, five known": OPEN | {"known_items": "3\n5\n8\n21\n34"},
    "27 truncated-laplace": ABOVE,
    "28 laplace-threshold": ABOVE | {"release": "laplace-threshold"},
    "29a exponential-v": ABOVE | {"selector": "exponential-v"},
    "29b exponential-sharp": ABOVE | {"selector": "exponential-sharp"},
    "30 open under secagg": OPEN | MASKED | TABLES | {"mechanism": "gaussian"},
    "31 open under secagg, auto": OPEN | MASKED | TABLES | {"mechanism": "auto"},
    "32 open under secagg, long names": OPEN | MASKED | TABLES | {"max_item_bytes": 40},
    "33 debiased": {"users": USERS, "items": 3, "debias": "poisson"},
    "34 debiased, laplace": {"users": USERS, "items": 3, "debias": "poisson", "mechanism": "laplace"},
}
DROPPING = ("21", "22", "23")


def results_of(name: str, plan: fedhist.Plan, engine: Any) -> dict[str, Any]:
    items = ITEMS if plan.items is None else plan.items
    naming = long_name if "long names" in name else (str if plan.items is None else None)
    release = fedhist.simulate(population(items, naming), plan, seed=SEED, engine=engine).release
    return recorded_form(release)


def recorded_form(release: fedhist.Release) -> dict[str, Any]:
    """What must not change; sorted by name, since the order of an open domain's items is no part of it."""
    values = dict(zip(map(str, release.names), release.histogram.tolist(), strict=True))
    ledger = fedhist.Ledger()
    for charge in release.charges:
        ledger.charge(charge)
    charges = [charge.to_json() for charge in release.charges]
    return {
        "threshold": release.threshold,
        "standard_error": release.standard_error,
        "mechanism": release.mechanism,
        "values": dict(sorted(values.items())),
        "charges": charges,
        "tight": ledger.tight().to_json(),
    }


def compare(name: str, found: dict[str, Any]) -> None:
    found = json.loads(json.dumps(found))
    if RECORDING:
        known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
        known[name] = found
        text = ",\n".join(f"{json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known))
        RECORDED.write_text("{\n" + text + "\n}\n", encoding="utf-8")
    assert found == json.loads(RECORDED.read_text(encoding="utf-8"))[name]


def compare_table(name: str, found: dict[str, Any]) -> None:
    """How the values of clipped users are rounded depends on the order of users, and that on polars' hash of text."""
    known = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    assert found["values"] == pytest.approx(known["values"], abs=ROUNDED)
    compare(name, found | {"values": known["values"]})


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_releases_what_it_did(name: str) -> None:
    plan = fedhist.Plan(**PLANS[name])
    options = {"dropout": 0.1} if name.startswith(DROPPING) else {}
    compare(name, results_of(name, plan, engine_named("in-process", **options)))


class TestTables:
    """Population C: A as a table of text, and one table whose rows have days and lengths."""

    @staticmethod
    @cache
    def frame() -> pl.DataFrame:
        users, items = np.nonzero(table(ITEMS))
        rng = np.random.Generator(np.random.PCG64(5))
        order = rng.permutation(len(users))
        users, items = users[order], items[order]
        return pl.DataFrame(
            {
                "user": [f"user {user}" for user in users],
                "item": [f"item {item}" for item in items],
                "count": table(ITEMS)[users, items],
                "when": [
                    f"2026-10-{1 + (user + item) % 28:02d}" for user, item in zip(users, items, strict=True)
                ],
                "minutes": (items * 7 + users) % 97,
            }
        )

    @pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars"])
    def test_every_kind_of_table_gives_one_release(self, kind: str, tmp_path: Path) -> None:
        frame = self.frame().select("user", "item", "count")
        data: Any = frame if kind == "polars" else pd.DataFrame(frame.to_dict(as_series=False))
        if kind in ("csv", "parquet"):
            data = tmp_path / f"table.{kind}"
            getattr(frame, f"write_{kind}")(data)
        items = [f"item {item}" for item in range(ITEMS)]
        release = fedhist.histogram(data, items=items, seed=SEED).release
        compare_table("35 table", recorded_form(release))
        other = fedhist.histogram(frame, items=items, seed=SEED).release
        assert recorded_form(release) == recorded_form(other)

    def test_a_window(self, tmp_path: Path) -> None:
        items = [f"item {item}" for item in range(ITEMS)]
        self.frame().write_csv(tmp_path / "table.csv")
        result = fedhist.histogram(
            tmp_path / "table.csv", items=items, time="when", window="2026-10-05/2026-10-18", seed=SEED
        )
        compare_table("36 window", recorded_form(result.release))

    def test_numeric_bins(self) -> None:
        result = fedhist.histogram(
            self.frame(), item="minutes", bins=[0, 10, 20, 40, 60, 97], count="count", seed=SEED
        )
        compare_table("37 bins", recorded_form(result.release))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("like", "engine", "options"),
    [
        ("01 defaults", "flower-simulation", {"nodes": 8}),
        ("01 defaults", "ray", {}),
        ("17 secagg", "flower-simulation", {"nodes": 30}),
    ],
)
def test_another_engine_releases_the_same(
    like: str, engine: str, options: dict[str, int], tmp_path: Path
) -> None:
    """In a process of its own: Ray leaves processes behind that end after it."""
    script = (
        "import json, fedhist\n"
        "from fedhist.simulations.engines.contract import engine_named\n"
        "from tests.contracts.test_forty_plans import PLANS, results_of\n"
        f"plan, engine = fedhist.Plan(**PLANS[{like!r}]), engine_named({engine!r}, **{options!r})\n"
        f"json.dump(results_of({like!r}, plan, engine), open({str(tmp_path / 'found.json')!r}, 'w'))\n"
    )
    python("-c", script, cwd=ROOT)
    compare(like, json.loads((tmp_path / "found.json").read_text(encoding="utf-8")))
