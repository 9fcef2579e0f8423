"""The report in a real browser: it opens without complaint, steps, tells its values, and keeps to its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedhist.commands import cli
from tests.builders import write_records

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


def data_of(tab: Any) -> dict[str, Any]:
    data: dict[str, Any] = tab.js("return JSON.parse(document.getElementById('data').textContent)")
    return data


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


# How many tables and lists are higher than the box that they are printed in.
SPILLING = """
return [...document.querySelectorAll(".scroll, .steps")].filter((e) => e.scrollHeight > e.clientHeight + 2).length
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


class TestStepping:
    def now(self, tab: Any) -> tuple[str, str, int]:
        """Which step is shown: its number, its words, and how many steps are still hidden."""
        words = [item.text.split("\n")[0] for item in tab.all(".steps li.now")]
        later = len(tab.all("g.step.later"))
        return str(tab.find(".where").text), words[0] if words else "", later

    def test_forward_and_back_by_click(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        steps = len(tab.all("g.step"))
        assert self.now(tab) == (f"{steps} steps", "", 0)
        forward, back = tab.find("[data-go=forward]"), tab.find("[data-go=back]")
        tab.bring(forward)
        forward.click()
        where, words, later = self.now(tab)
        assert (where, later) == (f"step 1 of {steps}", steps - 1)
        assert words.startswith("plan ")
        assert not back.is_enabled()
        for _ in range(2, steps + 1):
            forward.click()
        where, words, later = self.now(tab)
        assert (where, later, forward.is_enabled()) == (f"step {steps} of {steps}", 0, False)
        assert words.startswith("released")
        back.click()
        assert self.now(tab)[0] == f"step {steps - 1} of {steps}"
        tab.find("[data-go=all]").click()
        assert self.now(tab) == (f"{steps} steps", "", 0)

    def test_forward_and_back_by_keyboard(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        steps = len(tab.all("g.step"))
        tab.press(".stepper", "ARROW_RIGHT", 3)
        assert self.now(tab)[0] == f"step 3 of {steps}"
        tab.press(".stepper", "ARROW_LEFT")
        assert self.now(tab)[0] == f"step 2 of {steps}"
        tab.press(".stepper", "ARROW_RIGHT", steps + 3)
        assert self.now(tab)[0] == f"step {steps} of {steps}"
        tab.press(".stepper", "HOME")
        assert self.now(tab)[0] == f"step 1 of {steps}"
        tab.press(".stepper", "ESCAPE")
        assert self.now(tab)[0] == f"{steps} steps"


class TestValues:
    def test_hover_shows_the_values_of_the_data(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        charts = data_of(tab)["charts"]
        curve = charts["curve"]["lines"]
        hits = tab.all("svg[data-chart=curve] .hit")
        assert len(hits) == len(curve[0]["xs"])
        for place in (3, len(hits) // 2):
            tab.hover(hits[place])
            shown = tab.tip()
            assert shown is not None
            assert f"threshold C {short(curve[0]['xs'][place])}" in shown
            for line in curve:
                assert f"{line['name']} {short(line['ys'][place])}" in shown

    def test_hover_on_a_bar_shows_the_item_its_noise_and_the_truth(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        bar = data_of(tab)["charts"]["released"]["bars"][4]
        tab.hover(tab.all("svg[data-chart=released] .hit")[4])
        assert (tab.tip() or "").split("\n") == [
            bar["label"],
            f"estimate {short(bar['value'])}",
            f"95 % of the noise: ± {short(bar['high'] - bar['value'])}",
            f"true count {short(bar['mark'])}",
        ]

    def test_the_keyboard_reads_every_chart(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        for name in data_of(tab)["charts"]:
            tips = [hit.get_attribute("data-tip") for hit in tab.all(f"svg[data-chart={name}] .hit")]
            chart = f"svg[data-chart={name}]"
            tab.press(chart, "ARROW_RIGHT")
            assert tab.tip() == tips[0]
            tab.press(chart, "END")
            assert tab.tip() == tips[-1]
            tab.press(chart, "ESCAPE")
            assert tab.tip() is None

    def test_the_values_stay_inside_of_the_window(self, tab: Any, run: Path) -> None:
        for width in (390, 1200):
            tab.open(run / "report.html", width=width)
            tab.press("svg[data-chart=curve]", "END")
            box = tab.js(
                "const b = document.getElementById('tip').getBoundingClientRect(); return [b.left, b.right]"
            )
            assert box[0] >= 0
            assert box[1] <= width


class TestHarmlessNames:
    def test_a_script_shows_as_text_and_a_long_name_breaks_nothing(self, tab: Any, evil: Path) -> None:
        assert tab.open(evil, width=390).overflow() == 0
        assert tab.open(evil).overflow() == 0
        assert tab.complaints() == []
        assert tab.js("return document.scripts.length") == 2
        assert EVIL in tab.find("#released").text
        labels = [bar["label"] for bar in data_of(tab)["charts"]["released"]["bars"]]
        assert EVIL in labels
        place = labels.index(EVIL)
        tab.hover(tab.all("svg[data-chart=released] .hit")[place])
        assert (tab.tip() or "").startswith(EVIL)
        assert tab.all("img") == []


class TestFitting:
    @pytest.mark.parametrize("width", [320, 390, 768, 1200, 1920])
    def test_no_width_overflows_or_has_complaints(self, tab: Any, run: Path, width: int) -> None:
        assert tab.open(run / "report.html", width=width, dark=width > 1000).overflow() == 0
        assert tab.complaints() == []
        assert tab.find("h1").text == "plain"

    def test_print_shows_all_and_overflows_nowhere(self, tab: Any, run: Path) -> None:
        tab.open(run / "report.html")
        tab.press(".stepper", "ARROW_RIGHT", 2)
        tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        size = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert tab.overflow() == 0
        assert tab.js(SPILLING) == 0
        assert tab.js("return getComputedStyle(document.querySelector('.controls')).display") == "none"
        assert tab.js("return getComputedStyle(document.querySelector('g.step.later')).opacity") == "1"
        assert tab.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def short(value: float) -> str:
    """A number as the page writes it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
