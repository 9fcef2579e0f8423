"""Runs that are killed with SIGKILL at random moments: the small version of `benchmarks/crashes.py`.

The victims of one seed die at the same lines every time; those that die by the clock do not, and whatever they leave
must be just as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_SECONDS = 300.0
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "crashes.py"


def crashes(folder: Path, *arguments: str, prelude: str = "") -> tuple[int, str]:
    """The exit code of the script and what it printed; the prelude may break what the script is to check."""
    code = (
        f"{prelude}\nimport runpy, sys\nsys.argv = sys.argv[1:]\nsys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(SCRIPT), "--flower", "0", "--deployment", "0", *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, done.stdout


# Many processes on a busy machine: longer than the limit of other tests, and still a limit.
pytestmark = [pytest.mark.timeout(LIMIT_SECONDS + 100), pytest.mark.slow]


def test_whatever_the_moment_nothing_is_half_written_lost_or_spent_twice(tmp_path: Path) -> None:
    code, said = crashes(tmp_path, "--kills", "10", "--seed", "7")
    assert code == 0, said
    assert "WRONG" not in said
    table = {line[:22].strip(): line[22:].split() for line in said.splitlines()}
    assert table["fedhist run"][1] == table["coordinator"][1] == "5"
    assert list(tmp_path.iterdir()) == []


# A folder that is written under its own name.
IN_PLACE = """
from contextlib import contextmanager
from fedhist.server import disk

@contextmanager
def in_place(target):
    target.mkdir()
    yield target

disk.new_folder = in_place
"""
# A device that answers round 1 before it has noted that it was asked.
FORGETFUL = """
from fedhist.client.memory_file import MemoryFile
admit = MemoryFile.admit

def admit_round_2_only(memory, policy, envelope):
    if envelope.request.round.value == "release":
        admit(memory, policy, envelope)

MemoryFile.admit = admit_round_2_only
"""


@pytest.mark.parametrize(
    ("harm", "file"),
    [(IN_PLACE, "server/disk.py"), (FORGETFUL, "client/memory_file.py")],
    ids=["written-in-place", "answers-before-it-remembers"],
)
def test_the_script_sees_code_that_is_wrong(tmp_path: Path, harm: str, file: str) -> None:
    kills = "12" if file == "server/disk.py" else "2"
    code, said = crashes(tmp_path, "--kills", kills, "--seed", "7", "--only", file, prelude=harm)
    assert code == 1, said
    assert "WRONG" in said
