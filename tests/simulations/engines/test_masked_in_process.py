"""Whole runs under masking, in process: what the server learns is the sum and nothing changes but that."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from fedhist import HeavyTailedPopulation, Ledger, Plan, SeededSource, run_rounds, simulate
from tests.support.api import FaultAssignment, Round, engine_named, faults_of, measurements_of, parts_of
from tests.support.api import masked_module as masked_in_process

POPULATION = HeavyTailedPopulation(users=400, items=12, seed=2)
DISCOVERED = {"domain": "open", "mechanism": "gaussian", "max_threshold": 60, "max_items": 40}
"""At the usual epsilon of 1, where some of the items are found."""
MODES: dict[str, dict[str, Any]] = {
    "weighted quantile": {"items": 12},
    "dpsgd": {"items": 12, "selector": "dpsgd"},
    "m-quantile": {"items": 12, "selector": "m-quantile"},
    "fixed": {"items": 12, "selector": "fixed", "threshold": 20.0},
    "laplace": {"items": 12, "mechanism": "laplace"},
    "laplace quantile": {"items": 12, "mechanism": "laplace", "selector": "quantile"},
    "replacement": {"items": 12, "neighbours": "replace-one"},
    "debiased": {"items": 12, "debias": "poisson"},
    "discovered": DISCOVERED,
    # As under masks others may send anything, the choice of a mechanism is less sharp there; not so for replacement.
    "auto": {"items": 12, "mechanism": "auto", "neighbours": "replace-one"},
    "discovered auto": DISCOVERED | {"mechanism": "auto", "neighbours": "replace-one", "epsilon": 1.5},
    "discovered laplace": DISCOVERED | {"mechanism": "laplace"},
    "discovered, some known": DISCOVERED | {"known_items": "3\nnobody's"},
}


def plans(mode: str, masking: str) -> tuple[Plan, Plan]:
    """The mode's plan without masks and with them."""
    settings = {"users": 400} | MODES[mode]
    unmasked = {name: value for name, value in settings.items() if name != "max_items"}
    return Plan(**unmasked), Plan(**settings, masking=masking, participants=9)


@pytest.mark.parametrize(
    ("mode", "masking"),
    [
        *((mode, "secagg") for mode in MODES),
        ("weighted quantile", "secagg-signed"),
        ("discovered", "secagg-signed"),
    ],
)
def test_masks_change_nothing_in_the_release(mode: str, masking: str) -> None:
    releases = (simulate(POPULATION, plan, seed=8, evaluate=False).release for plan in plans(mode, masking))
    plain, masked = releases
    assert (masked.threshold, masked.mechanism) == (plain.threshold, plain.mechanism)
    assert masked.histogram.tolist() == plain.histogram.tolist()
    extra = [charge for charge in masked.charges if charge.name.startswith("table-")]
    assert [charge for charge in masked.charges if charge not in extra] == list(plain.charges)
    assert [charge.name for charge in extra] == (
        ["table-fit", "table-decoding"] if masked.plan.has_table else []
    )
    assert masked.labels == plain.labels
    assert (masked.discovery_share is not None) == masked.plan.discovers
    assert masked.discovery_share == plain.discovery_share
    if masked.plan.discovers:
        assert 0 < len(masked.histogram) < 12


@pytest.mark.parametrize(
    ("masking", "domain"),
    [("secagg", {"items": 12}), ("secagg-signed", {"items": 12}), ("secagg", DISCOVERED)],
)
def test_with_drop_outs_the_sum_is_over_those_who_stayed(masking: str, domain: dict[str, Any]) -> None:
    """Two of twenty fall silent in each round; the users of those silent before masking are left out."""
    plan = Plan(users=400, masking=masking, participants=20, **domain)
    with engine_named("in-process", dropout=0.1)(POPULATION, seed=5) as transport:
        run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(5))
        assert list(transport.totals) == list(measurements_of(plan))
        for round_, total in transport.totals.items():
            gone = FaultAssignment.drawn(faults_of(0.1), 20, 400, source=SeededSource(5)).silent[round_]
            absent = {number for stage, numbers in gone.items() if stage != "unmasking" for number in numbers}
            assert sum(map(len, gone.values())) == 2
            assert total.users == 400 - 20 * len(absent)
            assert total.shares == 20 - len(absent)
    stayed = [part for number, part in enumerate(parts_of(POPULATION, 20)) if number not in absent]
    assert sum(part.users for part in stayed) == total.users


def test_every_user_belongs_to_one_participant() -> None:
    """Blocks of the population and participants do not end at the same users."""
    population = HeavyTailedPopulation(users=9000, items=5, seed=2)
    parts = list(parts_of(population, 7))
    assert [part.users for part in parts] == [(i + 1) * 9000 // 7 - i * 9000 // 7 for i in range(7)]
    numbers = np.concatenate([shard.user_numbers() for part in parts for shard in part.shards()])
    assert numbers.tolist() == list(range(9000))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_noise_from_devices_is_what_the_standard_error_says(mechanism: str) -> None:
    """With drop-outs, and nothing added by the server: the sum that it gets has the noise already."""
    population = HeavyTailedPopulation(users=600, items=400, seed=4)
    masking = {"masking": "secagg", "participants": 20, "noise_from": "devices"}
    plan = Plan(users=600, items=400, mechanism=mechanism, **masking)
    with engine_named("in-process", dropout=0.1)(population, seed=6) as transport:
        release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(6))
        exact = np.ldexp(transport.totals[Round.RELEASE].values.astype(float), -plan.grid_bits)
    noise = release.histogram - exact
    assert abs(noise.mean()) < 4 * release.standard_error / 20
    assert noise.std() == pytest.approx(release.standard_error, rel=0.2)
    assert [charge.round for charge in release.charges] == ["select", "release"]


@pytest.mark.parametrize("noise_from", ["server", "devices"])
def test_worker_processes_change_neither_release_nor_exact_sums(
    noise_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(users=400, items=12, masking="secagg", participants=20, noise_from=noise_from)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = []
    for many in (21, 20):
        monkeypatch.setattr(masked_in_process, "_MANY", many)
        with engine_named("in-process", dropout=0.1)(POPULATION, seed=5) as transport:
            release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(5))
        exact = {round_: total.values.tolist() for round_, total in transport.totals.items()}
        found.append((release.histogram.tolist(), exact))
    assert found[0] == found[1]
