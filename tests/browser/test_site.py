"""The documentation site: built without a warning, made from the code, complete without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fedhist
from tests.builders import ROOT
from tests.support.api import COMMANDS, FIELDS

REQUIRED = os.environ.get("FEDHIST_DOCS_REQUIRED") == "1"
# What a browser fetches by itself. Links that a reader may follow are others.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\b(?:src|srcset)\s*=\s*["']?([^"'\s>]+)"""
    r"""|<link\b[^>]*?\bhref\s*=\s*["']?([^"'\s>]+)|url\(\s*["']?([^"')\s]+)|@import\s+["']([^"']+)"""
)

# One worker builds it for all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a dead link or anchor, or a page outside the navigation, is an error."""
    if not all(map(find_spec, ("sphinx", "furo", "myst_parser"))):
        reason = "the documentation's tools are not installed: pip install '.[docs]'"
        if REQUIRED:
            pytest.fail(f"FEDHIST_DOCS_REQUIRED=1 and {reason}")
        pytest.skip(reason)
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def fetched(text: str) -> set[str]:
    return {address for found in FETCHED.findall(text) for address in found if address}


def is_elsewhere(address: str) -> bool:
    return re.match(r"(?:https?:)?//", address) is not None


def test_no_page_fetches_anything_from_another_host(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in {".html", ".css"}]
    assert len(files) > 50
    for path in files:
        outside = {one for one in fetched(path.read_text(encoding="utf-8")) if is_elsewhere(one)}
        assert not outside, f"{path.name} fetches {sorted(outside)}"


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://cdn.example/x.js">',
        "<img alt='' src=//cdn.example/x.png>",
        '<link rel="stylesheet" href="https://fonts.example/css">',
        "@font-face { src: url('https://fonts.example/a.woff2') }",
        '@import "https://fonts.example/css";',
    ],
)
def test_what_would_be_fetched_is_noticed(text: str) -> None:
    assert any(map(is_elsewhere, fetched(text)))
    assert not any(map(is_elsewhere, fetched(text.replace("https:", "").replace("//", "/"))))


def test_the_reference_is_made_from_the_code(site: Path) -> None:
    def ids(page: str) -> set[str]:
        return set(re.findall(r'\bid="([^"]+)"', (site / f"{page}.html").read_text(encoding="utf-8")))

    assert {f"fedhist.{name}" for name in fedhist.__all__} <= ids("public-names")
    assert {f"fedhist-{name}" for name in COMMANDS} <= ids("commands")
    assert {name.replace("_", "-") for name in FIELDS} <= ids("plan-fields")


def test_a_notebook_has_its_outputs_pictures_and_formulas(site: Path) -> None:
    page = (site / "tutorial.html").read_text(encoding="utf-8")
    notebook = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert page.count("data:image/png;base64,") == sum("image/png" in one.get("data", {}) for one in outputs)
    assert page.count("<math") > 20
    assert "$$" not in page
    printed = next("".join(one["text"]).splitlines()[0] for one in outputs if "text" in one)
    assert printed in page


def test_the_search_works_in_a_file_without_a_server(site: Path, browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(f"{(site / 'search.html').as_uri()}?q=neighbours")
    found = WebDriverWait(browser, 30).until(
        lambda driver: driver.find_elements("css selector", "#search-results li a")
    )
    assert any("privacy-neighbours.html" in link.get_attribute("href") for link in found)


@pytest.mark.parametrize("page", ["index", "commands", "public-names", "privacy", "tutorial"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(page: str, width: int, site: Path, browser: Any) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((site / f"{page}.html").as_uri())
    wide = browser.execute_script("const e = document.documentElement; return e.scrollWidth - e.clientWidth")
    assert wide <= 0
