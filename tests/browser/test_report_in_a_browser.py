"""The report in a real browser: it opens without complaint, tells its values, and keeps to its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import write_records
from tests.support.api import cli_module as cli
from tests.support.api import draw_debias, write_csv

pytestmark = pytest.mark.timeout(180)
EVIL = "<script>alert(1)</script>"
LONG = "a-name-without-any-space-" * 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports") / "plain"
    size = ["--users", "2000", "--items", "60"]
    assert cli._run(["run", *size, "--seed", "1", "--quiet", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("evil")
    names = [EVIL, f"</script>{EVIL}", '"><img src=x onerror=alert(3)>', "\u202eabc", LONG, "שלום"]
    rows = [(f"u{user}", name, 9 - place) for user in range(30) for place, name in enumerate(names)]
    data = write_records(parent / "data.csv", rows)
    files = ["--data", str(data), "--out", str(parent / "r")]
    assert cli._run(["run", *files, "--seed", "1", "--epsilon", "50", "--quiet"]) == 0
    return parent / "r" / "report.html"


class TestOpening:
    def test_the_system_chooses_light_or_dark_until_the_reader_does(self, tab: Any, run: Path) -> None:
        def background() -> str:
            return str(tab.js("return getComputedStyle(document.body).backgroundColor"))

        tab.open(run / "report.html", dark=True)
        tab.js("try { localStorage.clear() } catch {}")
        tab.open(run / "report.html", dark=True)
        dark = background()
        tab.find("button.theme").click()
        light = background()
        assert dark != light
        tab.open(run / "report.html", dark=True)
        assert background() == light
        tab.find("button.theme").click()
        assert background() == dark
        tab.js("try { localStorage.clear() } catch {}")

    def test_all_text_can_be_read_off_its_background(self, tab: Any, run: Path) -> None:
        """WCAG's contrast of 4.5 for the text colours on the panels, in both schemes."""
        least = dict.fromkeys(("ink", "soft", "warn", "bad"), 4.5)
        least |= dict.fromkeys(("blue", "orange", "green", "purple", "gold"), 3.0)
        for dark in (False, True):
            tab.open(run / "report.html", dark=dark)
            for name, contrast in least.items():
                assert tab.js(CONTRAST, f"--{name}", "--panel") >= contrast, (name, dark)
            assert tab.js(CONTRAST, "--warn", "--warn-paper") >= 4.5
            assert tab.js(CONTRAST, "--soft", "--paper") >= 4.5


