"""The rounds of a traced run, played in a real browser: steps, keys, reduced motion, and the counts of the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.api import TRACE_FILE, DroppedOut, RoundEnded, read_trace
from tests.support.api import cli_module as cli

pytestmark = pytest.mark.timeout(180)
SIZE = ["run", "--users", "800", "--items", "20", "--seed", "1", "--quiet", "--trace"]
STAGES = {
    "Advertise keys": "advertising",
    "Share keys": "sharing",
    "Check the shares": "checking",
    "Masked input": "masking",
    "Unmask": "unmasking",
}


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked run of 20 participants; one drops out at each stage but one."""
    folder = tmp_path_factory.mktemp("motion") / "masked"
    masking = ["--masking", "secagg", "--nodes", "20", "--dropout", "0.2", "--dropout-share", "0.25"]
    assert cli._run([*SIZE, *masking, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without masks of 100 nodes, of which some are faulty."""
    folder = tmp_path_factory.mktemp("motion") / "faulty"
    faults = ["--dropout", "0.05", "--faulty", "malformed=0.03", "--faulty", "inflate=0.02"]
    assert cli._run([*SIZE, "--nodes", "100", *faults, "--out", str(folder)]) == 0
    return folder


def now(tab: Any) -> int:
    return int(tab.js("return document.querySelector('.motion').dataset.now"))


def playing(tab: Any) -> bool:
    return bool(tab.js("return document.querySelector('.motion').dataset.playing === 'true'"))


# What every step shows: its title and round, the dots that are gone and how, and the messages that the server holds.
WALK = """
const slider = document.querySelector(".motion input");
return [...Array(Number(slider.max) + 1).keys()].map((step) => {
  slider.value = step;
  slider.dispatchEvent(new Event("input"));
  const texts = (selector) => document.querySelector(selector).textContent;
  const gone = [...document.querySelectorAll("[data-dot].gone")];
  return {
    title: texts(".motion-title"), round: texts(".motion-round"), words: texts(".motion-caption"),
    dots: document.querySelectorAll("[data-dot]").length,
    gone: gone.map((dot) => [Number(dot.dataset.dot) + 1, dot.dataset.state]),
    held: document.querySelectorAll(".particle[data-here='1']:not(.refused)").length,
    counts: texts(".motion-count.devices"), sum: document.querySelector(".motion-sum").classList.contains("on"),
    noise: document.querySelectorAll(".motion-bars.noise rect").length,
    legend: texts(".motion-legend"),
  };
});
"""


class TestTheTrace:
    def test_every_drop_out_of_a_masked_run_shows_at_its_stage(self, tab: Any, masked: Path) -> None:
        events = read_trace(masked / TRACE_FILE).events
        shown = tab.open(masked / "report.html").js(WALK)
        for round_ in ("select", "release"):
            gone: set[int] = set()
            for step in (one for one in shown if one["round"] == f"Round {round_}"):
                assert step["dots"] == 20
                if stage := STAGES.get(step["title"]):
                    (end,) = (
                        e
                        for e in events
                        if isinstance(e, RoundEnded) and (e.round, e.stage) == (round_, stage)
                    )
                    gone |= {
                        int(e.participant.split()[1])
                        for e in events
                        if isinstance(e, DroppedOut) and (e.round, e.stage) == (round_, stage)
                    }
                    assert f"{end.answered} answered" in step["counts"]
                    assert (step["noise"] > 0) == (stage == "masking")
                assert {dot for dot, _ in step["gone"]} == gone
                if step["title"] == "Masked input":
                    assert step["held"] == end.answered
                if step["title"] == "The sum":
                    assert step["sum"]
                    assert sum(how == "late" for _, how in step["gone"]) == 1
                    assert "17 participants" in step["words"]
            assert len(gone) == 4

    def test_faulty_nodes_drop_out_and_liars_are_counted(self, tab: Any, faulty: Path) -> None:
        shown = tab.open(faulty / "report.html").js(WALK)
        (answers, _) = (step for step in shown if step["title"] == "Answers")
        looks = [how for _, how in answers["gone"]]
        assert (looks.count("silent"), looks.count("refused"), answers["held"]) == (5, 3, 92)
        assert "2 of these lie" in answers["legend"]
        assert shown[-1]["title"] == "Released"


class TestControls:
    def test_keys_step_and_the_focus_is_seen(self, tab: Any, masked: Path) -> None:
        tab.open(masked / "report.html")
        tab.press(".motion", "ARROW_RIGHT", 3)
        assert now(tab) == 3
        assert tab.js("return getComputedStyle(document.querySelector('.motion')).outlineStyle") == "solid"
        tab.press(".motion", "ARROW_LEFT")
        assert (now(tab), tab.find(".motion-where").text) == (2, "3 of 18")
        tab.press(".motion", "END")
        assert (now(tab), tab.find("[data-motion=forward]").is_enabled()) == (17, False)
        tab.press(".motion input", "ARROW_LEFT")
        assert now(tab) == 16
        tab.press(".motion", "HOME")
        assert now(tab) == 0
        tab.find("[data-motion=forward]").click()
        assert (now(tab), tab.find(".motion-caption").get_attribute("aria-live")) == (1, "polite")

    def test_play_goes_to_the_end_and_stops_and_space_pauses(self, tab: Any, masked: Path) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        tab.open(masked / "report.html")
        tab.press(".motion", "SPACE")
        assert playing(tab)
        tab.press(".motion", "SPACE")
        assert not playing(tab)
        assert now(tab) == 0
        tab.js("const real = setTimeout; window.setTimeout = (act) => real(act, 1)")
        tab.find("[data-motion=play]").click()
        WebDriverWait(tab.driver, 30).until(lambda _: not playing(tab))
        assert now(tab) == 17

    def test_only_who_wants_motion_gets_it(self, tab: Any, masked: Path) -> None:
        moving = "return document.getAnimations().length"
        forward = "document.querySelector('[data-motion=forward]').click();"
        tab.open(masked / "report.html")
        assert tab.js(forward + moving) > 20
        reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        tab.open(masked / "report.html")
        tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": reduced})
        for step in range(1, 6):
            assert tab.js(forward + moving) == 0
            assert now(tab) == step
        assert len(tab.all(".particle[data-here='1']")) == 17


class TestFitting:
    @pytest.mark.parametrize("width", [320, 390, 1280])
    def test_no_width_overflows_or_has_complaints(self, tab: Any, faulty: Path, width: int) -> None:
        tab.open(faulty / "report.html", width=width, dark=width > 1000)
        tab.press(".motion", "END")
        assert tab.overflow() == 0
        assert tab.complaints() == []

    def test_a_run_without_a_trace_has_nothing_of_it(self, faulty: Path, tmp_path: Path) -> None:
        (tmp_path / "r").mkdir()
        for name in ("result.json", "histogram.csv"):
            (tmp_path / "r" / name).write_bytes((faulty / name).read_bytes())
        assert cli._run(["report", str(tmp_path / "r"), "--quiet"]) == 0
        assert 'id="motion"' not in (tmp_path / "r" / "report.html").read_text()
