"""Damaged bytes and documents: every reader takes them or refuses them by an error of the project, and no other.

The long version, with a limit on memory, is `python tests/fuzz/run_long.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fuzz_targets import Target, targets

INPUTS = 60
FOLDERS = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - made by tempfile


@pytest.fixture(scope="module")
def readers() -> Iterator[dict[str, Target]]:
    with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
        yield {target.name: target for target in targets(Path(folder))}


def names() -> list[str]:
    with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
        return [target.name for target in targets(Path(folder))]


@pytest.mark.parametrize("name", names())
def test_it_takes_or_refuses(readers: dict[str, Target], name: str) -> None:
    target = readers[name]
    for number in range(INPUTS):
        data = target.draw(Random(f"{name}/{number}"))
        try:
            target.read(data)
        except target.refusals:
            pass
        except Exception as error:
            pytest.fail(f"{name}, input {number}: {type(error).__name__} for {str(data)[:200]}")


def test_what_is_not_damaged_is_read(readers: dict[str, Target]) -> None:
    """Mutations are drawn from valid inputs: of many, each reader takes some, so that they reach its last line."""
    for name in ("plan", "request", "memory text", "memory file", "ledger file", "table", "population .npz"):
        taken = 0
        for number in range(120):
            try:
                readers[name].read(readers[name].draw(Random(f"{name}/{number}")))
                taken += 1
            except readers[name].refusals:
                pass
        assert taken, name


def test_the_long_version_runs_under_a_limit_of_memory() -> None:
    here = Path(__file__).resolve()
    finished = subprocess.run(
        [sys.executable, here.with_name("run_long.py"), "--inputs", "200", "--only", "codec"],
        cwd=here.parents[2],
        env=os.environ | {"PYTHONPATH": str(here.parents[2]), "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "0 inputs raised something else" in finished.stdout
