"""What a deployment's trace holds: who answered and how, and nothing that depends on data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_grid import at, changed, dead, run_server_app, silent

from fedhist import InvalidInput, RoundFailed, SparsePopulation
from fedhist.client import Policy
from tests.builders import page_in, population_of
from tests.support.api import TRACE_FILE, DroppedOut, read_settings, read_trace
from tests.support.refusals import refused

CONFIG = {"users": 60, "items": 6, "max_threshold": 60.0, "candidates": 16, "trace": True}


def trace_of(grid: Any, out: Path, **changes: Any) -> list[dict[str, Any]]:
    """The lines of a run's trace but for the clock, which differs between any two runs."""
    if "known_items" in changes:
        known = out.with_suffix(".txt")
        known.write_text(changes["known_items"])
        changes["known_items"] = str(known)
    run_server_app(grid, CONFIG | {"out": str(out)} | changes)
    lines = [json.loads(line) for line in (out / TRACE_FILE).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("at", "seconds")} for line in lines]


def other_people(users: int = 60, items: int = 6) -> SparsePopulation:
    """As many users with nothing in common with those of the lab: one enormous, most with nothing."""
    table = np.zeros((users, items), dtype=np.int64)
    table[7, 2] = 100_000
    table[8:12, 0] = 3
    return population_of(table)


# fmt: off
MODES: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "laplace": {"mechanism": "laplace"},
    "debiased": {"debias": "poisson", "mechanism": "laplace"},
    "open": {"domain": "open", "release": "truncated-laplace", "items": None, "epsilon": 5.0},
    # With so little epsilon nothing is found, and the known items are released: what is found is public.
    "discovered": {"domain": "open", "items": None, "epsilon": 0.1, "known_items": "1\n5\nplum"},
    "masked": {"masking": "secagg", "participants": 6},
    "masked discovered": {
        "masking": "secagg", "participants": 6, "domain": "open", "items": None, "epsilon": 0.1,
        "known_items": "1\n5\nplum", "max_items": 64, "mechanism": "gaussian",
    },
}
# fmt: on


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "chosen"])
def test_a_trace_is_the_same_whatever_the_data_but_for_what_is_released(
    lab: Any, tmp_path: Path, mode: str, fixed: bool
) -> None:
    changes = MODES[mode] | ({"selector": "fixed", "threshold": 20.0} if fixed else {})
    here = trace_of(lab.grid(lab.population()), tmp_path / "here", **changes)
    there = trace_of(lab.grid(other_people()), tmp_path / "there", **changes)
    if not fixed:
        # A request has the name of the mechanism that was chosen.
        sized = mode == "discovered"
        here, there = ([without_threshold(line, sized=sized) for line in lines] for lines in (here, there))
    assert here == there
    assert {line.get("event") for line in here} >= {"state", "charge", "asked", "message", "round", "end"}


@pytest.mark.parametrize("mode", MODES)
def test_a_result_tells_the_same_of_its_rounds_whatever_the_data(lab: Any, tmp_path: Path, mode: str) -> None:
    told = []
    for name, people in (("here", lab.population()), ("there", other_people())):
        trace_of(lab.grid(people), tmp_path / name, **MODES[mode])
        document = json.loads((tmp_path / name / "result.json").read_text())
        told.append((document["bytes_per_user"], [without_clock(r) for r in document["rounds"].values()]))
    assert told[0] == told[1]
    withheld = [name for name, size in told[0][0].items() if size is None]
    assert withheld == {
        "open": ["select", "release"],
        "discovered": ["discover"],
    }.get(mode, [])


def without_clock(report: dict[str, Any]) -> dict[str, Any]:
    """The report of a round but for its seconds, and those of its stages."""
    stages = {name: without_clock(stage) for name, stage in report.get("stages", {}).items()}
    return {name: value for name, value in report.items() if name not in ("seconds", "stages")} | stages


def without_threshold(line: dict[str, Any], *, sized: bool = False) -> dict[str, Any]:
    """The line without the released threshold, and what follows from it in the charge and the messages of round 2."""
    if sized and line.get("round") == "release":
        line = {name: value for name, value in line.items() if name not in ("size", "bytes")}
    if line.get("event") == "charge" and line["charge"]["round"] == "release":
        known = ("round", "name", "epsilon", "neighbours")
        return {"event": "charge", "charge": {name: line["charge"][name] for name in known}}
    return line | {"threshold": None} if "threshold" in line else line


