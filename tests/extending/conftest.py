"""Plugins for the tests, each of which begins and ends without any."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(autouse=True)
def alone(no_plugins: None) -> None:
    """For all tests here."""


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A folder of one's own with the sample plugins in it."""
    return Path(shutil.copytree(SAMPLES, tmp_path / "samples"))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a package with entry points on the path, as pip would: its code, and a .dist-info beside it."""

    def install(name: str, code: str, entry_points: str, version: str = "2.5") -> Path:
        site = tmp_path / f"site-{name}"
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        (site / f"{name}.py").write_text(code, encoding="utf-8")
        about = site / f"{name}-{version}.dist-info"
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (about / "entry_points.txt").write_text(entry_points)
        (about / "RECORD").write_text(f"{name}.py,,\n{name}-{version}.dist-info/METADATA,,\n")
        monkeypatch.syspath_prepend(site)
        # Nor is it left imported after the test.
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
        return site

    return install
