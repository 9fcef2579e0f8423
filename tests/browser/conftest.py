"""A real browser, headless, that opens files and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("FEDHIST_BROWSER_REQUIRED") == "1"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--window-size=1200,900",
)  # fmt: skip


def missing(what: str) -> None:
    """Skip with the reason, or fail where the browser's tests are required."""
    reason = f"{what} is not installed: Debian has it in the packages chromium and chromium-driver"
    if REQUIRED:
        pytest.fail(f"FEDHIST_BROWSER_REQUIRED=1 and {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    chromedriver = shutil.which("chromedriver")
    if chromium is None:
        missing("chromium")
    if chromedriver is None:
        missing("chromedriver")
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(chromium)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(chromedriver)))
    try:
        yield driver
    finally:
        driver.quit()


READY = "return document.readyState === 'complete'"


SCROLL = """
const [element, done] = arguments;
element.scrollIntoView({block: "center"});
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
"""


class Tab:
    """One page: opened, looked at, typed into."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, media: str = "") -> Tab:
        from selenium.webdriver.support.ui import WebDriverWait

        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        # By way of an empty page: to open a page where it is open already may return before it is there.
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(path.resolve().as_uri())
        WebDriverWait(self.driver, 30).until(lambda _: self.js(READY))
        return self

    def complaints(self) -> list[str]:
        """What the browser wrote on its console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def bring(self, element: Any) -> None:
        """Scroll there, and wait until the page has heard of it."""
        self.driver.execute_async_script(SCROLL, element)

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.js("const e = document.documentElement; return e.scrollWidth - e.clientWidth"))


@pytest.fixture
def tab(browser: Any) -> Tab:
    return Tab(browser)
