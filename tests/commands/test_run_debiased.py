"""Debiased counts as they are run: both values side by side, and the warning of when it hurts."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.clips.poisson import clipped_mean, debias_poisson
from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.synthetic import PoissonPopulation
from fedhist.simulations.simulation import simulate

# What the fixture `fedhist` gives: it returns the exit code, the output and the errors of a call.
Fedhist = Callable[..., Any]


@pytest.fixture
def poisson_file(tmp_path: Path) -> Path:
    """20,000 users with one item each has Poisson(2) times."""
    counts = np.random.default_rng(1).poisson(2.0, size=(20_000, 1))
    scipy.sparse.save_npz(tmp_path / "poisson.npz", scipy.sparse.csr_array(counts))
    return tmp_path / "poisson.npz"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


mechanisms = pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])


@mechanisms
def test_one_poisson_count_is_nearer_to_the_truth_after_debiasing(
    fedhist: Fedhist, poisson_file: Path, mechanism: str
) -> None:
    document = fedhist(
        "run", "--data", poisson_file, "--debias", "poisson", "--mechanism", mechanism, "--json", "--seed", 3,
        "--selector", "fixed", "--threshold", 2,
    ).document()  # fmt: skip
    kept = float(clipped_mean(np.array([2.0]), 2.0)[0]) / 2
    assert document["relative_loss_clipped"] == pytest.approx(1 - kept, abs=0.02)
    assert document["relative_loss"] < 0.02
    assert document["released_items"] == 1
    assert document["threshold"] == 2
    assert document["plan"]["debias"] == "poisson"
    assert {"relative_loss", "relative_loss_clipped"} <= set(document["not_private"])
    assert [charge["round"] for charge in document["ledger"]] == ["release"]


@mechanisms
def test_a_privately_chosen_threshold(fedhist: Fedhist, poisson_file: Path, mechanism: str) -> None:
    document = fedhist(
        "run", "--data", poisson_file, "--debias", "poisson", "--mechanism", mechanism, "--json", "--seed", 3,
        "--trials", 5, "--max-threshold", 50,
    ).document()  # fmt: skip
    assert document["plan"]["selector"] == "quantile"
    assert document["private"] is True
    assert 2 < document["threshold"] < 12
    assert document["relative_loss"] < document["relative_loss_clipped"]
    assert document["total"]["epsilon"] == pytest.approx(1.1)
    assert document["total"]["delta"] == (1e-6 if mechanism == "gaussian" else 0)


def test_delta_zero_asks_for_laplace(fedhist: Fedhist, poisson_file: Path) -> None:
    document = fedhist(
        "run", "--data", poisson_file, "--debias", "poisson", "--delta", 0, "--json"
    ).document()
    assert document["plan"]["mechanism"] == "laplace"


def test_both_values_of_every_item_are_written(fedhist: Fedhist, tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    counts = generator.poisson([0.3, 1.0, 2.5, 4.0], size=(8000, 4))
    scipy.sparse.save_npz(tmp_path / "d.npz", scipy.sparse.csr_array(counts))
    document = fedhist(
        "run", "--data", "d.npz", "--debias", "poisson", "--json", "--seed", 1, "--out", "r",
        "--selector", "fixed", "--threshold", 3,
    ).document()  # fmt: skip
    rows = rows_of(tmp_path / "r/histogram.csv")
    assert set(rows[0]) == {
        "item", "value", "standard_error", "clipped_value", "clipped_standard_error", "threshold",
    }  # fmt: skip
    values, clipped = (np.array([float(row[name]) for row in rows]) for name in ("value", "clipped_value"))
    truth = counts.sum(axis=0)
    assert [float(row["threshold"]) for row in rows] == [3.0] * 4
    assert values == pytest.approx(debias_poisson(clipped, users=8000, threshold=3.0, largest_rate=1500.0))
    assert clipped == pytest.approx(np.minimum(counts, 3).sum(axis=0), abs=200)
    assert document["relative_loss"] == pytest.approx(np.abs(values - truth).sum() / truth.sum())
    assert document["relative_loss_clipped"] == pytest.approx(np.abs(clipped - truth).sum() / truth.sum())
    assert document["relative_loss"] < 0.5 * document["relative_loss_clipped"]
    errors, before = (
        np.array([float(row[name]) for row in rows]) for name in ("standard_error", "clipped_standard_error")
    )
    assert (errors > before).all()
    assert np.ptp(before) == 0
    assert document["standard_error"] == before[0]


@mechanisms
def test_items_share_the_budget(fedhist: Fedhist, mechanism: str) -> None:
    errors = {}
    for items in (1, 9):
        document = fedhist(
            "run", "--users", 500, "--items", items, "--debias", "poisson", "--mechanism", mechanism, "--json",
            "--no-truth", "--selector", "fixed", "--threshold", 5,
        ).document()  # fmt: skip
        errors[items] = document["standard_error"]
        assert document["total"]["epsilon"] == 1
    share = 3 if mechanism == "gaussian" else 9
    assert errors[9] / errors[1] == pytest.approx(share, rel=1e-3)


def test_each_item_is_charged_for_its_choice(fedhist: Fedhist) -> None:
    document = fedhist("run", "--users", 500, "--items", 5, "--debias", "poisson", "--json").document()
    *choices, release = document["ledger"]
    assert [choice["epsilon"] for choice in choices] == pytest.approx([0.02] * 5)
    assert release["parameters"]["clipped"] == "item by item"
    assert release["sensitivity"] == pytest.approx(math.sqrt(5))
    assert document["total"]["epsilon"] == pytest.approx(1.1)
    text = fedhist("run", "--users", 500, "--items", 5, "--debias", "poisson").out
    assert "exponential-mechanism x 5" in text


def test_the_warning_is_always_there_and_counts_doubtful_items(fedhist: Fedhist, poisson_file: Path) -> None:
    run = ("run", "--data", poisson_file, "--debias", "poisson", "--json", "--seed", 1, "--selector", "fixed")
    sure = fedhist(*run, "--threshold", 2).document()
    doubtful = fedhist(*run, "--threshold", 40).document()
    for document in (sure, doubtful):
        assert any(
            "debiasing assumes Poisson counts with similar rates" in note for note in document["notes"]
        )
    assert not any("larger than its correction" in note for note in sure["notes"])
    assert any("for 1 of 1 items its noise is larger" in note for note in doubtful["notes"])
    closed = fedhist("run", "--users", 100, "--items", 3, "--json").document()
    assert not any("debiasing" in note for note in closed["notes"])
    assert "relative_loss_clipped" not in closed


def test_where_it_hurts_the_user_can_see_it(fedhist: Fedhist, tmp_path: Path) -> None:
    """Counts that vary less than Poisson: nine of ten users have the item once, and nobody twice."""
    counts = (np.arange(5000) % 10 > 0).astype(int)[:, np.newaxis]
    scipy.sparse.save_npz(tmp_path / "d.npz", scipy.sparse.csr_array(counts))
    document = fedhist(
        "run", "--data", "d.npz", "--debias", "poisson", "--json", "--seed", 1, "--selector", "fixed",
        "--threshold", 1,
    ).document()  # fmt: skip
    assert document["relative_loss_clipped"] < 0.01
    assert document["relative_loss"] > 1
    assert any("overshoots where counts vary less than Poisson" in note for note in document["notes"])


def test_a_person_reads_both_losses(fedhist: Fedhist, poisson_file: Path) -> None:
    run = ("run", "--data", poisson_file, "--debias", "poisson", "--seed", 1, "--selector", "fixed")
    document = fedhist(*run, "--threshold", 2, "--json").document()
    text = fedhist(*run, "--threshold", 2, "--out", "r").out
    assert f"loss, clipped   {document['relative_loss_clipped']:.4f}" in text
    assert f"loss, debiased  {document['relative_loss']:.4f}" in text
    assert "each item by itself" in text
    assert "debiasing assumes Poisson counts" in text


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--domain", "open"], "debiasing over an open domain"),
        (["--items", "5000"], "5000 items debiased one by one; allowed: up to 4096"),
        (["--selector", "weighted-quantile"], "allowed: quantile, fixed, oracle"),
        (["--selector", "dpsgd"], "allowed: quantile, fixed, oracle"),
        (["--release", "truncated-laplace"], "a release mechanism"),
    ],
)
def test_what_does_not_go_with_debiasing(
    fedhist: Fedhist, tmp_path: Path, flags: list[str], words: str
) -> None:
    outcome = fedhist("run", "--users", 50, "--debias", "poisson", "--out", "r", *flags)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_another_debiasing_is_not_known(fedhist: Fedhist) -> None:
    assert "'poisson'" in fedhist("run", "--debias", "binomial").err


# --- The API.


def test_debiasing_helps_over_many_trials_of_the_papers_population() -> None:
    """Algorithm 5 on one Poisson count, private threshold and all."""
    population = PoissonPopulation(users=4000, items=1, seed=3, mean=2.0)
    plan = Plan(
        users=4000, items=1, debias="poisson", mechanism="laplace", max_threshold=30, epsilon_select=0.1
    )
    results = [simulate(population, plan, seed=seed).diagnostics for seed in range(12)]
    debiased = np.mean([known.relative_loss for known in results if known is not None])
    clipped = np.mean([known.relative_loss_clipped for known in results if known is not None])
    assert debiased < 0.7 * clipped


def test_the_same_seed_gives_the_same_values_in_any_sharding() -> None:
    counts = np.random.default_rng(4).poisson(1.5, size=(600, 3))
    whole = SparsePopulation.from_scipy(scipy.sparse.csr_array(counts))
    plan = Plan(users=600, items=3, debias="poisson", max_threshold=30)

    class Resharded(SparsePopulation):
        def shards(self, **options):
            return super().shards(shard_nonzeros=50)

    first = simulate(whole, plan, seed=5).release
    second = simulate(Resharded(whole.histograms), plan, seed=5).release
    assert first.histogram.tobytes() == second.histogram.tobytes()
    assert first.item_release is not None and second.item_release is not None
    assert first.item_release.thresholds.tolist() == second.item_release.thresholds.tolist()
    assert simulate(whole, plan, seed=6).release.histogram.tolist() != first.histogram.tolist()


def test_values_stay_between_nothing_and_the_public_bound() -> None:
    """Noise may send a clipped sum below zero or above n C; the debiased value is clamped."""
    counts = np.concatenate([np.zeros((50, 1), dtype=int), np.zeros((50, 1), dtype=int)])
    counts[0, 0] = 1
    population = SparsePopulation.from_scipy(scipy.sparse.csr_array(counts))
    plan = Plan(
        users=100, items=1, debias="poisson", mechanism="laplace", selector="fixed", threshold=9.0,
        epsilon=0.05, max_threshold=20,
    )  # fmt: skip
    releases = [simulate(population, plan, seed=seed).release for seed in range(20)]
    before = np.array([release.item_release.clipped[0] for release in releases if release.item_release])
    after = np.array([release.histogram[0] for release in releases])
    assert before.min() < 0
    assert after.min() == 0
    assert after.max() <= 100 * 20
