"""Processes that race for a ledger file, and processes that die with it open.

The children are real and are killed with SIGKILL, so nothing of theirs runs afterwards. They say on their
standard output how far they got, and wait on their standard input: no test sleeps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedhist import BudgetFile, Charge, Cost, Limit, Spending
from tests.support.api import PureLoss

NOW = datetime(2024, 5, 17, 12, 30, tzinfo=UTC)
STEP = Charge("select", "laplace", {}, 1.0, "l1", "zero-out", 0.01, 0.0, PureLoss())
RUN_COST = Spending.of_cost(Cost(1.0, 1e-7))

PRELUDE = """
import sys
from datetime import UTC, datetime
from fedhist.protocol.errors import BudgetExceeded
from fedhist.protocol.privacy.ledger import Limit, Spending
from fedhist.protocol.privacy.ledger import Charge, Cost, PureLoss
from fedhist.server.ledger.file import BudgetFile

NOW = datetime(2024, 5, 17, 12, 30, tzinfo=UTC)
STEP = Charge("select", "laplace", {}, 1.0, "l1", "zero-out", 0.01, 0.0, PureLoss())
RUN_COST = Spending.of_cost(Cost(1.0, 1e-7))

def say(word):
    print(word, flush=True)
"""

RACE = """
say("ready")
sys.stdin.readline()
for number in range(5):
    try:
        BudgetFile.open(sys.argv[1], create=True).begin("hash", {}, RUN_COST, str(number), NOW)
        say("won")
    except BudgetExceeded:
        say("refused")
"""

CREATE = """
say("ready")
sys.stdin.readline()
BudgetFile.open(sys.argv[1], create=True).begin("hash", {}, RUN_COST, "", NOW)
say("begun")
"""

CHARGE_FOR_EVER = """
run = BudgetFile.open(sys.argv[1], create=False).begin("hash", {}, Spending.of_cost(Cost(1e6, 1e-6)), "doomed", NOW)
while True:
    run.record(STEP)
    say("charged")
"""

HALF_A_TRANSACTION = """
import sqlite3
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("PRAGMA cache_spill = 1")
database.execute("BEGIN IMMEDIATE")
for number in range(200):
    database.execute(
        "INSERT INTO runs (begun, plan_hash, plan, label, "
        "reserved_epsilon, reserved_delta, reserved_rho, reserved_failure, alone, status) "
        "VALUES ('2024-05-17T12:30:00+00:00', 'hash', '{}', ?, 1, 0, 0, 0, 0, 'open')", ("x" * 2000,)
    )
say("written")
sys.stdin.readline()
"""


@contextlib.contextmanager
def child(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own; whatever happens, it is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def assert_whole(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    BudgetFile.open(path, create=True)
    return path


def test_of_ten_runs_that_two_processes_ask_for_at_once_exactly_the_three_that_fit_begin(path: Path) -> None:
    ledger = BudgetFile.open(path, create=False)
    ledger.set_limit(Limit(3.0, 3e-6))
    with child(RACE, path) as first, child(RACE, path) as second:
        assert hear(first) == hear(second) == "ready"
        go_on(first)
        go_on(second)
        answers = [hear(process) for process in (first, second) for _ in range(5)]
    assert sorted(answers) == ["refused"] * 7 + ["won"] * 3
    assert len(ledger.runs()) == 3
    assert dataclasses.astuple(ledger.reserved().cost) == pytest.approx((3.0, 3e-7))


def test_two_processes_that_create_one_ledger_share_it(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with child(CREATE, path) as first, child(CREATE, path) as second:
        assert hear(first) == hear(second) == "ready"
        go_on(first)
        go_on(second)
        assert hear(first) == hear(second) == "begun"
    assert len(BudgetFile.open(path, create=False).runs()) == 2


@pytest.mark.parametrize("acknowledged", [1, 7, 20])
def test_a_process_killed_while_it_charges_loses_no_charge_that_was_acknowledged(
    path: Path, acknowledged: int
) -> None:
    with child(CHARGE_FOR_EVER, path) as process:
        for _ in range(acknowledged):
            assert hear(process) == "charged"
        process.kill()
        assert process.stdout is not None
        said_later = len(process.stdout.readlines())
    assert_whole(path)
    (record,) = BudgetFile.open(path, create=False).runs()
    # The process may have died after a charge was on disk and before it said so.
    assert len(record.charges) - (acknowledged + said_later) in {0, 1}
    assert set(record.charges) == {STEP}


def test_a_process_killed_in_the_middle_of_a_write_leaves_the_ledger_as_it_was(path: Path) -> None:
    ledger = BudgetFile.open(path, create=False)
    ledger.set_limit(Limit(1.0, 1e-6))
    run = ledger.begin("hash", {}, RUN_COST, "survivor", NOW)
    run.record(STEP)
    before = ledger.runs()
    size = path.stat().st_size
    with child(HALF_A_TRANSACTION, path) as process:
        assert hear(process) == "written"
        assert path.stat().st_size > size  # it is in the file, and the journal knows how to undo it
        process.kill()
    again = BudgetFile.open(path, create=False)
    assert again.runs() == before
    assert again.limit == Limit(1.0, 1e-6)
    assert_whole(path)
    run.record(STEP)
    run.released()
    assert again.spent().cost == Cost(0.02, 0.0)
