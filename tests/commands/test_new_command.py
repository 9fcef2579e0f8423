"""`fedhist new` writes an app that Flower builds and that runs as it is, on virtual nodes and on real ones."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from pasted_commands import needs_proc, pasted, shell_blocks, with_free_ports

from tests.builders import ROOT, Fedhist, python
from tests.support.api import ENVIRONMENT

RUN = """
import sys, tomllib
from pathlib import Path
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp
sys.path[:0] = [{app!r}, {scenarios!r}]
sys.path.append({root!r})
from histogram_app.client_app import app as client_app
from histogram_app.server_app import app as server_app
config = tomllib.loads(Path({app!r}, "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
"""
ON_A_GRID = """
from local_grid import LocalGrid, be_a_server
be_a_server()
grid = LocalGrid.of([client_app] * {nodes})
for place, node in enumerate(grid.nodes.values()):
    node.context = Context(1, 100 + place, {node_config}, RecordDict(), {{}})
server_app(grid, Context(1, 1, {{}}, RecordDict(), config | {run_config!r}))
"""
SIMULATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]["simulation"]
SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"


@pytest.fixture
def app(fedhist: Fedhist, tmp_path: Path) -> Path:
    folder = tmp_path / "visits-app"
    done = fedhist("new", str(folder))
    assert done.code == 0
    assert f"flwr run {folder} local --stream" in done.out
    return folder


def printed(app: Path, code: str, **places: object) -> str:
    text = (RUN + code).format(app=str(app), scenarios=str(SCENARIOS), root=str(ROOT), **places)
    return python("-c", text, cwd=app.parent, PYTHONPATH=str(app), **ENVIRONMENT)


def tables(text: str) -> list[list[int]]:
    """The counts that the app prints, a list for each run."""
    lines = r"\s+".join(rf"{item}: ([\d,]+), at least [\d,]+" for item in ("home", "search", "cart", "help"))
    return [[int(count.replace(",", "")) for count in found] for found in re.findall(lines, text)]


def check_near(released: Sequence[int], exact: Sequence[int]) -> None:
    """Within a few percent: the noise has a standard error of 110 at most, at the largest threshold."""
    assert all(abs(count - right) < 600 for count, right in zip(released, exact, strict=True))
    error = sum(abs(count - right) for count, right in zip(released, exact, strict=True))
    assert error < 0.03 * sum(exact)


def test_flower_builds_it_in_the_format_of_its_hub(app: Path, tmp_path: Path) -> None:
    environment = os.environ | ENVIRONMENT | {"FLWR_HOME": str(tmp_path / "home")}
    command = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(app)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=tmp_path, env=environment)
    (bundle,) = tmp_path.glob("*.visits-app.*.fab")
    with zipfile.ZipFile(bundle) as archive:
        names = set(archive.namelist())
        settings = tomllib.loads(archive.read("pyproject.toml").decode())
    modules = {f"histogram_app/{name}.py" for name in ("__init__", "items", "client_app", "server_app")}
    assert names == modules | {"LICENSE", "README.md", "pyproject.toml", ".info/CONTENT"}
    assert settings["tool"]["flwr"]["app"]["fab-format-version"] == 1
    assert settings["project"]["name"] == "visits-app"


def test_what_it_prints_is_within_a_few_percent_of_the_exact_counts(app: Path) -> None:
    node = '{"partition-id": place, "num-partitions": 2}'
    exact = (
        "from histogram_app.client_app import users_here\n"
        "print(sum(users_here(node.context).sum(axis=0) for node in grid.nodes.values()))\n"
    )
    text = printed(app, ON_A_GRID + exact, nodes=2, node_config=node, run_config={})
    counts = [int(count) for count in re.findall(r"\d+", text.splitlines()[-1])]
    assert min(counts) > 3_500
    (released,) = tables(text)
    check_near(released, counts)
    (epsilon,) = re.findall(r"^epsilon ([\d.]+), delta", text, re.MULTILINE)
    assert float(epsilon) < 1.1


def test_it_runs_unchanged_on_nodes_with_data_and_charges_a_ledger(
    fedhist: Fedhist, app: Path, tmp_path: Path
) -> None:
    for place in range(3):
        rows = [
            f"user-{place}-{user},{item}\n"
            for user in range(60)
            for item in ("home", "cart")
            for _ in range(9)
        ]
        (tmp_path / f"{place}.csv").write_text("user,item\n" + "".join(rows))
    files = f'"data-path": f"{tmp_path}/{{place}}.csv", "memory-path": f"{tmp_path}/{{place}}.db"'
    node = f'{{{files}, "max-epsilon": 2.0, "max-delta": 1e-5}}'
    ledger = {"ledger": str(tmp_path / "people.ledger")}
    ((home, search, cart, others),) = tables(
        printed(app, ON_A_GRID, nodes=3, node_config=node, run_config=ledger)
    )
    assert home + cart > search + others
    assert all((tmp_path / f"{place}.db").exists() for place in range(3))
    shown = fedhist("ledger", "show", str(tmp_path / "people.ledger"))
    assert "histogram" in shown.out
    assert "epsilon 1.1" in shown.out


@needs_proc
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_its_commands_run_on_a_flower_for_which_nothing_is_set(tmp_path: Path) -> None:
    """What the page, then the command, then the app's README print: a simulation and a deployment."""
    home = tmp_path.resolve()
    (page,) = re.findall(r"`(fedhist new \S+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    readme = (files("fedhist") / "template" / "README.md").read_text(encoding="utf-8")
    simulation, *others = shell_blocks(readme.replace("histogram-app", "visits-app"))
    script = with_free_ports(
        f"{page} > new.txt\neval \"$(sed -n 's/^next: //p' new.txt)\"\n{''.join(others)}"
    )
    printed = pasted(script, home, cwd=home, seconds=540)
    assert f"next: {simulation}" in (home / "new.txt").read_text(encoding="utf-8")
    first, second = tables(printed)
    check_near(first, [16_000, 12_000, 8_000, 4_000])
    check_near(second, [16_000, 0, 8_000, 0])


def test_the_app_depends_on_nothing_that_a_package_index_would_send(app: Path) -> None:
    """Flower installs what an app depends on where all contributions arrive; fedhist is in no index."""
    document = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    names = {re.split(r"[^\w-]", text)[0] for text in document["project"]["dependencies"]}
    assert names == {"flwr"} == set(document["tool"]["uv"]["exclude-dependencies"])


def test_what_is_missing_is_named_before_the_first_run(
    fedhist: Fedhist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's programs on the path, and Ray. A folder with a space is one word for the shell."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("PATH", os.defpath)
    (tmp_path / "of ours").mkdir()
    (line,) = re.findall("^next: .*$", fedhist("new", str(tmp_path / "of ours" / "app")).out, re.MULTILINE)
    activate, install, run = line.removeprefix("next: ").split(" && ")
    assert shlex.split(activate) == [".", str(Path(sys.executable).with_name("activate"))]
    assert shlex.split(install) == ["pip", "install", *SIMULATION]
    assert shlex.split(run) == ["flwr", "run", str(tmp_path / "of ours" / "app"), "local", "--stream"]


def test_a_disk_that_fills_up_leaves_no_half_an_app(
    fedhist: Fedhist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        # A write names no file.
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedhist.server.disk.flush", full)
    done = fedhist("new", str(tmp_path / "visits-app"))
    assert done.code == 1
    assert f"{tmp_path / 'visits-app'} can't be written (No space left on device)" in done.err
    assert list(tmp_path.iterdir()) == []
