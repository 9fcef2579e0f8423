"""Commands over folders and patterns of tables that go to temporary files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import polars as pl
import pytest

from tests.builders import Fedhist

ON_DISK = ("--memory", "256MiB")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """A folder of three kinds of tables, and the same rows in one file beside it."""
    rows = pl.DataFrame(
        {
            "user": [f"u{number % 70}" for number in range(900)],
            "item": [f"shop {number * number % 7}" for number in range(900)],
        }
    )
    rows.write_csv(tmp_path / "visits.csv")
    place = tmp_path / "visits"
    (place / "day=1").mkdir(parents=True)
    (place / "day=2").mkdir()
    rows[:300].write_csv(place / "day=1" / "a.csv")
    rows[300:600].select("item", "user").write_parquet(place / "day=1" / "b.parquet")
    rows[600:].write_ndjson(place / "day=2" / "c.jsonl")
    (tmp_path / "shops.txt").write_text("".join(f"shop {number}\n" for number in range(9, -1, -1)))
    return place


def test_a_release_is_the_same_from_one_file_a_folder_a_pattern_and_on_disk(
    fedhist: Fedhist, visits: Path, tmp_path: Path
) -> None:
    released = set()
    sources = (tmp_path / "visits.csv", visits, f"{visits}/*/*")
    for number, source in enumerate(sources):
        for more in ((), ON_DISK):
            out = tmp_path / f"out-{number}-{len(more)}"
            listed = ("--items-file", tmp_path / "shops.txt")
            outcome = fedhist("run", "--data", source, *listed, "--seed", 3, "--quiet", "--out", out, *more)
            assert (outcome.code, outcome.err) == (0, "")
            released.add((out / "histogram.csv").read_text())
    assert len(released) == 1


def test_compare_takes_folders_and_patterns(fedhist: Fedhist, visits: Path, tmp_path: Path) -> None:
    for source in (visits, f"{visits}/**/*"):
        few = ("--trials", 1, "--selectors", "weighted-quantile", "--workers", 1)
        listed = ("--items-file", tmp_path / "shops.txt")
        outcome = fedhist("compare", "--data", source, *listed, *few, "--json", *ON_DISK)
        assert outcome.code == 0, outcome.err
    missing = fedhist("compare", "--data", tmp_path / "nothing.csv")
    assert missing.code == 2
    assert "there is no file" in missing.err


def test_a_full_disk_is_one_sentence_and_charges_nothing(
    fedhist: Fedhist, visits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    arguments = ("run", "--data", visits, "--domain", "open", "--ledger", tmp_path / "ledger.db", "--quiet")
    outcome = fedhist(*arguments, *ON_DISK)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error: temporary data can't be written to ")
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "ledger.db").exists()
