"""The notebooks run from top to bottom, and what they show is what they run to."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.builders import ROOT

DOCS = ROOT / "docs"
NOTEBOOKS = sorted(path.name for path in DOCS.glob("*.ipynb"))
MOST_BYTES = 600_000
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


def stored(name: str) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads((DOCS / name).read_text(encoding="utf-8"))
    return notebook


def cells(name: str, kind: str) -> list[tuple[int, str]]:
    """The places and texts of the cells of a kind."""
    every = enumerate(stored(name)["cells"])
    return [(number, "".join(cell["source"])) for number, cell in every if cell["cell_type"] == kind]


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_stored_outputs_are_those_that_execution_gives(name: str) -> None:
    # A process of its own: a notebook registers plugins and draws with pyplot.
    command = [sys.executable, DOCS / "run_notebooks.py", "--check", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
class TestEachNotebook:
    def test_it_is_one_that_the_script_runs(self, runner: ModuleType, name: str) -> None:
        assert name in runner.NOTEBOOKS

    def test_every_cell_says_what_to_try(self, name: str) -> None:
        code = cells(name, "code")
        assert len(code) >= 10
        for number, text in code:
            assert text.splitlines()[-1].startswith("# Try: "), f"cell {number}"

    def test_it_is_small(self, name: str) -> None:
        assert (DOCS / name).stat().st_size < MOST_BYTES

    def test_its_links_lead_somewhere(self, name: str) -> None:
        links = [link for _, text in cells(name, "markdown") for link in LINK.findall(text)]
        assert links
        for link in links:
            assert (DOCS / link).is_file(), link


class TestTheComparison:
    """What `--check` compares, so that the test above can fail."""

    SOURCE = (
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\nplt.bar([0, 1], [1, {}])\nprint('{}')"
    )

    def notebook(self, *values: object) -> dict[str, Any]:
        source = self.SOURCE.format(*values)
        return {"cells": [{"cell_type": "code", "source": [source], "outputs": []}]}

    def test_a_changed_text_is_shown_and_a_true_notebook_has_no_differences(self, runner: ModuleType) -> None:
        given = runner.executed(self.notebook(1, "one"))
        assert runner.differences(given, runner.executed(given)) == []
        old = copy.deepcopy(given)
        old["cells"][0]["outputs"][0]["text"] = ["two\n"]
        [difference] = runner.differences(old, given)
        assert "-two" in difference
        assert "+one" in difference

    def test_a_warning_is_an_error(self, runner: ModuleType) -> None:
        with pytest.raises(UserWarning, match="beware"):
            runner.run_cell("import warnings\nwarnings.warn('beware')", {}, where="cell")
