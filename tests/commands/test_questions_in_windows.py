"""`fedhist run --question` with a window: all questions read the rows of one window, and the ledger knows which."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fedhist as library
from fedhist import BudgetFile
from tests.builders import Fedhist, rows_of


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [
        (f"u{user}", place, kind, day)
        for user in range(300)
        for place, kind, day in (("park", "rest", "2026-11-16"), ("shop", "work", "2026-11-24"))
    ]
    (tmp_path / "places.txt").write_text("park\nshop\n")
    (tmp_path / "kinds.txt").write_text("rest\nwork\n")
    path = tmp_path / "visits.csv"
    pl.DataFrame(rows, schema=["user", "place", "kind", "when"], orient="row").write_csv(path)
    return path


def test_all_questions_read_the_rows_of_the_window(fedhist: Fedhist, table: Path, tmp_path: Path) -> None:
    out, ledger = tmp_path / "out", tmp_path / "ledger.db"
    questions = [f"{name}:items-file={tmp_path / f'{name}s.txt'}" for name in ("place", "kind")]
    common = ("run", "--data", table, "--question", questions[0], "--question", questions[1])
    common += ("--total-epsilon", 10, "--total-delta", 0, "--time-column", "when", "--ledger", ledger)
    common += ("--no-evaluate", "--no-report")
    assert fedhist(*common, "--window", "2026-W47", "--out", out).code == 0
    for name in ("place", "kind"):
        seen, other = (float(row["value"]) for row in rows_of(out / name / "histogram.csv"))
        assert seen > 150 > other
    fedhist(*common, "--window", "2026-W48", "--out", tmp_path / "next")
    runs = BudgetFile.open(ledger, create=False).runs()
    assert [run.plan["window"] for run in runs] == ["2026-W47", "2026-W48"]
    assert "2026-W48" in fedhist("ledger", "show", ledger).out


def test_one_question_has_no_window_of_its_own(fedhist: Fedhist, table: Path) -> None:
    asked = ("run", "--data", table, "--question", "place:window=2026-W47", "--total-epsilon", 4)
    said = fedhist(*asked, "--time-column", "when", "--window", "2026-W48")
    assert said.code == 2
    assert "give it once, for all questions" in said.err


def test_the_same_in_python(table: Path) -> None:
    questions = {"place": {"items": ["park", "shop"]}, "kind": {"items": ["rest", "work"]}}
    answers = library.histograms(
        pl.read_csv(table), questions, total_epsilon=10, total_delta=0, time="when", window="2026-W48"
    )
    for result in answers.values():
        seen = result.to_frame()["value"].to_list()
        assert seen[1] > 150 > seen[0]
