"""docs/deployment.md, as a reader would paste it: every shell block, from top to bottom, in one bash.

Only the installation, which is done here, and the ports are others.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from leftovers import ends_soon, processes_of

from fedhist.server.ledger.budget_file import BudgetFile
from fedhist.simulations.deployment.processes import free_ports

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
LIMIT_SECONDS = 540.0

pytestmark = pytest.mark.timeout(600)

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="the machine has no /proc to look for leftovers in"
)


def commands() -> str:
    """All shell blocks, for an installed fedhist and free ports."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    script = "".join(blocks)
    link, tens = free_ports(1)[0], free_tens()
    for shown, used in {"pip install .\n": "", "9093": f"{link}", '"910$1"': f'"{tens}$1"'}.items():
        assert shown in script
        script = script.replace(shown, used)
    return "set -euo pipefail\n" + script


def free_tens() -> int:
    """The digits before the last of ports that nobody uses, for three nodes or more."""
    taken = set(re.findall(r":([0-9A-F]{4}) ", Path("/proc/net/tcp").read_text(encoding="utf-8")))
    used = {int(port, 16) // 10 for port in taken}
    return next(port // 10 for port in free_ports(100) if port // 10 not in used and port < 65_530)


def pasted(script: str, home: Path) -> str:
    """What bash prints for the script. Whatever it has started is gone afterwards, however it ends."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"HOME": str(home), "PATH": programs, "NO_PROXY": "127.0.0.1,localhost"}
    # Every message is a process, which would compile the bundle in this folder anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    printed = home / "printed.txt"
    try:
        with printed.open("w", encoding="utf-8") as out:
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        text = printed.read_text(encoding="utf-8")
        assert done.returncode == 0, text[-3000:]
        assert ends_soon(lambda: processes_of(home)), "the page leaves processes behind"
        return text
    finally:
        for pid in processes_of(home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


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
    printed = pasted(commands(), home)
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
