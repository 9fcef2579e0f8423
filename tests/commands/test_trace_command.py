"""`fedhist run --trace`, `fedhist trace show`, --verbose and --quiet, as a person uses them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import Fedhist, page_in
from tests.support.api import (
    TRACE_FILE,
    Charged,
    DroppedOut,
    MessageSent,
    RoundEnded,
    Scored,
    StateEntered,
    Viewed,
    read_trace,
)

SMALL = ("run", "--users", 800, "--items", 20, "--seed", 1)


@pytest.fixture
def traced(fedhist: Fedhist, tmp_path: Path) -> Path:
    assert fedhist(*SMALL, "--trace", "--out", "r").code == 0
    return tmp_path / "r"


class TestTheTrace:
    def test_it_tells_the_run_in_order(self, traced: Path) -> None:
        trace = read_trace(traced / TRACE_FILE)
        states = [event.state for event in trace.events if isinstance(event, StateEntered)]
        assert states == ["planned", "selecting", "releasing", "released"]
        # Every charge comes before the state that its noise leads to.
        kept = [event.kind for event in trace.events if isinstance(event, StateEntered | Charged)]
        assert kept == ["state", "state", "charge", "state", "charge", "state"]
        assert trace.events[-1].kind == "end"

    def test_its_numbers_are_those_of_the_result(self, traced: Path) -> None:
        document = json.loads((traced / "result.json").read_text())
        events = read_trace(traced / TRACE_FILE).events
        assert [e.charge for e in events if isinstance(e, Charged)] == document["ledger"]
        (scores,) = (e for e in events if isinstance(e, Scored))
        assert scores.chosen == document["threshold"]
        assert scores.scores is not None
        assert len(scores.scores) == len(scores.candidates) == document["plan"]["candidates"]
        rounds = {e.round: e for e in events if isinstance(e, RoundEnded)}
        for name, report in document["rounds"].items():
            assert (rounds[name].answered, rounds[name].size) == (report["answered"], report["bytes"])
        sent = {e.round: e.size for e in events if isinstance(e, MessageSent) and e.to == "server"}
        assert sent == {name: report["bytes"] for name, report in document["rounds"].items()}
        assert {e.plan for e in events if isinstance(e, MessageSent)} == {document["plan_digest"][:16]}

    def test_without_masking_the_server_sees_what_the_device_had(self, traced: Path) -> None:
        views = [e for e in read_trace(traced / TRACE_FILE).events if isinstance(e, Viewed)]
        assert [view.round for view in views] == ["select", "release"]
        for view in views:
            assert view.had == view.seen != []
        threshold = json.loads((traced / "result.json").read_text())["threshold"]
        data = views[1].data
        assert data is not None
        assert sum(value**2 for value in views[1].had) <= threshold**2 * (1 + 1e-9)
        assert all(had <= own + 1e-9 for had, own in zip(views[1].had, data, strict=True))

    def test_the_release_is_the_same_with_it_and_without(self, fedhist: Fedhist, traced: Path) -> None:
        assert fedhist(*SMALL, "--out", "plain").code == 0
        assert Path("plain/histogram.csv").read_bytes() == (traced / "histogram.csv").read_bytes()


class TestMaskedRuns:
    @pytest.fixture
    def masked(self, fedhist: Fedhist, tmp_path: Path) -> Path:
        masking = ("--masking", "secagg", "--nodes", 20, "--dropout", 0.1)
        outcome = fedhist(*SMALL, *masking, "--trace", "--out", "r")
        assert outcome.code == 0, outcome.err
        return tmp_path / "r"

    def test_stages_and_those_who_fall_silent_in_them_are_told(self, masked: Path) -> None:
        events = read_trace(masked / TRACE_FILE).events
        reports = json.loads((masked / "result.json").read_text())["rounds"]
        for name, report in reports.items():
            ended = [e for e in events if isinstance(e, RoundEnded) and e.round == name]
            assert [e.stage for e in ended] == [*report["stages"], ""]
            gone = [e.stage for e in events if isinstance(e, DroppedOut) and e.round == name]
            assert len(gone) == 2
            for e in ended[:-1]:
                stage = report["stages"][e.stage]
                assert (stage["asked"], stage["answered"]) == (e.participants, e.answered)
                assert gone.count(e.stage) == e.participants - e.answered
            assert (ended[-1].answered, ended[-1].participants) == (report["answered"], 20)

    def test_the_server_sees_noise_where_the_device_had_values(self, masked: Path) -> None:
        views = [e for e in read_trace(masked / TRACE_FILE).events if isinstance(e, Viewed)]
        assert [(view.round, view.masked) for view in views] == [("select", True), ("release", True)]
        for view in views:
            assert view.places[0] == "users"
            assert view.had[0] == 1
            far = [abs(seen - had) > 10_000 for had, seen in zip(view.had, view.seen, strict=True)]
            assert sum(far) > 0.9 * len(far)

    def test_the_page_of_a_run_has_the_same_timeline(self, fedhist: Fedhist, masked: Path) -> None:
        shown = fedhist("trace", "show", "r").out.splitlines()
        told = [line[14:] for line in shown if re.match(r" *\d+\.\d{4} s  ", line)]
        page, place = page_in(masked).words(), 0
        assert len(told) > 30
        for words in told:
            place = page.index(words, place) + len(words)
        (masked / TRACE_FILE).unlink()
        assert fedhist("report", "r", "--force").code == 0
        page = page_in(masked).words()
        # Of a run without a trace it is that of its result: no times and no bytes.
        for words in told:
            if words.startswith(("The plan", "The threshold", "Round", "Charged", "The server adds")):
                assert re.split(r", between|, [\d,]+ bytes", words)[0] in page
        assert "19 of 20 participants answered; 1 dropped out" in page

    def test_too_many_drop_outs_leave_a_trace_that_says_so(self, fedhist: Fedhist, tmp_path: Path) -> None:
        masking = ("--masking", "secagg", "--nodes", 20, "--dropout", 0.5)
        outcome = fedhist(*SMALL, *masking, "--trace", "--out", "r")
        assert outcome.code == 4
        assert "are needed" in outcome.err
        (path,) = tmp_path.iterdir()
        before, *_, trace, error = outcome.err.splitlines()
        assert "--dropout 0.5" in before and "raise --dropout-share" in before
        assert trace == f"the trace of the failed run: {path.name}"
        assert "--dropout-share" in error
        events = read_trace(path).events
        assert [e for e in events if isinstance(e, DroppedOut)]
        assert events[-1].kind == "end"


class TestShow:
    def test_a_round_and_a_participant_can_be_asked_for(self, fedhist: Fedhist, traced: Path) -> None:
        of_round = fedhist("trace", "show", "r", "--round", "select").out
        assert "round release" not in of_round
        assert fedhist("trace", "show", "r", "--round", "discover").code == 0
        assert "Charged for round select" in of_round
        for file, flags, events in (
            ("r", ("process 1",), 4),
            ("r", (1,), 4),
            ("r/trace.jsonl", (1, "--round", "select"), 2),
        ):
            of_one = fedhist("trace", "show", file, "--participant", *flags).out
            assert of_one.splitlines()[-1].startswith(f"{events} of ")


class TestWords:
    def test_quiet_says_nothing_and_writes_all_the_same(self, fedhist: Fedhist) -> None:
        outcome = fedhist(*SMALL, "--quiet", "--out", "r")
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
        assert Path("r/report.html").exists()
        assert fedhist("report", "r", "--force", "--quiet").out == ""


def in_a_terminal(folder: Path, *arguments: object, seconds: float = 60) -> tuple[int, str]:
    """The exit code, and what the command shows on stderr when that is a terminal 160 characters wide.

    The last thing that a bar does is to erase its line.
    """
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "160", "TERM": "xterm", "FLWR_HOME": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-m", "fedhist", *map(str, arguments)],
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while block := os.read(ours, 65_536):
                shown += block
        code = process.wait(seconds)
    os.close(ours)
    assert not shown or shown.rstrip().endswith(b"\x1b[2K")
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))


class TestProgress:
    def test_phases_have_a_rate_and_the_time_left_but_not_with_quiet(self, tmp_path: Path) -> None:
        size = ("--users", 60_000, "--items", 200)
        code, shown = in_a_terminal(tmp_path, "run", *size, "--out", "r")
        assert code == 0
        for words in ("reading the population", "round 1: statistics", "round 2"):
            assert words in shown
        assert re.search(r"60000/60000 users [\d,.e+]+/s +\d:\d\d:\d\d", shown)
        assert in_a_terminal(tmp_path, *SMALL, "--quiet", "--out", "quiet") == (0, "")

    @pytest.mark.timeout(300)
    @pytest.mark.slow
    def test_on_flower_the_nodes_that_answered_are_counted_and_traced(self, tmp_path: Path) -> None:
        command = (*SMALL, "--engine", "flower-simulation", "--nodes", 25, "--trace", "--out", "r")
        code, shown = in_a_terminal(tmp_path, *command, seconds=280)
        assert code == 0, shown
        assert shown.count("25/25 nodes") >= 2
        assert "round 2: clipped histograms" in shown
        trace = read_trace(tmp_path / "r" / TRACE_FILE)
        assert trace.engine == "flower-simulation"
        sent = [(e.round, e.to) for e in trace.events if isinstance(e, MessageSent)]
        left = [e for e in trace.events if e.kind == "left-out"]
        assert sent.count(("select", "server")) == 20
        assert [getattr(event, "messages", 0) for event in left] == [5] * 4
        ends = [e for e in trace.events if isinstance(e, RoundEnded)]
        assert [(e.answered, e.participants, e.users) for e in ends] == [(25, 25, 800)] * 2
