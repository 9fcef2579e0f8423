"""Disks that are full or must not be written: a sentence, nothing half written, and a ledger that tells what was spent.

A small file system of its own is mounted where the tests run as root; elsewhere a limit on the size of files stands for
a full disk, and a folder without the right to write for one that is read-only.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedhist import BudgetFile, Plan
from fedhist.client import Policy
from fedhist.server import charged
from tests.asking import select_request
from tests.support.api import Envelope, InvalidFile, MemoryFile, check_room, folder_module
from tests.support.api import folder_module as result_folder
from tests.support.refusals import refused

Fedhist = Callable[..., Any]
PLAN = Plan(users=10, items=2)
WHOLE_FOLDER = ["NOT-PRIVATE.txt", "histogram.csv", "plan.json", "report.html", "result.json"]
RUN = ["run", "--users", "1000", "--items", "5", "--no-evaluate", "--seed", "1"]


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[..., None]]:
    """A file system of so many kilobytes; the function that is yielded mounts it again with other options."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")

    def again(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

    try:
        yield again
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow beyond this, which the system tells as it tells a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def one_sentence(code: int, text: str, *codes: int) -> str:
    """The error that a call ended with, which is one sentence, after a check of its exit code."""
    assert code in codes
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    assert "unknown file" not in text
    return text


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def only_run(ledger: Path) -> tuple[str, float]:
    (run,) = BudgetFile.open(ledger, create=False).runs()
    return run.status, run.charged.epsilon


class TestTheResultFolder:
    def test_a_full_disk_is_refused_before_anything_is_spent(self, tmp_path: Path, fedhist: Fedhist) -> None:
        disk, ledger = tmp_path / "disk", tmp_path / "l.db"
        with small_disk(disk, 64):
            done = fedhist(*RUN, "--out", str(disk / "r"), "--ledger", str(ledger))
            assert names_in(disk) == []
        assert "no room" in one_sentence(done.code, done.err, 2)
        assert not ledger.exists()

    def test_room_for_the_rows_is_asked_for_too(self, tmp_path: Path) -> None:
        with file_size_limit(2**20):
            check_room(tmp_path / "r", Plan(users=10, items=100), None)
            with refused(InvalidFile, "no-room"):
                check_room(tmp_path / "r", Plan(users=10, items=100_000), None)
            with refused(InvalidFile, "no-room"):
                check_room(
                    tmp_path / "r",
                    Plan(users=10, domain="open", release="truncated-laplace"),
                    ["x" * 1000] * 1000,
                )
        assert names_in(tmp_path) == []

    def test_a_disk_that_fills_up_meanwhile_costs_what_was_charged_and_leaves_nothing(
        self, tmp_path: Path, fedhist: Fedhist, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = result_folder.write_results

        def write_on_a_full_disk(*arguments: object) -> None:
            with file_size_limit(100):
                real(*arguments)  # type: ignore[arg-type]  # passed on as they come

        monkeypatch.setattr(folder_module, "write_results", write_on_a_full_disk)
        ledger = tmp_path / "l.db"
        done = fedhist(*RUN, "--out", str(tmp_path / "r"), "--ledger", str(ledger))
        said = one_sentence(done.code, done.err, 1)
        assert "can't be written (File too large)" in said
        assert "stays charged" in said
        assert names_in(tmp_path) == ["l.db"]
        assert only_run(ledger) == ("failed", pytest.approx(1.1))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_without_the_right_to_write(self, tmp_path: Path, fedhist: Fedhist) -> None:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        done = fedhist(*RUN, "--out", str(locked / "r"), "--ledger", str(tmp_path / "l.db"))
        one_sentence(done.code, done.err, 2)
        assert not (tmp_path / "l.db").exists()


class TestTheLedger:
    def test_a_disk_that_fills_up_during_the_run_leaves_it_open_and_tells_why_it_failed(
        self, tmp_path: Path
    ) -> None:
        disk = tmp_path / "disk"
        with small_disk(disk, 128):
            ledger = disk / "l.db"
            with pytest.raises(ZeroDivisionError) as caught, charged(ledger, PLAN, label="x"):
                fill(disk)
                _ = 1 / 0
            (disk / "filler").unlink()
            budget = BudgetFile.open(ledger, create=False)
            assert [run.status for run in budget.runs()] == ["open"]
            assert budget.reserved().epsilon == pytest.approx(1.1)
        assert any("Run 1 stays open" in note for note in caught.value.__notes__)

    def test_a_ledger_that_can_t_be_told_of_the_end_does_not_undo_the_result(
        self, tmp_path: Path, fedhist: Fedhist, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk, out = tmp_path / "disk", tmp_path / "r"
        real = result_folder.write_results

        def write_and_fill(*arguments: object) -> None:
            real(*arguments)  # type: ignore[arg-type]  # passed on as they come
            fill(disk)

        monkeypatch.setattr(folder_module, "write_results", write_and_fill)
        with small_disk(disk, 128):
            ledger = disk / "l.db"
            done = fedhist(*RUN, "--out", str(out), "--ledger", str(ledger))
            (disk / "filler").unlink()
            assert only_run(ledger) == ("open", pytest.approx(1.1))
        said = one_sentence(done.code, done.err, 2)
        assert "a result folder is whole" in said
        assert "'fedhist ledger close'" in said
        assert names_in(out) == WHOLE_FOLDER

    def test_a_limit_on_the_size_of_files(self, tmp_path: Path, fedhist: Fedhist) -> None:
        ledger = tmp_path / "l.db"
        BudgetFile.open(ledger, create=True)
        with file_size_limit(ledger.stat().st_size // 2):
            done = fedhist(*RUN, "--json", "--ledger", str(ledger))
        one_sentence(done.code, done.err, 2)
        assert BudgetFile.open(ledger, create=False).runs() == []


class TestADevicesMemory:
    @staticmethod
    def ask(path: Path, run: str) -> None:
        MemoryFile(path).admit(Policy(max_epsilon=10.0), Envelope(run=run, request=select_request(PLAN)))

    def test_a_limit_on_the_size_of_files(self, tmp_path: Path) -> None:
        memory = tmp_path / "m.db"
        self.ask(memory, "one")
        before = MemoryFile(memory).read()
        with file_size_limit(4096), refused(InvalidFile, "unusable-memory"):
            self.ask(memory, "two")
        assert MemoryFile(memory).read() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_behind_standard_output_does_not_touch_the_result(tmp_path: Path) -> None:
    code = "from fedhist.commands.cli import main; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, *RUN, "--out", "r"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].startswith("note: standard output failed")
    assert done.stderr.endswith("the result is whole, in r\n")
    assert names_in(tmp_path / "r") == WHOLE_FOLDER


class TestExperiments:
    """`fedhist compare` on a disk that takes some of its files: tables and figures are whole, or they are not there."""

    SMALL = ("compare", "--users", "50", "--items", "5", "--trials", "1", "--workers", "1")

    @pytest.mark.parametrize("name", ["table.csv", "table.parquet", "figure.svg", "figure.png"])
    def test_a_table_or_figure_is_whole_or_absent(self, name: str, tmp_path: Path, fedhist: Fedhist) -> None:
        out = tmp_path / "c"
        call = (*self.SMALL, "--out", str(out))
        assert fedhist(*call).code == 0
        whole = {path.name: path.read_bytes() for path in out.iterdir()}
        for written in ("table.csv", "table.parquet", "figure.svg", "figure.png"):
            (out / written).unlink()
        with file_size_limit(len(whole[name]) - 1):
            done = fedhist(*call)
        said = one_sentence(done.code, done.err, 1)
        assert str(out) in said and "File too large" in said and "finished trials are kept" in said
        left = {path.name: path.read_bytes() for path in out.iterdir()}
        assert name not in left
        assert left.items() <= whole.items()
        assert fedhist(*call).code == 0
        assert {path.name: path.read_bytes() for path in out.iterdir()} == whole

    def test_trials_that_find_no_room_are_told_and_those_before_are_kept(
        self, tmp_path: Path, fedhist: Fedhist
    ) -> None:
        call = (*self.SMALL, "--out", str(tmp_path / "c"))
        with file_size_limit(700):
            done = fedhist(*call)
        told = f"{tmp_path / 'c'} can't be written (File too large); finished trials are kept"
        assert told in one_sentence(done.code, done.err, 1)
        assert names_in(tmp_path / "c") == ["NOT-PRIVATE.txt", "trials.jsonl"]
        kept = (tmp_path / "c/trials.jsonl").read_bytes().rpartition(b"\n")[0]
        assert kept.count(b"\n") >= 1
        assert fedhist(*call).code == 0
        assert (tmp_path / "c/trials.jsonl").read_bytes().startswith(kept)

    def test_a_temporary_folder_is_told_by_its_name(
        self, tmp_path: Path, fedhist: Fedhist, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "temporary"
        place.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place))
        with file_size_limit(200):
            done = fedhist(*self.SMALL, "--json")
        said = one_sentence(done.code, done.err, 1)
        assert f"the temporary folder {place / 'fedhist-'}" in said
        assert "standard output" not in said
        assert names_in(place) == []


class TestEveryOtherFile:
    """Reports, figures, tables, matrices and traces: a sentence with the file's name, and nothing half written."""

    COMMANDS = (
        ("report", "{run}", "--out", "{disk}/report.html"),
        ("figure", "{run}", "released", "--out", "{disk}/figure.svg"),
        ("plan", "--users", "50", "--items", "5", "--csv", "{disk}/rows.csv"),
        ("plan", "--users", "50", "--items", "5", "--figure", "{disk}/curve.png"),
        ("compare", "--users", "50", "--items", "5", "--trials", "1", "--workers", "1", "--out", "{disk}/c"),
        ("paper", "figure-debias", "--quick", "--workers", "1", "--out", "{disk}/p"),
        ("run", "--users", "50", "--items", "5", "--trace", "--out", "{disk}/r"),
    )

    @pytest.fixture
    def place(self, tmp_path: Path, fedhist: Fedhist) -> Callable[[str], str]:
        """Fills in the names of a run, of a table and of the disk."""
        (tmp_path / "visits.csv").write_text("user,item\n1,a\n1,b\n2,a\n")
        assert fedhist(*RUN, "--out", str(tmp_path / "run")).code == 0
        names = {"run": tmp_path / "run", "visits": tmp_path / "visits.csv", "disk": tmp_path / "disk"}
        return lambda text: text.format(**names)

    @pytest.mark.parametrize("full", [True, False], ids=["full", "read-only"])
    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_a_disk_that_takes_nothing(
        self,
        command: tuple[str, ...],
        full: bool,
        place: Callable[[str], str],
        tmp_path: Path,
        fedhist: Fedhist,
    ) -> None:
        disk = tmp_path / "disk"
        with small_disk(disk, 16) as again:
            fill(disk)
            if not full:
                again("ro")
            done = fedhist(*map(place, command))
            left = [path.name for path in disk.rglob("*") if path.is_file() and path.stat().st_size]
        last = done.err.splitlines(keepends=True)[-1]
        said = one_sentence(done.code, last, *((1, 2) if full else (2,)))
        assert str(disk) in said and (not full or "No space left" in said)
        assert left == ["filler"]
