"""A run that is stopped: by Ctrl-C, by a polite kill, by a hard one.

The children are real. Their progress bar is drawn on a terminal that the test holds the other end of, so the
test knows how far a child is without asking the clock; where a moment is too short to be hit, the child's
script holds it open. No test sleeps.
"""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedhist import BudgetFile
from tests.support.api import RunRecord, usual_delta
from tests.support.api import cli_module as cli

# A child inherits ignored signals, as under nohup: there Ctrl-C would be meant to do nothing. The alarm ends a
# child that waits for something that never comes, so that a mistake here is a failure and not a hang.
START = """
import select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.alarm(60)
from fedhist.server import disk
from fedhist.commands import cli

def say(word):
    print(word, flush=True)
"""
RUN = "cli.main(sys.argv[1:])"

# The folder has all its files and is about to get its name.
HOLD_BEFORE_THE_NAME = """
def hold(folder):
    say("written")
    while True:  # short waits: a signal that comes just before a long one would not end it
        select.select([], [], [], 0.01)

disk._sync = hold
"""

# The folder is about to be removed.
HOLD_THE_CLEANING = (
    HOLD_BEFORE_THE_NAME
    + """
remove = disk.shutil.rmtree

def slow_remove(*arguments, **options):
    say("cleaning")
    sys.stdin.readline()
    remove(*arguments, **options)

disk.shutil.rmtree = slow_remove
"""
)

MANY_USERS = ("run", "--users", "300000", "--items", "200", "--seed", "1", "--no-evaluate")
FEW_USERS = ("run", "--users", "200", "--items", "5", "--seed", "1")
WRITES = ("--ledger", "l.db", "--out", "r")


class Child:
    """A run in a process of its own, whose error stream we hold."""

    def __init__(self, process: subprocess.Popen[str], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._bytes = b""

    @property
    def shown(self) -> str:
        """All that was read so far; a character of the bar may be cut at the end."""
        return self._bytes.decode(errors="replace")

    def wait_for_phase(self, words: str) -> None:
        """Read the terminal until the progress bar says so."""
        while words not in self.shown:
            assert self._read(), f"the run ended before {words!r}:\n{self.shown}"

    def wait_for_word(self, word: str) -> None:
        """Read what the held script says."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def end(self) -> int:
        """The exit code, once all output was read."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        try:
            part = os.read(self._terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self._bytes += part
        return bool(part)


@contextlib.contextmanager
def running(folder: Path, *arguments: str, hold: str = "") -> Iterator[Child]:
    # Nobody reads the terminal of a held child, and a full one would stop it: it gets a pipe and draws no bar.
    ours, theirs = os.pipe() if hold else pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START + hold + RUN, *arguments],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
        text=True,
    )
    os.close(theirs)
    try:
        with process:
            try:
                yield Child(process, ours)
            finally:
                process.kill()
    finally:
        os.close(ours)


def only_run(folder: Path) -> RunRecord:
    (run,) = BudgetFile.open(folder / "l.db", create=False).runs()
    return run


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_round_1_nothing_was_charged_and_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, *MANY_USERS, *WRITES) as child:
        child.wait_for_phase("round 1")
        child.process.send_signal(number)
        assert child.end() == cli.EXIT_INTERRUPTED
    assert "interrupted" in child.shown
    assert "Traceback" not in child.shown
    assert names_in(tmp_path) == ["l.db"]
    run = only_run(tmp_path)
    assert (run.status, run.reason) == ("failed", "KeyboardInterrupt")
    assert run.charged.epsilon == 0


def test_in_round_2_the_choice_of_the_threshold_stays_charged(tmp_path: Path) -> None:
    with running(tmp_path, *MANY_USERS, *WRITES) as child:
        child.wait_for_phase("round 2")
        child.process.send_signal(signal.SIGINT)
        assert child.end() == cli.EXIT_INTERRUPTED
    assert names_in(tmp_path) == ["l.db"]
    run = only_run(tmp_path)
    assert run.status == "failed"
    assert [charge.round for charge in run.charges] == ["select"]
    assert run.charged.epsilon == pytest.approx(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_the_folder_is_written_it_goes_away(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, *FEW_USERS, *WRITES, hold=HOLD_BEFORE_THE_NAME) as child:
        child.wait_for_word("written")
        (partial,) = tmp_path.glob(".*.partial")
        assert names_in(partial) == [
            "NOT-PRIVATE.txt",
            "histogram.csv",
            "plan.json",
            "report.html",
            "result.json",
            "simulation.json",
        ]
        child.process.send_signal(number)
        assert child.end() == cli.EXIT_INTERRUPTED
    assert names_in(tmp_path) == ["l.db"]
    run = only_run(tmp_path)
    assert run.status == "failed"
    # The noise was drawn: nobody saw it, but it counts.
    assert run.charged.epsilon == pytest.approx(1.1)


def test_a_second_ctrl_c_does_not_stop_the_cleaning(tmp_path: Path) -> None:
    with running(tmp_path, *FEW_USERS, *WRITES, hold=HOLD_THE_CLEANING) as child:
        child.wait_for_word("written")
        child.process.send_signal(signal.SIGINT)
        child.wait_for_word("cleaning")
        child.process.send_signal(signal.SIGINT)
        child.process.send_signal(signal.SIGTERM)
        assert child.process.stdin is not None
        child.process.stdin.write("go on\n")
        child.process.stdin.flush()
        assert child.end() == cli.EXIT_INTERRUPTED
    assert names_in(tmp_path) == ["l.db"]
    assert only_run(tmp_path).status == "failed"


def test_a_killed_run_holds_its_reservation_until_a_person_closes_it(tmp_path: Path) -> None:
    budget = BudgetFile.open(tmp_path / "l.db", create=True)
    with running(tmp_path, *MANY_USERS, *WRITES) as child:
        child.wait_for_phase("round 2")
        child.process.kill()
        assert child.end() == -signal.SIGKILL
    assert names_in(tmp_path) == ["l.db"]
    run = only_run(tmp_path)
    assert run.status == "open"
    assert run.charged.epsilon == pytest.approx(0.1)
    assert budget.reserved().epsilon == pytest.approx(1.1)
    assert budget.reserved().delta == pytest.approx(usual_delta(300_000))
    budget.close(run.id)
    assert budget.reserved().epsilon == 0
    assert budget.spent().epsilon == pytest.approx(0.1)