def test_the_check_would_notice_a_score(lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is worth something: with simulated traces the same two runs differ."""
    from tests.support.api import folder_module as recorded_run
    from tests.support.api import server_app_module as app
    from tests.support.api import trace_module as observation

    tell_states, recorder = observation.tell_states, recorded_run.Recorder
    monkeypatch.setattr(recorded_run, "Recorder", lambda plan, simulated: recorder(plan, simulated=True))
    monkeypatch.setattr(app, "tell_states", lambda observe, simulated: tell_states(observe, simulated=True))
    here = trace_of(lab.grid(lab.population()), tmp_path / "here")
    there = trace_of(lab.grid(other_people()), tmp_path / "there")
    assert [without_threshold(line) for line in here] != [without_threshold(line) for line in there]


class TestMasking:
    def test_every_stage_is_told_with_who_falls_silent_in_it(self, lab: Any, tmp_path: Path) -> None:
        grid = lab.grid(lab.population(), faults={3: at("masking", silent)})
        lines = trace_of(grid, tmp_path / "run", masking="secagg", participants=6, dropout_share=0.2)
        stages = [
            line["stage"] for line in lines if line.get("event") == "round" and line["round"] == "select"
        ]
        assert stages == ["advertising", "sharing", "checking", "masking", "unmasking", ""]
        gone = [line for line in lines if line.get("event") == "drop-out"]
        assert [(line["round"], line["stage"], line["participant"]) for line in gone] == [
            ("select", "masking", "node 4"),
            ("release", "masking", "node 4"),
        ]
        reports = json.loads((tmp_path / "run/result.json").read_text())["rounds"]
        for round_ in ("select", "release"):
            stages = {name: stage["answered"] for name, stage in reports[round_]["stages"].items()}
            assert stages == {"advertising": 6, "sharing": 6, "checking": 6, "masking": 5, "unmasking": 5}


class TestDropOuts:
    def test_each_is_told_with_its_reason_and_its_place(self, lab: Any, tmp_path: Path) -> None:
        garbled = changed(lambda data: b"nonsense")
        faults = {0: silent, 2: dead, 3: garbled}
        grid = lab.grid(lab.population(), faults=faults)
        grid.nodes[104].app = lab.app(lab.part(lab.population(), 4, 6), policy=Policy(max_epsilon=0.01))
        lines = trace_of(grid, tmp_path / "run")
        gone = {
            (line["participant"], line["reason"], line["refusal"])
            for line in lines
            if line.get("event") == "drop-out" and line["round"] == "select"
        }
        assert gone == {
            ("node 1", "no-answer", None),
            ("node 3", "error", None),
            ("node 4", "malformed", None),
            ("node 5", "refused", "over-budget"),
        }
        asked = [line["participant"] for line in lines if line.get("to") == "device"]
        # One that refused is not asked again.
        assert asked == [f"node {number}" for number in (*range(1, 7), *range(1, 6))]

    def test_a_run_that_fails_leaves_its_trace_and_nothing_else(self, lab: Any, tmp_path: Path) -> None:
        grid = lab.grid(lab.population(), policy=Policy(max_epsilon=0.01))
        with pytest.raises(RoundFailed):
            run_server_app(grid, CONFIG | {"out": str(tmp_path / "run")})
        (path,) = tmp_path.iterdir()
        events = read_trace(path).events
        assert len([event for event in events if isinstance(event, DroppedOut)]) == 6
        assert (events[-1].kind, getattr(events[-1], "reason", "")) == ("end", "RoundFailed")


class TestSettings:
    def test_without_the_key_there_is_no_trace(self, lab: Any, tmp_path: Path) -> None:
        run_server_app(lab.grid(lab.population()), CONFIG | {"trace": None, "out": str(tmp_path / "run")})
        assert not (tmp_path / "run" / TRACE_FILE).exists()

    @pytest.mark.parametrize(
        ("config", "code"),
        [
            ({"trace": True}, "trace-without-out"),
            ({"trace": "yes", "out": "x"}, "bad-value"),
            ({"trace": 1, "out": "x"}, "bad-value"),
        ],
    )
    def test_it_is_true_or_false_and_needs_a_folder(self, config: dict[str, Any], code: str) -> None:
        with refused(InvalidInput, code, "trace"):
            read_settings({"users": 10, "items": 3} | config)


class TestTheReportOfADeployment:
    @pytest.mark.parametrize("mode", ["gaussian", "open", "masked", "debiased"])
    def test_it_shows_what_is_released_and_nothing_else(self, lab: Any, tmp_path: Path, mode: str) -> None:
        from tests.support.api import cli_module as cli

        trace_of(lab.grid(lab.population()), tmp_path / "run", **MODES[mode])
        assert cli._run(["report", str(tmp_path / "run"), "--quiet"]) == 0
        page = page_in(tmp_path / "run")
        assert "simulation only" not in page.body
        assert "true count" not in page.body
        assert set(page.charts) <= {"released", "budget", "bytes", "seconds"}
        assert ("bytes" in page.charts, "is withheld" in page.body) == (
            (False, True) if mode == "open" else (True, False)
        )
        if "released" in page.charts:
            assert page.charts["released"].heads == ["item", "estimate"]
        assert not (tmp_path / "run/simulation.json").exists()
