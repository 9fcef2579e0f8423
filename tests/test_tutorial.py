"""The tutorial runs from top to bottom, and shows what it runs to."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType

import pytest

from tests.builders import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tutorial", DOCS / "run_tutorial.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stored_outputs_are_those_that_execution_gives(runner: ModuleType) -> None:
    stored = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    for number, (kept, given) in enumerate(
        zip(stored["cells"], runner.executed(stored)["cells"], strict=True)
    ):
        assert kept == given, f"cell {number}: run python docs/run_tutorial.py"
    assert sum(cell["cell_type"] == "code" for cell in stored["cells"]) >= 12
