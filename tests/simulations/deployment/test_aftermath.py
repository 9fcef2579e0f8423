"""The checks after a crash see what they are there for."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.checks.aftermath import (
    folder_faults,
    ledger_faults,
    memory_faults,
    run_faults,
)
from fedhist import BudgetFile, Plan, Spending
from fedhist.client import Policy
from tests.asking import select_request
from tests.support.api import Envelope, MemoryFile, RunRecord
from tests.support.api import cli_module as cli

PLAN = Plan(users=10, items=2)
UNLIMITED = Policy()


@pytest.fixture
def ended(tmp_path: Path) -> tuple[Path, RunRecord]:
    """A run that went well: its folder and its entry."""
    out, ledger = tmp_path / "r", tmp_path / "l.db"
    small = ["run", "--users", "50", "--items", "5", "--no-evaluate"]
    assert cli._run([*small, "--out", str(out), "--ledger", str(ledger)]) == 0
    return out, BudgetFile.open(ledger, create=False).runs()[0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_last_row(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


class TestFoldersAndRuns:
    def test_a_run_that_went_well_has_no_faults(self, ended: tuple[Path, RunRecord]) -> None:
        out, record = ended
        assert run_faults(record, out, announced=True) == []
        assert ledger_faults(out.parent / "l.db") == []

    def test_a_run_that_died_before_its_folder_is_open_and_fine(self, ended: tuple[Path, RunRecord]) -> None:
        out, record = ended
        assert run_faults(replace(record, status="open"), out.parent / "none", announced=False) == []
        assert run_faults(None, out.parent / "none", announced=False) == []

    @pytest.mark.parametrize(
        ("name", "harm"),
        [
            ("result.json", cut),
            ("result.json", Path.unlink),
            ("plan.json", cut),
            ("histogram.csv", Path.unlink),
            ("histogram.csv", without_last_row),
        ],
    )
    def test_a_folder_that_is_not_whole(
        self, ended: tuple[Path, RunRecord], name: str, harm: Callable[[Path], None]
    ) -> None:
        out, record = ended
        harm(out / name)
        assert folder_faults(out) != []
        assert run_faults(record, out, announced=False) != []

    @pytest.mark.parametrize(
        ("changes", "folder", "announced"),
        [
            ({"status": "failed"}, "r", False),
            ({"status": "closed"}, "r", False),
            (None, "r", False),
            ({"charges": ()}, "r", False),
            ({"reserved": Spending(0.5)}, "r", False),
            ({}, "none", False),
            ({"status": "open"}, "r", True),
            ({"status": "open"}, "none", True),
        ],
        ids=str,
    )
    def test_a_folder_and_an_entry_that_contradict_each_other(
        self, ended: tuple[Path, RunRecord], changes: dict[str, Any] | None, folder: str, announced: bool
    ) -> None:
        out, record = ended
        found = None if changes is None else replace(record, **changes)
        assert run_faults(found, out.with_name(folder), announced=announced) != []


class TestMemories:
    @pytest.fixture
    def memory(self, tmp_path: Path) -> Path:
        """Of a device that was asked for round 1 of two runs, and twice for the first."""
        for run in ("one", "one", "two"):
            MemoryFile(tmp_path / "m.db").admit(UNLIMITED, Envelope(run=run, request=select_request(PLAN)))
        return tmp_path / "m.db"

    def test_it_knows_its_answers_and_no_others(self, memory: Path) -> None:
        assert memory_faults(memory, PLAN, UNLIMITED, ["one/select", "two/select"]) == []
        assert memory_faults(memory.with_name("never-asked"), PLAN, UNLIMITED) == []
        assert memory_faults(memory, PLAN, UNLIMITED, ["three/select"]) != []
        assert memory_faults(memory.with_name("none"), PLAN, UNLIMITED, ["one/select"]) != []

    def test_a_round_that_was_charged_twice(self, memory: Path) -> None:
        with closing(sqlite3.connect(memory)) as database:
            (text,) = database.execute("SELECT text FROM memory").fetchone()
            twice = text.replace('"epsilon": 0.2', '"epsilon": 0.3')
            assert twice != text
            database.execute("UPDATE memory SET text = ?", (twice,))
            database.commit()
        assert memory_faults(memory, PLAN, UNLIMITED) != []
