"""Where Flower is allowed, and what a Flower bundle of this checkout holds."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from fedhist.protocol.plan import Plan
from fedhist.server.grid_settings import FOR_NODES, GridSettings, read_settings
from fedhist.simulations.engines.quiet import ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("client", "fedhist", "protocol", "server", "simulations")
SIMULATED = ("simulations/__init__", "simulations/loading", "simulations/datasets/", "simulations/engines/")
MAY_IMPORT_FLOWER = {
    "client/app.py",
    "server/app.py",
    "simulations/engines/flower_run.py",
    "simulations/engines/flower_simulation.py",
}
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation"}
APP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]


def flower_imports() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names = [node.module]
                yield from (
                    (str(path.relative_to(ROOT)), name) for name in names if name.split(".")[0] == "flwr"
                )


def test_only_the_apps_and_the_flower_engines_import_flower() -> None:
    assert {path for path, _ in flower_imports()} == MAY_IMPORT_FLOWER


def test_only_public_modules_of_flower_are_imported() -> None:
    assert {name for _, name in flower_imports()} <= PUBLIC


@pytest.mark.parametrize(
    "code",
    [
        "import fedhist.client, fedhist.server, fedhist.commands.run",
        "from fedhist.simulations.engines import contract, in_process, node_files, quiet, flower_simulation",
        "from fedhist.commands.cli import cli; cli.main(['run', '--help'], standalone_mode=False)",
    ],
)
def test_nothing_loads_flower_before_it_is_needed(code: str) -> None:
    check = "import sys; assert not {'flwr', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", f"{code}\n{check}"], check=True, capture_output=True, timeout=60)


def test_two_calls_plug_fedhist_in() -> None:
    from fedhist.client import Policy, mount
    from fedhist.client import app as client_app
    from fedhist.server import app as server_app
    from fedhist.server import run_on_grid

    assert mount is client_app.mount
    assert run_on_grid is server_app.run_on_grid
    assert Policy().minimum_cohort == 1


def test_the_run_config_lists_every_setting_once() -> None:
    """A key that is not listed could not be given at all."""
    settings = {f.name for f in fields(Plan)} | {f.name for f in fields(GridSettings)} - {"plan"}
    listed = {name for name in APP["config"] if not name.startswith(FOR_NODES)}
    assert {name.replace("-", "_") for name in listed} == settings


def test_the_run_config_of_the_checkout_leaves_all_but_users_to_the_defaults() -> None:
    assert read_settings(APP["config"] | {"users": 10, "items": 3}) == GridSettings(
        plan=Plan(users=10, items=3)
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    environment = os.environ | ENVIRONMENT | {"FLWR_HOME": str(folder / "home")}
    command = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=folder, env=environment)
    (built,) = folder.glob("*.fab")
    return built


def test_the_bundle_holds_what_both_apps_need_and_nothing_else(bundle: Path) -> None:
    """Not the experiments, figures and commands of simulations/: every node gets a copy of the bundle."""
    with zipfile.ZipFile(bundle) as archive:
        names = set(archive.namelist())
    whole = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    left_out = ("simulations/", "fedhist/commands/", "fedhist/testing/")
    ours = {name for name in whole if not name.startswith(left_out) or name.startswith(SIMULATED)}
    assert names == ours | {"LICENSE", "pyproject.toml", ".info/CONTENT"}
    assert bundle.stat().st_size < 1_000_000


def test_an_unpacked_bundle_runs_uninstalled(bundle: Path, tmp_path: Path) -> None:
    """Flower puts the bundle's folder first on the path and loads the components by name."""
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
    code = (
        "from importlib import import_module\n"
        "import fedhist\n"
        "print(fedhist.__file__)\n"
        f"for name in {list(APP['components'].values())}:\n"
        "    module, attribute = name.split(':')\n"
        "    print(type(getattr(import_module(module), attribute)).__name__)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment,
    )
    assert done.stdout.split() == [str(tmp_path / "fedhist" / "__init__.py"), "ServerApp", "ClientApp"]
