"""Schedules that are killed with SIGKILL, and operators that race: the small version of `schedule_crashes.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_SECONDS = 300.0
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "schedule_crashes.py"
pytestmark = [pytest.mark.timeout(LIMIT_SECONDS + 20), pytest.mark.slow]


def crashes(folder: Path, *arguments: str, prelude: str = "") -> tuple[int, str]:
    """The exit code of the script and what it printed; the prelude may break what the script is to check."""
    code = (
        f"{prelude}\nimport runpy, sys\nsys.argv = sys.argv[1:]\nsys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(SCRIPT), *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, done.stdout


def test_nothing_is_spent_twice_released_twice_or_lost(tmp_path: Path) -> None:
    code, said = crashes(tmp_path, "--every", "150", "--start", "7", "--operators", "3")
    assert code == 0, said
    killed = re.search(r"(\d+) makings and (\d+) runs were killed", said)
    assert killed is not None and int(killed[1]) >= 2 and int(killed[2]) >= 4
    assert list(tmp_path.iterdir()) == []


# An operator who runs again, unasked, what was charged already.
CARELESS = """
from dataclasses import replace
from fedhist.server.schedule import ScheduleFile
states = ScheduleFile.states
ScheduleFile.states = lambda *args: [
    replace(state, status="due") if state.status == "lost" else state for state in states(*args)
]
"""
# A schedule whose runs forget their charges when they are lost.
FORGETFUL = """
from fedhist.server.ledger.file import BudgetFile
import sqlite3, contextlib
def forget(budget, run_id):
    with contextlib.closing(sqlite3.connect(budget.path)) as database:
        database.execute("DELETE FROM charges WHERE run = ?", (run_id,))
        database.execute("UPDATE runs SET status = 'closed' WHERE id = ?", (run_id,))
        database.commit()
BudgetFile.close = forget
"""


@pytest.mark.parametrize(
    ("harm", "says"),
    [(CARELESS, "run again unasked"), (FORGETFUL, "a charge of a killed run is gone")],
    ids=["runs-again-unasked", "forgets-charges"],
)
def test_the_script_sees_code_that_is_wrong(tmp_path: Path, harm: str, says: str) -> None:
    chosen = ("--only", "server/disk.py", "--every", "20", "--start", "9", "--operators", "0")
    code, said = crashes(tmp_path, *chosen, prelude=harm)
    assert code == 1, said
    assert says in said
