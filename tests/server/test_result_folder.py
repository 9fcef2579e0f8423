"""A result folder is there with all its files or not at all."""

from __future__ import annotations

import csv
import json
import os
import signal
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from fedhist import InvalidInput, Plan, Release
from tests.support.api import InvalidFile, default_folder, held_off, new_folder, write_results
from tests.support.refusals import refused


def release_of(values: list[float], *, private: bool = True) -> Release:
    return Release(
        plan=Plan(users=9, items=len(values)),
        threshold=3.5,
        histogram=np.array(values),
        standard_error=1.25,
        charges=(),
        private=private,
        seeded=False,
    )


class TestNewFolder:
    def test_it_appears_whole_at_the_end(self, tmp_path: Path) -> None:
        target = tmp_path / "r"
        with new_folder(target) as folder:
            (folder / "a.txt").write_text("content")
            assert not target.exists()
            assert folder.parent == tmp_path
            assert folder.name.startswith(".")
        assert [path.name for path in tmp_path.iterdir()] == ["r"]
        assert (target / "a.txt").read_text() == "content"
        assert target.stat().st_mode & 0o777 == 0o755

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
    def test_whatever_ends_the_block_leaves_nothing(self, tmp_path: Path, error: type[BaseException]) -> None:
        with pytest.raises(error), new_folder(tmp_path / "r") as folder:
            (folder / "half.txt").write_text("half")
            raise error
        assert list(tmp_path.iterdir()) == []

    def test_a_target_that_appears_meanwhile_is_not_replaced(self, tmp_path: Path) -> None:
        target = tmp_path / "r"
        with refused(InvalidFile, "exists-already"), new_folder(target):
            target.mkdir()
        assert list(tmp_path.iterdir()) == [target]
        assert list(target.iterdir()) == []

    @pytest.mark.parametrize("name", ["r", "x" * os.pathconf("/", "PC_NAME_MAX")], ids=len)
    def test_a_relative_target_is_made_in_the_current_folder_and_may_have_the_longest_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with new_folder(Path(name)):
            pass
        assert (tmp_path / name).is_dir()


class TestTarget:
    def test_the_default_name_tells_the_time_and_counts_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        now = datetime(2026, 1, 31, 23, 59, 58)
        names = []
        for _ in range(3):
            folder = default_folder(now)
            folder.mkdir()
            names.append(folder.name)
        assert names == [f"fedhist-run-20260131-235958{end}" for end in ("", "-2", "-3")]


class TestFiles:
    def test_values_keep_every_digit(self, tmp_path: Path) -> None:
        values = [0.1, -3.0, 1 / 3, 2**40 + 2**-10]
        write_results(tmp_path, {"threshold": 3.5}, release_of(values), None)
        with (tmp_path / "histogram.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [float(row["value"]) for row in rows] == values
        assert [row["item"] for row in rows] == ["0", "1", "2", "3"]
        assert {row["standard_error"] for row in rows} == {"1.25"}
        assert json.loads((tmp_path / "result.json").read_text()) == {"threshold": 3.5}
        plan = json.loads((tmp_path / "plan.json").read_text())
        assert Plan.from_json(plan) == Plan(users=9, items=4)

    def test_labels_that_do_not_fit_are_refused_and_not_a_short_file(self, tmp_path: Path) -> None:
        with refused(InvalidInput, "wrong-number-of-labels"):
            write_results(tmp_path, {}, release_of([1.0, 2.0]), ["only one"])

    @pytest.mark.parametrize("private", [True, False])
    def test_a_release_that_is_not_private_is_marked(self, tmp_path: Path, private: bool) -> None:
        write_results(tmp_path, {}, release_of([1.0], private=private), None)
        assert (tmp_path / "NOT-PRIVATE.txt").exists() is not private


class TestHeldOff:
    def test_an_interrupt_is_ignored_inside_and_works_again_after(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with held_off():
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, before)
