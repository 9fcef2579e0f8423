"""`fedhist run --debias poisson`: both values side by side, and the warning of when it hurts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import Fedhist, rows_of, write_npz
from tests.support.api import debias_poisson

DEBIASED = ("run", "--debias", "poisson", "--seed", 1, "--json")
FIXED = (*DEBIASED, "--selector", "fixed", "--threshold")


@pytest.fixture
def poisson_file(tmp_path: Path) -> Path:
    """20,000 users with one item, which each of them has Poisson(2) times."""
    counts = np.random.default_rng(1).poisson(2.0, size=(20_000, 1))
    return write_npz(tmp_path / "poisson.npz", counts)


def test_both_values_of_every_item_are_written(fedhist: Fedhist, tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    counts = generator.poisson([0.3, 1.0, 2.5, 4.0], size=(8000, 4))
    data = write_npz(tmp_path / "d.npz", counts)
    document = fedhist(*FIXED, 3, "--data", data, "--evaluate", "--out", "r").document()
    rows = rows_of(tmp_path / "r/histogram.csv")
    assert set(rows[0]) == {
        "item", "value", "standard_error", "estimate", "at_least",
        "clipped_value", "clipped_standard_error", "threshold",
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


def test_the_warning_is_always_there_and_counts_doubtful_items(fedhist: Fedhist, poisson_file: Path) -> None:
    sure, doubtful = (fedhist(*FIXED, bound, "--data", poisson_file).document() for bound in (2, 40))
    for document in (sure, doubtful):
        assert any(
            "debiasing assumes Poisson counts with similar rates" in note for note in document["notes"]
        )
    assert not any("larger than its correction" in note for note in sure["notes"])
    assert any("for 1 of 1 items its noise is larger" in note for note in doubtful["notes"])
    closed = fedhist("run", "--users", 100, "--items", 3, "--json").document()
    assert not any("debiasing" in note for note in closed["notes"])
    assert "relative_loss_clipped" not in closed
