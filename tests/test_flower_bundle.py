"""What a Flower bundle of this checkout holds, and that nothing else loads Flower early."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fedhist import InvalidInput
from tests.builders import ROOT, python, sources
from tests.support.api import ENVIRONMENT
from tests.support.refusals import refused

APP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]


@pytest.mark.parametrize(
    "code",
    [
        "import fedhist.client, fedhist.server, fedhist.commands.run",
        "from fedhist.simulations.engines import contract, flower, in_process, quiet, ray",
    ],
)
def test_nothing_loads_flower_before_it_is_needed(code: str) -> None:
    check = "import sys; assert not {'flwr', 'ray'} & set(sys.modules)"
    python("-c", f"{code}\n{check}", cwd=ROOT)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    environment = os.environ | ENVIRONMENT | {"FLWR_HOME": str(folder / "home")}
    command = [str(Path(sys.executable).with_name("flwr")), "build", "--app", str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=folder, env=environment)
    (built,) = folder.glob("*.fab")
    return built


def test_the_bundle_holds_what_both_apps_need_and_nothing_else(bundle: Path) -> None:
    """Not simulations/ and the command line: every deployed node gets a copy of the bundle."""
    with zipfile.ZipFile(bundle) as archive:
        names = set(archive.namelist())
    left_out = ("simulations/", "fedhist/commands/", "fedhist/template/", "fedhist/testing/")
    ours = {name for name in sources() if not name.startswith(left_out)}
    assert names == ours | {"LICENSE", "README.md", "pyproject.toml", ".info/CONTENT"}
    assert bundle.stat().st_size < 1_600_000


@pytest.fixture
def unpacked(bundle: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def in_bundle(folder: Path, code: str, **environment: str) -> list[str]:
    """What a program prints that has the bundle's folder first on its path, as Flower puts it.

    The import hook of an editable installation, if there is one, would find what the bundle lacks.
    """
    unhook = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'Editable' not in repr(f)]\n"
    return python("-c", unhook + code, cwd=folder, **{"PYTHONPATH": ""} | environment).split()


def test_an_unpacked_bundle_runs_uninstalled(unpacked: Path) -> None:
    code = (
        "from importlib import import_module\n"
        "import fedhist\n"
        "print(fedhist.__file__)\n"
        f"for name in {list(APP['components'].values())}:\n"
        "    module, attribute = name.split(':')\n"
        "    print(type(getattr(import_module(module), attribute)).__name__)\n"
    )
    assert in_bundle(unpacked, code) == [str(unpacked / "fedhist" / "__init__.py"), "ServerApp", "ClientApp"]


@pytest.mark.parametrize("component", APP["components"])
def test_an_app_loads_while_another_thread_imports_the_package(unpacked: Path, component: str) -> None:
    """Flower loads both at once. Python finds sub-packages by what a package, half imported, has said so far."""
    (unpacked / "gate.py").write_text("from threading import Event\nreached, opened = Event(), Event()\n")
    package = unpacked / "fedhist" / "__init__.py"
    future = "from __future__ import annotations\n"
    halt = f"{future}import gate; gate.reached.set(); gate.opened.wait()\n"
    package.write_text(package.read_text().replace(future, halt, 1))
    code = (
        "import gate\n"
        "from importlib import import_module\n"
        "from threading import Thread, Timer\n"
        "Thread(target=import_module, args=['fedhist']).start()\n"
        "gate.reached.wait()\n"
        "Timer(0.5, gate.opened.set).start()\n"
        f"print(import_module({APP['components'][component].split(':')[0]!r}).app is not None)\n"
    )
    assert in_bundle(unpacked, code) == ["True"]


class TestVirtualNodes:
    CODE = (
        "from pathlib import Path\n"
        "from flwr.app import Context, RecordDict\n"
        "from fedhist.client_app import users\n"
        "node, run = {'partition-id': 1, 'num-partitions': 2}, {'users': 9, 'items': 3, 'seed': ''}\n"
        "print(users(Context(1, 5, node, RecordDict(), run)).users)\n"
        "import fedhist.simulations, fedhist.protocol\n"
        "print(*[Path(m.__file__).is_relative_to(Path.cwd()) for m in (fedhist.simulations, fedhist.protocol)])\n"
    )

    def test_their_users_come_from_the_fedhist_that_is_installed(self, unpacked: Path) -> None:
        assert in_bundle(unpacked, self.CODE, PYTHONPATH=str(ROOT)) == ["5", "False", "True"]

    def test_without_one_they_say_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from flwr.app import Context, RecordDict

        from fedhist.client_app import users

        monkeypatch.setitem(sys.modules, "fedhist.simulations.engines.synthetic_nodes", None)
        context = Context(1, 5, {"partition-id": 0, "num-partitions": 2}, RecordDict(), {"users": 9})
        with refused(InvalidInput, "no-simulations"):
            users(context)

    def test_a_node_with_a_file_is_never_one_of_them(self) -> None:
        """Its users are real: no draw of theirs comes from a seed that the server chose."""
        from flwr.app import Context, RecordDict

        from fedhist.client import is_virtual
        from fedhist.client_app import source

        virtual: dict[str, Any] = {"partition-id": 0, "num-partitions": 2}
        for data in ({"data-path": "d.csv"}, {"db-url": "sqlite:///d.db", "query": "SELECT 1"}):
            own = Context(1, 5, virtual | data, RecordDict(), {"seed": 3})
            assert not is_virtual(own)
            assert not source(own).seeded
        assert source(Context(1, 5, virtual, RecordDict(), {"seed": 3})).seeded
