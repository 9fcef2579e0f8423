"""The shape of the project: who imports whom, what a wheel holds, what loads when."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedhist
from tests.builders import FOLDERS, ROOT, nodes, python, sources
from tests.support import api

LAYERS = {
    "protocol": {"display", "protocol"},
    "client": {"display", "protocol", "client"},
    "server": {"display", "protocol", "server"},
    "simulations": {"display", "protocol", "client", "server", "simulations"},
}
HEAVY = ("numpy", "scipy", "polars", "dp_accounting", "rich", "cryptography", "flwr", "ray", "matplotlib")
MAY_IMPORT_FLOWER = {
    "client/flower.py",
    "client/config.py",
    "server/flower.py",
    "simulations/engines/flower.py",
}
# protocol/ is pure: no network, no files, no clock.
IMPURE = {
    "flwr", "ray", "polars", "click", "rich", "pathlib", "tempfile", "shutil", "sqlite3", "socket", "time",
    "datetime", "subprocess", "threading", "logging",
}  # fmt: skip
# Days can be counted without a clock.
CALENDAR = {"datetime.date", "datetime.timedelta"}


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def imported(source: str) -> Iterator[str]:
    """Every module that the source names in an import, wherever it stands."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_faults(source: str, place: str) -> list[str]:
    """The imports that point up or sideways, or that this place must not have."""
    layer = place.split("/", maxsplit=1)[0]
    faults = []
    for name in imported(source):
        head, _, rest = name.partition(".")
        wrong_layer = head == "fedhist" and rest.split(".")[0] not in LAYERS.get(layer, set())
        # Experiments and deployments write the version down, which lives at the top.
        if wrong_layer and not (layer == "simulations" and name == "fedhist.__version__"):
            faults.append(name)
        if head == "" or head in LAYERS:
            faults.append(name)
        if layer == "protocol" and head in IMPURE and name not in CALENDAR:
            faults.append(name)
        if head == "flwr" and place not in MAY_IMPORT_FLOWER:
            faults.append(name)
    return faults


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that make the package, as a checkout elsewhere has them."""
    target = tmp_path / "tree"
    for folder in (*FOLDERS, "tests"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    return target


class TestImports:
    def test_they_point_down(self) -> None:
        inside = {place: source for place, source in sources().items() if place.split("/")[0] in LAYERS}
        assert {place.split("/")[0] for place in inside} == set(LAYERS)
        faults = {place: found for place, source in inside.items() if (found := import_faults(source, place))}
        assert faults == {}

    @pytest.mark.parametrize(
        ("place", "source"),
        [
            ("protocol/plan/plan.py", "from fedhist.server.releases.contract import Release"),
            ("protocol/plan/plan.py", "def f():\n    import fedhist.client.device"),
            ("server/coordinator.py", "import flwr.app"),
            ("protocol/plan/plan.py", "from pathlib import Path"),
            ("client/device.py", "from fedhist.server import coordinator"),
            ("server/releases/release.py", "from fedhist.client.device import answer"),
            ("server/releases/release.py", "from . import coordinator"),
            ("simulations/x.py", "from server.release import Release"),
            ("simulations/x.py", "from fedhist import simulate"),
        ],
    )
    def test_the_check_sees_a_wrong_one(self, place: str, source: str) -> None:
        assert import_faults(source, place) != []

    def test_the_check_lets_a_right_one_pass(self) -> None:
        assert import_faults("from fedhist.protocol.plan import Plan\nimport numpy", "server/x.py") == []


PUBLIC = {"", "auditing", "client", "client_app", "extending", "masking", "server", "server_app", "testing"}
DOOR = "tests/support/api.py"


def private_imports(source: str) -> list[str]:
    """The modules that a test imports though they may move: all but those that users import."""
    statements = [node for node in nodes(source) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [
        name
        for node in statements
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
        if name is not None
    ]
    return [
        name
        for name in modules
        if name.partition(".")[0] == "fedhist" and name.partition(".")[2] not in PUBLIC
    ]


class TestTheDoorOfTheTests:
    def test_no_test_but_the_door_knows_a_module_that_may_move(self) -> None:
        texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
        faults = {str(path): found for path, text in texts.items() if (found := private_imports(text))}
        assert faults == {}

    def test_the_check_sees_a_private_one(self) -> None:
        assert private_imports("import fedhist, fedhist.testing\nfrom fedhist.client import mount") == []
        assert private_imports("def f():\n    from fedhist.protocol.plan import Plan") != []
        assert private_imports("import fedhist.commands.cli") != []

    def test_what_the_door_names_is_there_and_used(self) -> None:
        others = "\n".join(
            path.read_text(encoding="utf-8")
            for folder in ("tests", "benchmarks")
            for path in (ROOT / folder).rglob("*.py")
            if path != ROOT / DOOR
        )
        words = set(re.findall(r"\w+", others))
        for name in dir(api):
            assert name in words, f"{DOOR}: no test takes {name}"
            getattr(api, name)


class TestPackage:
    def test_a_build_holds_the_package_fedhist_and_nothing_else(self, tree: Path, tmp_path: Path) -> None:
        build = (
            "import setuptools; setuptools.setup(script_args=['-q', 'build_py', '--build-lib', '../built'])"
        )
        python("-c", build, cwd=tree, PYTHONWARNINGS="ignore")
        built = tmp_path / "built"
        assert [path.name for path in built.iterdir()] == ["fedhist"]
        files = {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}
        inside = {name if name.startswith("fedhist/") else f"fedhist/{name}" for name in sources()}
        assets = ("report.css", "report.js", "template.html")
        page = {f"fedhist/simulations/report/{name}" for name in assets}
        template = {f"fedhist/template/{name}" for name in ("pyproject.toml", "README.md", "LICENSE")}
        assert files == inside | page | template | {"fedhist/py.typed"}

    def test_a_plain_checkout_works_uninstalled_from_any_folder(self, tree: Path, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        code = (
            "import fedhist, fedhist.protocol, fedhist.server.coordinator, fedhist.commands.cli\n"
            "print(fedhist.__file__, fedhist.protocol.__file__, fedhist.server.coordinator.__file__)\n"
            "print(fedhist.Plan(users=1, items=1).selector)"
        )
        first, second = python("-c", code, cwd=elsewhere, PYTHONPATH=str(tree)).splitlines()
        assert first.split() == [
            str(tree / place)
            for place in ("fedhist/__init__.py", "protocol/__init__.py", "server/coordinator.py")
        ]
        assert second == "weighted-quantile"

    def test_the_version_is_one(self) -> None:
        assert settings()["project"]["version"] == fedhist.__version__


class TestPublicNames:
    def test_each_resolves_and_is_its_home_s(self) -> None:
        for name in fedhist.__all__:
            assert getattr(fedhist, name).__name__ == name
        assert set(dir(fedhist)) >= set(fedhist.__all__)
        assert sorted(fedhist.__all__) == fedhist.__all__

    def test_an_unknown_one_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'histogramm'"):
            _ = fedhist.histogramm  # type: ignore[attr-defined]  # the mistake under test


class TestLoading:
    @staticmethod
    def loaded_by(code: str, folder: Path) -> list[str]:
        report = "\nimport json, sys\nprint(json.dumps([m for m in sys.modules if '.' not in m]))"
        names = json.loads(python("-c", code + report, cwd=folder).splitlines()[-1])
        return sorted(set(names) & set(HEAVY))

    def test_importing_fedhist_loads_nothing_heavy(self, tmp_path: Path) -> None:
        assert self.loaded_by("import fedhist", tmp_path) == []

    @pytest.mark.parametrize(
        "arguments",
        [["--help"], ["run", "--help"], ["compare", "--help"], ["plan", "-h"], ["ledger", "limit", "-h"]],
    )
    def test_help_loads_nothing_heavy(self, arguments: list[str], tmp_path: Path) -> None:
        code = f"from fedhist.commands import cli\nassert cli._run({arguments}) == 0"
        assert self.loaded_by(code, tmp_path) == []

    def test_the_check_sees_what_is_loaded(self, tmp_path: Path) -> None:
        assert "numpy" in self.loaded_by("import fedhist; fedhist.Plan", tmp_path)


class TestBenchmarks:
    def test_none_hides_a_module_that_others_import(self) -> None:
        """A script's folder comes first on its path: a selectors.py beside it once broke subprocess."""
        names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
        assert names
        assert names & (sys.stdlib_module_names | {"fedhist", *HEAVY}) == set()
