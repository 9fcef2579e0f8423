"""What is installed: bounds on every dependency, and a lock that fits them, with hashes and without addresses."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.builders import ROOT

LOCK = (ROOT / "requirements-ci.lock").read_text(encoding="utf-8")
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
LOCKED = {match[1]: Version(match[2]) for match in ENTRY.finditer(LOCK)}


def direct() -> list[Requirement]:
    """Everything that pyproject.toml asks for."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    lists = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        settings["build-system"]["requires"],
    ]
    return [Requirement(text) for one in lists for text in one]


@pytest.mark.parametrize("requirement", direct(), ids=str)
def test_every_dependency_has_bounds_and_a_place_in_the_lock_between_them(requirement: Requirement) -> None:
    assert {one.operator for one in requirement.specifier} == {">=", "<"}
    assert LOCKED[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_lock_is_nothing_but_versions_with_hashes() -> None:
    rest = [line for line in ENTRY.sub("", LOCK).splitlines() if not line.startswith("#")]
    assert rest == []
    assert len(LOCKED) > 50


def test_the_lock_names_no_registry() -> None:
    assert not re.search(r"https?:|file:|index-url|find-links| @ ", LOCK)
