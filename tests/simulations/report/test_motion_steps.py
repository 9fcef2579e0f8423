"""The steps that a report plays: the counts and drop-outs of the trace, at their stage, and nothing that a user has."""

from __future__ import annotations

import json
from dataclasses import asdict

from fedhist import Plan
from tests.support.api import (
    MOST_DOTS,
    TO_DEVICE,
    TO_SERVER,
    Charged,
    DroppedOut,
    Event,
    MessageSent,
    MotionStep,
    Recorder,
    RoundAsked,
    RoundEnded,
    RunEnded,
    StateEntered,
    Trace,
    Viewed,
    motion_steps,
)

PLAN = Plan(users=3_000, items=5)
MASKED = Plan(users=3_000, items=5, masking="secagg", participants=1_000)
STAGES = ("advertising", "sharing", "checking", "masking", "unmasking")
SECRET = 77_123.25


def steps_of(plan: Plan, *events: Event, lying: dict[str, int] | None = None) -> list[MotionStep]:
    recorder = Recorder(plan, simulated=True, clock=lambda: 0.0)
    for event in (StateEntered("planned", None), StateEntered("selecting", None), *events):
        recorder(event)
    return motion_steps(Trace(plan, "in-process", True, tuple(recorder.lines)), released=5, lying=lying or {})


def exchange(participants: int, gone: dict[int, str], stage: str = "", *, heard: bool = False) -> list[Event]:
    """All are asked and answer, but for these."""
    events: list[Event] = [RoundAsked("select", stage, None, "0")]
    events += [
        MessageSent("select", stage, TO_DEVICE, f"node {n}", 9, "0") for n in range(1, participants + 1)
    ]
    if heard:
        events += [MessageSent("select", stage, TO_SERVER, f"node {n}", 9, "0") for n in gone]
    events += [DroppedOut("select", stage, f"node {n}", why, None) for n, why in gone.items()]
    answered = participants - len(gone)
    return [*events, RoundEnded("select", stage, participants, answered, None if stage else 60, 9, 0.1)]


class TestDropOuts:
    def test_each_is_gone_at_its_stage_and_for_its_reason(self) -> None:
        events = exchange(9, {2: "no-answer"}) + exchange(9, {7: "malformed", 3: "error"}, heard=True)
        steps = steps_of(PLAN, *events[:-1], events[-1])
        first, second = (step for step in steps if step.scene == "answers")
        assert (first.gone, first.answered, first.missing) == ([(1, "silent")], 8, 1)
        assert first.counts == "8 of 9 are in the sum. 1 gave no answer (2)."
        assert second.gone == [(2, "refused"), (6, "refused")]
        assert "1 sent bytes that can't be read (7); 1 answered with an error (3)" in second.counts

    def test_in_a_masked_round_those_of_the_last_stage_are_in_the_sum_and_who_is_left_out_is_not(
        self,
    ) -> None:
        plan = Plan(users=3_000, items=5, masking="secagg", participants=20)
        events: list[Event] = []
        left = 20
        for stage, gone in zip(STAGES, (4, 5, None, 6, 7), strict=True):
            events += exchange(left, {} if gone is None else {gone: "no-answer"}, stage)
            left -= gone is not None
        left_out = DroppedOut("select", "", "node 9", "bad-share", None)
        steps = steps_of(plan, *events, left_out, RoundEnded("select", "", 20, 16, 48, 9, 0.1))
        by_scene = {step.scene: step for step in steps}
        assert {scene: step.gone for scene, step in by_scene.items() if step.gone} == {
            "keys": [(3, "silent")],
            "shares": [(4, "silent")],
            "masked": [(5, "silent")],
            "unmasks": [(6, "late")],
            "sum": [(8, "refused")],
        }
        assert (by_scene["sum"].summed, by_scene["sum"].users, by_scene["sum"].missing) == (16, 48, 5)
        assert "1 left out, bad-share (9)." in by_scene["sum"].caption

    def test_a_thousand_are_fewer_dots_with_exact_counts_and_little_data(self) -> None:
        events: list[Event] = []
        for place, stage in enumerate(STAGES):
            events += exchange(1_000 - 10 * place, {1 + 7 * n + place: "no-answer" for n in range(10)}, stage)
        steps = steps_of(MASKED, *events)
        assert {step.dots for step in steps if step.participants} == {MOST_DOTS}
        assert [step.missing for step in steps if step.answered] == [10, 20, 30, 40, 50]
        gone = [dot for step in steps for dot, _ in step.gone]
        # A dot stands for five.
        assert len(gone) == len(set(gone)) == 10
        assert len(json.dumps([asdict(step) for step in steps])) < 20_000


class TestWhatIsNotThere:
    def test_nothing_of_what_a_user_has_is_played(self) -> None:
        view = Viewed("select", "user 3", ["secret item"], [SECRET], [SECRET], [SECRET], masked=False)
        masked = Viewed("release", "node 1", ["secret item"], None, [SECRET], [-4.0e9], masked=True)
        for plan in (PLAN, MASKED):
            told = repr(steps_of(plan, view, *exchange(9, {}), masked))
            assert "secret item" not in told
            assert f"{SECRET:g}" not in told and str(SECRET) not in told

    def test_of_a_masked_message_there_is_what_reached_the_server(self) -> None:
        seen = Viewed("select", "node 1", ["a", "b"], None, [1.0, 2.0], [-4.0e9, 1.0e9], masked=True)
        steps = steps_of(MASKED, *exchange(9, {}, "masking"), seen)
        assert [step.noise for step in steps if step.noise] == [[-1.0, 0.25]]

    def test_no_size_and_no_time_is_said(self) -> None:
        for step in steps_of(PLAN, *exchange(9, {1: "no-answer"})):
            assert "byte" not in step.caption + step.counts
            assert " s." not in step.caption + step.counts


class TestWords:
    def test_liars_are_counted_and_not_named(self) -> None:
        (step,) = (one for one in steps_of(PLAN, *exchange(9, {}), lying={"select": 2}) if one.summed)
        assert "2 participants in it made their answers up: the server can't see which." in step.caption

    def test_one_process_is_said_to_be_one(self) -> None:
        answers = next(one for one in steps_of(PLAN, *exchange(1, {})) if one.scene == "answers")
        assert "The process answers once, for all its users." in answers.counts
        assert "In a deployment there is one of each device" in answers.sees

    def test_equal_charges_are_one_step(self) -> None:
        charge = {"round": "select", "name": "laplace", "epsilon": 0.5, "delta": 0.0}
        steps = steps_of(PLAN, Charged(charge), Charged(charge), Charged(charge | {"epsilon": None}))
        (step,) = (one for one in steps if one.scene == "charge")
        assert step.spent == ["2 × ε 0.5", "not private"]

    def test_a_run_that_fails_ends_with_it(self) -> None:
        steps = steps_of(PLAN, RoundAsked("select", "", 9, "0"), RunEnded("failed", "RoundFailed"))
        assert [step.scene for step in steps] == ["plan", "asks", "answers", "failed"]
        assert "nothing was released" in steps[-1].caption
