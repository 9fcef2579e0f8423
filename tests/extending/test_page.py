"""docs/extending.md, from an empty file to the figure: every block of code and every command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.builders import ROOT
from tests.support.api import Effort, audit_checks_module
from tests.support.api import cli_module as cli

PAGE = ROOT / "docs" / "extending.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FEW = Effort(canaries=1, runs=300, slow_runs=300, gaussian_runs=1, masked_canaries=1)


def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # An audit of the usual size takes half a minute.
    monkeypatch.setattr(audit_checks_module, "QUICK", FEW)
    commands = 0
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python" and (named := re.match(r"# (\w+\.py)\n", text)):
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(text, {"__name__": "page"})  # noqa: S102 - the documentation's own code is what is tested
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                assert cli._run(shlex.split(line)[1:]) == 0, line
                commands += 1
    assert commands == 4
    made = {"first/report.html", "second/histogram.csv", "compared/figure.svg"}
    assert all((tmp_path / name).is_file() for name in made)
