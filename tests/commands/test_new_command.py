"""`fedhist new` writes an app that Flower builds and that runs as it is, on virtual nodes and on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fedhist.simulations.engines.quiet import ENVIRONMENT
from tests.builders import Fedhist, python

RUN = """
import sys, tomllib
from pathlib import Path
from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp
sys.path[:0] = [{app!r}, {scenarios!r}]
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
IN_RAY = """
from flwr.simulation import run_simulation
whole = ServerApp()
@whole.main()
def main(grid, context):
    context.run_config.update(config)
    server_app(grid, context)
run_simulation(server_app=whole, client_app=client_app, num_supernodes=4)
"""
SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"


@pytest.fixture
def app(fedhist: Fedhist, tmp_path: Path) -> Path:
    folder = tmp_path / "visits-app"
    done = fedhist("new", str(folder))
    assert done.code == 0
    assert "next: flwr run" in done.out
    return folder


def printed(app: Path, code: str, **places: object) -> list[list[str]]:
    """What the app prints, a line a list of words."""
    text = (RUN + code).format(app=str(app), scenarios=str(SCENARIOS), **places)
    lines = python("-c", text, cwd=app.parent, PYTHONPATH=str(app), **ENVIRONMENT).splitlines()
    return [line.split() for line in lines][-5:]


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


def test_it_runs_on_virtual_nodes(app: Path) -> None:
    node = '{"partition-id": place, "num-partitions": 10}'
    *items, cost = printed(app, ON_A_GRID, nodes=10, node_config=node, run_config={})
    assert [words[0] for words in items] == ["home", "search", "cart", "help"]
    # 500 users with 2 visits to each page in the mean.
    assert all(abs(int(words[1]) - 1000) < 300 + 10 * int(words[3]) for words in items)
    assert cost[0] == "epsilon"
    assert float(cost[1].strip(",")) < 1.1


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
    node = f'{{{files}, "max-epsilon": 2.0}}'
    ledger = {"ledger": str(tmp_path / "people.ledger")}
    *items, _ = printed(app, ON_A_GRID, nodes=3, node_config=node, run_config=ledger)
    released = {words[0]: int(words[1]) for words in items}
    assert released["home"] + released["cart"] > released["search"] + released["help"]
    assert all((tmp_path / f"{place}.db").exists() for place in range(3))
    shown = fedhist("ledger", "show", str(tmp_path / "people.ledger"))
    assert "histogram" in shown.out
    assert "epsilon 1.1" in shown.out


@pytest.mark.slow
def test_it_runs_in_flower_s_simulation_engine(app: Path) -> None:
    *items, _ = printed(app, IN_RAY)
    assert [words[0] for words in items] == ["home", "search", "cart", "help"]


def test_a_folder_that_exists_is_left_alone(fedhist: Fedhist, app: Path) -> None:
    before = {path: path.read_bytes() for path in app.rglob("*") if path.is_file()}
    again = fedhist("new", str(app))
    assert again.code == 2
    assert "exists" in again.err
    assert {path: path.read_bytes() for path in app.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["9lives", "my_app", "a" * 33, "nowhere/app"])
def test_a_name_that_flower_refuses_is_refused_first(fedhist: Fedhist, tmp_path: Path, name: str) -> None:
    done = fedhist("new", str(tmp_path / name))
    assert done.code == 2
    assert "allowed" in done.err
    assert list(tmp_path.iterdir()) == []
