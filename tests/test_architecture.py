"""The last section of docs/adding-parts.md: a measurement and a release rule are one file and one line each."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders import FOLDERS, ROOT, Fedhist, python

CONTRACTS = """
from fedhist import Plan
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.server.releases import rule_for
from fedhist.testing import check_measurement, check_release_rule

settings = {"users": 60, "items": 3, "max_threshold": 1.0, "release": "holders"}
plans = (
    Plan(**settings),
    Plan(**settings, mechanism="laplace", neighbours="replace-one"),
    Plan(**settings, masking="secagg", participants=5),
)
check_measurement(MEASUREMENTS["holders"], plans=plans)
check_release_rule(rule_for(plans[0]), plans=plans)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with the documented change applied."""
    copy = tmp_path_factory.mktemp("changed")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs/adding-parts.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```\n\Z", page, re.DOTALL)
    files = re.findall(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE)
    assert len(files) == 4
    assert sum(path.endswith("__init__.py") for path in files) == 2
    # In each registry one line is new and none is gone.
    assert not re.findall(r"^-(?!-- )", diff, re.MULTILINE)
    for part in diff.split("--- a/")[1:]:
        assert len(re.findall(r"^\+(?!\+\+ )", part.split("--- /dev/null")[0], re.MULTILINE)) == 1
    subprocess.run(["git", "apply", "-p1", "-"], input=diff, text=True, cwd=copy, check=True)
    return copy


def in_tree(tree: Path, *arguments: str) -> str:
    """What a process prints that has the copy for its fedhist; it leaves compiled modules for the next one."""
    return python(*arguments, cwd=tree, PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="")


def test_both_pass_the_contracts(tree: Path) -> None:
    in_tree(tree, "-c", CONTRACTS)


@pytest.mark.parametrize("masked", [(), ("--masking", "secagg", "--nodes", "5")], ids=["clear", "masked"])
def test_a_run_releases_what_the_rule_says(tree: Path, fedhist: Fedhist, masked: tuple[str, ...]) -> None:
    run = ["run", "--users", "400", "--items", "20", "--epsilon", "50", "--seed", "1", "--json", *masked]
    document = json.loads(in_tree(tree, "-m", "fedhist", *run, "--release", "holders"))
    assert document["plan"]["release"] == "holders"
    assert [entry["round"] for entry in document["ledger"]] == ["select", "release"]
    everything = fedhist(*run).document()
    assert document["plan_digest"] != everything["plan_digest"]
