"""Tables that do not fit in memory, in one file or many: the same release, and nothing left behind."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import Fedhist

TIGHT = ("--memory", "256MiB")
PLANS = {
    "closed": ("--items-file", "items.txt"),
    "inferred": ("--domain", "closed", "--evaluate"),
    "open": ("--domain", "open"),
    "top": ("--top-items", "7", "--evaluate"),
    "one name": ("--domain", "closed", "--evaluate", "--normalise", "casefold"),
    "masked": ("--items-file", "items.txt", "--masking", "secagg", "--nodes", "30", "--dropout", "0.1"),
}


@pytest.fixture
def _visits(fedhist: Fedhist) -> None:
    """Users with a few of forty items each, rows in no order: in one file, and in a folder of several kinds."""
    generator = np.random.Generator(np.random.Philox(3))
    rows = pl.DataFrame(
        {
            "user": [f"u{number}" for number in generator.integers(3_000, size=30_000)],
            "item": [
                f"{'Item' if number % 3 else 'item'}-{number // 2}"
                for number in generator.integers(80, size=30_000)
            ],
            "count": generator.integers(0, 4, size=30_000),
        }
    )
    rows.write_csv("visits.csv")
    Path("items.txt").write_text("\n".join(sorted(set(rows["item"]))[::2]) + "\n")
    folder = Path("parts/day=1")
    folder.mkdir(parents=True)
    rows[:9_000].write_csv(folder / "a.csv")
    rows[9_000:9_500].select("count", "item", "user").write_parquet(folder / "b.parquet")
    Path("parts/day=2").mkdir()
    rows[9_500:20_000].write_ndjson("parts/day=2/c.jsonl")
    with gzip.open("parts/day=2/d.csv.gz", "wb") as packed:
        packed.write(rows[20_000:].write_csv().encode())
    Path("parts/_log.txt").write_text("not a table")


@pytest.mark.usefixtures("_visits")
@pytest.mark.parametrize("plan", PLANS)
def test_the_release_is_the_same_from_memory_from_disk_and_from_many_files(
    fedhist: Fedhist, plan: str
) -> None:
    ways = {
        "memory": ("visits.csv",),
        "disk": ("visits.csv", *TIGHT),
        "folder": ("parts", *TIGHT),
        "pattern": ("parts/*/*", "--memory", "8GB"),
    }
    for name, data in ways.items():
        assert fedhist("run", "--data", *data, *PLANS[plan], "--seed", 5, "--out", name).code == 0
    first = Path("memory/histogram.csv").read_bytes()
    assert all(Path(name, "histogram.csv").read_bytes() == first for name in ways)


@pytest.mark.usefixtures("_visits")
@pytest.mark.parametrize("data", ["parts", "parts/**/*"])
def test_compare_takes_folders_and_patterns(fedhist: Fedhist, data: str) -> None:
    few = ("--trials", 1, "--selectors", "weighted-quantile", "--workers", 1, "--items-file", "items.txt")
    assert fedhist("compare", "--data", data, *few, *TIGHT, "--json").code == 0


@pytest.mark.usefixtures("_visits")
def test_a_full_disk_is_one_sentence_and_charges_nothing(
    fedhist: Fedhist, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    arguments = ("run", "--data", "parts", "--domain", "open", "--ledger", "ledger.db", "--quiet")
    outcome = fedhist(*arguments, *TIGHT)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert outcome.err.startswith("error: temporary data can't be written to ")
    assert not Path("ledger.db").exists()


def test_ctrl_c_leaves_nothing_in_the_temporary_folder(tmp_path: Path) -> None:
    rows = 3_000_000
    generator = np.random.Generator(np.random.Philox(3))
    table = pl.DataFrame(
        {"user": generator.integers(10**6, size=rows), "item": generator.integers(99, size=rows)}
    )
    table.write_parquet(tmp_path / "visits.parquet")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "fedhist",
        "run",
        "--data",
        "visits.parquet",
        *TIGHT,
        "--no-evaluate",
        "--domain",
        "open",
    ]
    child = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    # The note comes just before the first pass.
    assert "temporary space" in child.stderr.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=60)[1]
    assert "Traceback" not in rest
    assert child.returncode in (0, 130)
    assert list(temporary.iterdir()) == []
