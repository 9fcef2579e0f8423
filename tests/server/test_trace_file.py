"""Traces on disk: small whatever the cohort, written for whom they may be, and read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedhist import Plan
from tests.support.api import (
    MESSAGES_KEPT,
    TRACE_FILE,
    DroppedOut,
    Heard,
    InvalidFile,
    MessageSent,
    MessagesLeftOut,
    PhaseEnded,
    Recorder,
    RoundEnded,
    RunEnded,
    Scored,
    StateEntered,
    read_trace,
    trace_in,
    write_trace,
)
from tests.support.refusals import refused

CLOSED = Plan(users=10, items=3)
OPEN = Plan(users=10, domain="open", release="truncated-laplace")
SCORES = Scored(candidates=[1.0, 2.0], scores=[0.0, 1.0], base=[1.0, 0.5], chances=[0.4, 0.6], chosen=2.0)
END = RunEnded(outcome="released", reason=None)


def answer(number: int, size: int | None = 100, round_: str = "select") -> MessageSent:
    return MessageSent(round_, "", "server", f"node {number}", size, "ab")


def round_end(round_: str = "select", size: int | None = 7) -> RoundEnded:
    return RoundEnded(round_, "", 3, 3, 10, size, 0.5)


def written(tmp_path: Path, *events: Any, simulated: bool = True, plan: Plan = CLOSED) -> Path:
    clock = iter(range(1000))
    recorder = Recorder(plan, simulated=simulated, clock=lambda: float(next(clock)))
    for event in events:
        recorder(event)
    write_trace(tmp_path / TRACE_FILE, recorder, engine="in-process")
    return tmp_path / TRACE_FILE


class TestWriting:
    def test_what_happened_comes_back_in_order_with_its_time(self, tmp_path: Path) -> None:
        events = (
            StateEntered("planned", None),
            PhaseEnded("plan", 0.25),
            SCORES,
            answer(1),
            round_end(),
            END,
        )
        trace = read_trace(written(tmp_path, *events))
        assert trace.events == list(events)
        assert [at for at, _ in trace.lines] == sorted(at for at, _ in trace.lines)
        assert (trace.plan, trace.engine, trace.simulated) == (CLOSED, "in-process", True)

    def test_of_many_messages_the_first_are_kept_and_the_others_counted(self, tmp_path: Path) -> None:
        many = [answer(number) for number in range(50_000)]
        path = written(tmp_path, *many, round_end(), END)
        kept = read_trace(path).events
        assert kept[:MESSAGES_KEPT] == many[:MESSAGES_KEPT]
        left = 50_000 - MESSAGES_KEPT
        assert kept[MESSAGES_KEPT] == MessagesLeftOut("select", "", "server", left, 100 * left)
        assert path.stat().st_size < 10_000

    def test_a_size_that_nobody_measured_makes_the_sum_unknown(self, tmp_path: Path) -> None:
        many = [answer(number, None if number == 30 else 100) for number in range(40)]
        kept = read_trace(written(tmp_path, *many, round_end(), END)).events
        assert kept[MESSAGES_KEPT] == MessagesLeftOut("select", "", "server", 40 - MESSAGES_KEPT, None)

    def test_rounds_and_directions_have_room_of_their_own(self, tmp_path: Path) -> None:
        events = [answer(n) for n in range(MESSAGES_KEPT)] + [answer(n, round_="release") for n in range(5)]
        assert len(read_trace(written(tmp_path, *events, END)).events) == MESSAGES_KEPT + 6

    def test_drop_outs_are_kept_beside_messages_and_have_a_limit_too(self, tmp_path: Path) -> None:
        gone = [DroppedOut("select", "", f"node {n}", "no-answer", None) for n in range(10_000)]
        assert len(read_trace(written(tmp_path, *gone, END)).events) == 10 * MESSAGES_KEPT + 1

    def test_what_is_only_for_watchers_is_not_kept(self, tmp_path: Path) -> None:
        assert read_trace(written(tmp_path, Heard(answered=1, asked=2), END)).events == [END]


class TestOutsideOfSimulations:
    def test_sizes_are_kept_where_the_plan_fixes_them(self, tmp_path: Path) -> None:
        told = read_trace(written(tmp_path, answer(1), round_end(), END, simulated=False)).events
        assert told == [answer(1), replace(round_end(), seconds=None), END]

    def test_no_line_says_when_or_how_long(self, tmp_path: Path) -> None:
        path = written(tmp_path, PhaseEnded("plan", 0.25), answer(1), round_end(), END, simulated=False)
        lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        assert [line["at"] for line in lines] == [None] * 4
        assert [line["seconds"] for line in lines if "seconds" in line] == [None] * 2
        assert [at for at, _ in read_trace(path).lines] == [None] * 4

    def test_who_answered_before_whom_is_not_told(self, tmp_path: Path) -> None:
        """Neither by the order of the lines, nor by which of many messages are kept."""
        gone = DroppedOut("select", "", "node 3", "no-answer", None)
        many = [answer(number) for number in range(1, 2 * MESSAGES_KEPT) if number != 3]
        one, other = (
            read_trace(written(tmp_path, *events, round_end(), END, simulated=False)).events
            for events in ([*many, gone], [gone, *reversed(many)])
        )
        assert one == other
        assert one[:3] == [answer(1), answer(2), gone]

    @pytest.mark.parametrize(
        "line",
        [
            '{"at": 1.5, "event": "state", "state": "planned", "threshold": null}',
            '{"at": null, "event": "phase", "phase": "plan", "seconds": 0.5}',
        ],
    )
    def test_one_with_times_is_refused(self, tmp_path: Path, line: str) -> None:
        path = written(tmp_path, END, simulated=False)
        header, *rest = path.read_text().splitlines()
        path.write_text("\n".join([header, line, *rest]) + "\n")
        with refused(InvalidFile, "not-of-a-deployment", "line 2"):
            read_trace(path)

    def test_a_trace_that_claims_to_be_one_and_holds_secrets_is_refused(self, tmp_path: Path) -> None:
        path = written(tmp_path, SCORES, END)
        text = path.read_text().replace('"simulated": true', '"simulated": false')
        path.write_text(re.sub(r'"at": [\d.]+', '"at": null', text))
        with refused(InvalidFile, "not-of-a-deployment", "line 2", "scores"):
            read_trace(path)


class TestStrictReading:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return written(tmp_path, StateEntered("planned", None), answer(1), round_end(), END)

    @pytest.mark.parametrize(
        ("number", "line", "code"),
        [
            (1, "{}", "no-header"),
            (1, '{"trace": 3}', "wrong-header"),
            (3, "{", "not-json"),
            (3, "[]", "not-an-object"),
            (3, "", "not-json"),
            (3, '{"at": NaN, "event": "phase", "phase": "a", "seconds": 1}', "not-json"),
            (3, '{"at": 99, "event": "murmur"}', "unknown-event"),
            (3, '{"event": "phase", "phase": "a", "seconds": 1}', "no-time"),
            (3, '{"at": -1, "event": "phase", "phase": "a", "seconds": 1}', "time-runs-back"),
            (3, '{"at": 1.5, "event": "phase", "phase": "a"}', "wrong-fields"),
            (6, '{"at": 99, "event": "phase", "phase": "a", "seconds": 1}', "after-the-end"),
        ],
    )
    def test_a_damaged_line_is_named(self, path: Path, number: int, line: str, code: str) -> None:
        lines = path.read_text().splitlines()
        lines[number - 1 : number] = [line]
        path.write_text("\n".join(lines) + "\n")
        with refused(InvalidFile, code, f"line {number} "):
            read_trace(path)

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (lambda text: text.replace('"trace": 3', '"trace": 1', 1), "other-version"),
            (lambda text: text.replace('"epsilon": 1.0', '"epsilon": 50.0', 1), "other-plan"),
            (lambda text: text[: text.rindex("\n", 0, -1) + 1], "no-end"),
            (lambda text: text[:-5], "cut-off"),
        ],
    )
    def test_another_version_or_plan_or_an_end_that_is_missing(
        self, path: Path, change: Callable[[str], str], code: str
    ) -> None:
        path.write_text(change(path.read_text()))
        with refused(InvalidFile, code):
            read_trace(path)

    def test_no_file_and_no_text(self, tmp_path: Path) -> None:
        with refused(InvalidFile, "missing-trace", "--trace"):
            read_trace(tmp_path / "nothing.jsonl")
        (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\n")
        with refused(InvalidFile, "not-utf8"):
            read_trace(tmp_path / "bytes.jsonl")


class TestBesideAResult:
    def test_it_is_that_of_the_result_s_plan_or_refused(self, tmp_path: Path) -> None:
        assert trace_in(tmp_path, CLOSED) is None
        written(tmp_path, END)
        found = trace_in(tmp_path, CLOSED)
        assert found is not None
        assert found.events == [END]
        with refused(InvalidFile, "of-another-result"):
            trace_in(tmp_path, OPEN)
