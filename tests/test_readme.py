"""The README is one page, and what it says of the package, of CI and of the table of accuracy is true."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from typing import Any

import pytest

import fedhist
from tests.builders import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_WORDS = 900
VERSION = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def project() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return settings


def test_it_can_be_read_to_the_end() -> None:
    assert len(README.split()) < MOST_WORDS


def test_the_table_of_accuracy_has_the_columns_and_sets_of_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("real_accuracy", ROOT / "benchmarks" / "real_accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, script)  # where dataclasses look for their module
    spec.loader.exec_module(script)
    value = script.summarise([0.5, 0.6])
    rivals = [*script.RIVALS]
    lines = [(name, 9, [value] * (4 + len(rivals))) for name in script.SETS.values()]
    script.print_table(lines, rivals)
    head, _, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    assert f"\n{head}\n" in README
    assert re.findall(r"^\| (\w[^|]*) \| [\d,]+ \|", README, re.MULTILINE) == [
        row.split(" | ")[0].removeprefix("| ") for row in rows
    ]


def test_the_classifiers_are_the_pythons_that_ci_runs() -> None:
    (versions,) = re.findall(r"^for version in ([\d. ]+); do$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    classified = [found[1] for one in project()["classifiers"] if (found := VERSION.fullmatch(one))]
    assert classified == versions.split()
    assert project()["requires-python"] == f">={classified[0]}"
    assert f"Python {classified[0]} to {classified[-1]}" in README


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", text, re.MULTILINE) == [fedhist.__version__]
    assert re.findall(r"^license: (.*)$", text, re.MULTILINE) == ["Apache-2.0"]
    authors = ["Liu", "Suresh", "Zhu", "Kairouz", "Gruteser"]
    assert re.findall(r"family-names: (.*)", text) == authors
    assert "Liu, Suresh, Zhu, Kairouz and Gruteser" in README