# How many tables and lists are higher than the box that they are printed in.
SPILLING = """
return [...document.querySelectorAll(".scroll")].filter((e) => e.scrollHeight > e.clientHeight + 2).length
"""
CONTRAST = """
const probe = document.body.appendChild(document.createElement("i"));
const light = (name) => {
  probe.style.color = `var(${name})`;
  const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const [a, b] = [light(arguments[0]), light(arguments[1])];
return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""


class TestValues:
    def test_every_chart_has_its_values_in_a_table_below_it(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        figures = tab.all("figure")
        assert len(figures) == len(tab.all("svg.chart")) == 8
        for figure in figures:
            assert not figure.find_element("css selector", "table").is_displayed()
            summary = figure.find_element("css selector", "summary")
            tab.bring(summary)
            summary.click()
            assert figure.find_element("css selector", "table").is_displayed()
            assert figure.find_elements("css selector", "tbody tr")
        # Also where none of them is folded away, nothing leaves its panel.
        assert tab.overflow() == 0
        assert tab.js(CROWDED) == []


class TestHarmlessNames:
    def test_a_script_shows_as_text_and_a_long_name_breaks_nothing(self, tab: Any, evil: Path) -> None:
        assert tab.open(evil, width=390).overflow() == 0
        assert tab.open(evil).overflow() == 0
        assert tab.complaints() == []
        assert tab.js("return document.scripts.length") == 1
        assert EVIL in tab.find("#released").text
        labels = [label.text for label in tab.all("#chart-released text.label")]
        assert EVIL in labels
        assert tab.all("img") == []


SMALL = ("--users", "400", "--items", "12", "--max-threshold", "200", "--seed", "1", "--quiet")
MASKED = ("--masking", "secagg", "--nodes", "6")
OPEN = ("--domain", "open", "--epsilon", "8")
KINDS = {
    "closed": (),
    "discover": OPEN,
    "above-a-bar": (*OPEN, "--release", "truncated-laplace"),
    "masked-noise-by-devices": (*MASKED, "--noise-from", "devices"),
    "debiased": ("--debias", "poisson"),
    "faulty": ("--nodes", "10", "--dropout", "0.2", "--faulty", "inflate=0.1"),
    "shared": ("--no-evaluate",),
    "large": ("--users", "3000", "--items", "300"),
}
# Two texts of a chart that lie on each other, a text outside of its chart, and anything that leaves its panel.
CROWDED = """
const found = [];
for (const svg of document.querySelectorAll("svg")) {
  const sheet = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
  texts.forEach(([name, a], place) => {
    if (a.left < sheet.left - 4 || a.right > sheet.right + 4) found.push(["outside", name]);
    for (const [other, b] of texts.slice(0, place)) {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 0.5 && down > 2) found.push(["on each other", name, other]);
    }
  });
}
for (const box of document.querySelectorAll(".card, .tile, .panel, .notes, header")) {
  const { left, right } = box.getBoundingClientRect();
  for (const part of box.querySelectorAll("p, span, dd, dt, li, h2, h3, button, summary, table")) {
    if (part.closest(".scroll")) continue;
    const { left: from, right: to, width } = part.getBoundingClientRect();
    if (width && (to > right + 1 || from < left - 1)) found.push(["spills", part.textContent]);
  }
}
return found;
"""
# The numbers of the rows of tiles: how many stand in each.
ROWS_OF_TILES = """
const tops = [...document.querySelectorAll(".tile")].map((e) => Math.round(e.getBoundingClientRect().top));
return [...new Set(tops)].map((top) => tops.filter((one) => one === top).length);
"""
# By how many pixels the numbers of tiles in one row differ in height.
UNEVEN = """
const rows = {};
for (const tile of document.querySelectorAll(".tile")) {
  const top = Math.round(tile.getBoundingClientRect().top);
  (rows[top] ??= []).push(tile.querySelector("dd").getBoundingClientRect().top);
}
return Math.max(0, ...Object.values(rows).map((tops) => Math.max(...tops) - Math.min(...tops)));
"""
# How many tables and lists of rows can be scrolled sideways, and how many of them show that.
SIDEWAYS = """
const wide = [...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth + 1);
return [wide.length, wide.filter((e) => getComputedStyle(e).backgroundImage.includes("gradient")).length];
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, run: Path, evil: Path) -> dict[str, Path]:
    """A page of every kind: of runs, of a comparison, and of the paper."""
    parent = tmp_path_factory.mktemp("kinds")
    made = {"plain": run / "report.html", "evil": evil}
    for name, flags in KINDS.items():
        assert cli._run(["run", *SMALL, *flags, "--out", str(parent / name)]) == 0
        made[name] = parent / name / "report.html"
    compared = ["--users", "80", "--items", "4,8", "--trials", "2", "--workers", "1", "--max-threshold", "60"]
    for name, more in {"compared": [], "one-trial": ["--items", "4", "--trials", "1"]}.items():
        assert cli._run(["compare", *compared, *more, "--out", str(parent / name)]) == 0
        assert cli._run(["report", str(parent / name)]) == 0
        made[name] = parent / name / "report.html"
    rows = [
        {"data": "a set", "bound": bound, "alpha": alpha, "clipped": 0.1, "clipped_low": 0.01, "clipped_high": 0.2,
         "debiased": 0.05, "low": 0.01, "high": 0.1}
        for bound in ("private", "exact") for alpha in (0.1, 1.0, 10.0, 100.0)
    ]  # fmt: skip
    folder = parent / "paper"
    folder.mkdir()
    (folder / "NOT-PRIVATE.txt").write_text("not private")
    write_csv(folder / "figure-debias.csv", rows * 4)
    write_csv(
        folder / "figure-debias-claims.csv", [{"claim": "it helps " * 9, "data": "a", "verdict": "holds"}]
    )
    draw_debias(rows, folder / "figure-debias")
    assert cli._run(["report", str(folder)]) == 0
    return made | {"paper": folder / "report.html"}


class TestFitting:
    @pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
    def test_no_page_overflows_crowds_or_complains(
        self, tab: Any, pages: dict[str, Path], width: int
    ) -> None:
        for name, page in pages.items():
            assert tab.open(page, width=width, dark=width > 1000).overflow() == 0, name
            assert tab.complaints() == [], name
            if width in (390, 1280):
                assert tab.js(CROWDED) == [], name
                assert tab.js(UNEVEN) <= 1, name
                rows = tab.js(ROWS_OF_TILES)
                # A tile may have a row for itself at the top, where it is as wide as the row.
                assert 1 not in rows[1:], name
                sideways, shown = tab.js(SIDEWAYS)
                assert sideways == shown, name

    def test_names_that_lie_on_each_other_are_found(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        tab.js("const [a, b] = document.querySelectorAll('svg.chart .tick'); for (const n of ['x', 'y']) "
               "a.setAttribute(n, b.getAttribute(n))")  # fmt: skip
        assert [kind for kind, *_ in tab.js(CROWDED)] == ["on each other"]

    def test_the_first_screen_answers_without_scrolling(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html", width=1280)
        low = tab.js("return document.querySelector('.cards').getBoundingClientRect().bottom")
        assert low <= 900
        titles = [card.text for card in tab.all(".card h2")]
        assert titles == ["What was released", "How far to trust it", "What it cost in privacy"]
        assert "60 items counted over 2,000 users" in tab.find(".headline").text

    def test_print_shows_all_and_overflows_nowhere(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        size = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert tab.overflow() == 0
        assert tab.js(SPILLING) == 0
        assert tab.js("return getComputedStyle(document.querySelector('.cards')).display") == "grid"
        assert tab.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
