"""What a failed run leaves; whole runs are in tests/commands/ and tests/scenarios/."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fedhist import HeavyTailedPopulation, Plan, simulate
from tests.support.api import NotWritten, RecordedRun, RunEnded, StateEntered, read_trace, recorded_run

BEGUN = StateEntered("planned", None)


def traced(plan: Plan, target: Path | None) -> AbstractContextManager[RecordedRun]:
    return recorded_run(
        plan, target=target, labels=None, ledger=None, label="", trace=True, engine="x", simulated=True
    )


def fail(target: Path | None) -> None:
    with traced(Plan(users=10, items=3), target) as run:
        run.recorder(BEGUN)
        raise RuntimeError("the text may hold data")


def test_its_trace_lies_beside_the_folder_that_was_not_written(tmp_path: Path) -> None:
    for name in ("run.failed-trace.jsonl", "run.failed-2-trace.jsonl"):
        with pytest.raises(RuntimeError):
            fail(tmp_path / "run")
        assert read_trace(tmp_path / name).events == [BEGUN, RunEnded("failed", "RuntimeError")]
        assert "may hold data" not in (tmp_path / name).read_text()


def test_a_folder_that_could_not_be_finished_leaves_a_trace_with_one_end(tmp_path: Path) -> None:
    plan = Plan(users=10, items=3, selector="fixed", threshold=2.0)
    release = simulate(HeavyTailedPopulation(users=10, items=3, seed=1), plan, seed=1).release

    def full(folder: Path) -> list[str]:
        raise OSError("no room for the report")

    with pytest.raises(NotWritten), traced(plan, tmp_path / "run") as run:
        run.recorder(BEGUN)
        run.write(tmp_path / "run", {}, release, None, also=[full])
    (left,) = tmp_path.iterdir()
    assert read_trace(left).events == [BEGUN, RunEnded("failed", "NotWritten")]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError):
        fail(None)
    assert list(tmp_path.iterdir()) == []
