"""docs/deployment.md, as a reader would paste it: every shell block, from top to bottom, in one bash.

Nothing is set beforehand: only the installation, which is done here, and what `pasted_commands` says are others.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pasted_commands import needs_proc, pasted, shell_blocks, with_free_ports

from fedhist import BudgetFile

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
LIMIT_SECONDS = 540.0

pytestmark = pytest.mark.timeout(600)


def commands() -> str:
    """All shell blocks, for an installed fedhist and free ports."""
    script = "".join(shell_blocks(PAGE))
    assert "pip install .\n" in script
    return with_free_ports(script.replace("pip install .\n", ""))


def statuses(printed: str) -> list[list[str]]:
    """The statuses of all runs, each time that they were listed."""
    lists = []
    for start in re.finditer(r"^\{$", printed, re.MULTILINE):
        document: dict[str, Any] = json.JSONDecoder().raw_decode(printed, start.start())[0]
        lists.append([run["status"] for run in document["runs"]])
    return lists


def shape(line: str) -> str:
    """A line without its seconds, which differ from run to run."""
    return re.sub(r"\d+\.\d\d s$", "... s", line.strip())


@needs_proc
@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    home = tmp_path.resolve()
    printed = pasted(commands(), home, cwd=ROOT, seconds=LIMIT_SECONDS)
    folder = home / "loopback"
    assert statuses(printed) == [["finished:completed"], ["finished:completed"] * 3]
    shown = [shape(line) for line in re.findall(r"^    fedhist: .*$", PAGE, re.MULTILINE)]
    lines = iter([shape(line) for line in printed.splitlines()])
    assert len(shown) == 5
    assert all(line in lines for line in shown), "the example on the page is not what a run prints"
    rounds = {"result": ["select", "release"], "masked": ["release"], "signed": ["release"]}
    for name, expected in rounds.items():
        document = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
        assert list(document["rounds"]) == expected
        nodes = 2 if name == "result" else 3
        for report in document["rounds"].values():
            assert (report["nodes"], report["answered"], report["users"]) == (nodes, nodes, 2 * nodes)
            assert report["faults"] == {}
        with (folder / name / "histogram.csv").open(newline="", encoding="utf-8") as file:
            assert [row["item"] for row in csv.DictReader(file)] == ["tea", "coffee", "water"]
    runs = BudgetFile.open(folder / "ledger.db", create=False).runs()
    assert [run.status for run in runs] == ["released"] * 3
    assert not list(folder.glob("*.pid"))


def test_the_commands_can_be_pasted_into_zsh() -> None:
    """An interactive zsh takes no comments, and the page is for both shells."""
    script = commands()
    assert not re.search(r"(^|\s)#", script)
    assert "exit" not in script.split()
    if zsh := shutil.which("zsh"):
        subprocess.run([zsh, "-n", "-c", script], check=True)
