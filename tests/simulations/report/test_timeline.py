"""Messages of many participants said together: who answered, who dropped out why, sizes and times where they may be."""

from __future__ import annotations

from fedhist import Plan
from tests.support.api import (
    TO_DEVICE,
    TO_SERVER,
    DroppedOut,
    Event,
    MessageSent,
    MessagesLeftOut,
    RoundAsked,
    RoundEnded,
    RunEnded,
    TraceLine,
    Viewed,
    timeline,
)

PLAN = Plan(users=3_000, items=5)
DIGEST = "0" * 16


def told(*events: Event, timed: bool = True) -> list[str]:
    """The timeline of these events, which are a second apart."""
    lines = [TraceLine(n, float(n) if timed else None, event) for n, event in enumerate(events)]
    return [words for _, words in timeline(lines, PLAN, every_message=False)]


def said(*events: Event, timed: bool = True) -> str:
    """What is said of the answers to one question."""
    asked = RoundAsked("select", events[-1].stage, None, DIGEST)  # type: ignore[attr-defined]  # an event of a round
    question, answers = told(asked, *events, timed=timed)
    assert question.startswith("The server asks")
    return answers


def sent(to: str, *sizes: int | None, stage: str = "") -> list[MessageSent]:
    return [
        MessageSent("select", stage, to, f"node {who}", size, DIGEST) for who, size in enumerate(sizes, 1)
    ]


def dropped(who: int, reason: str, refusal: str | None = None) -> DroppedOut:
    return DroppedOut("select", "", f"node {who}", reason, refusal)


def ended(answered: int, participants: int, size: int | None = None, stage: str = "") -> RoundEnded:
    return RoundEnded("select", stage, participants, answered, None if stage else 9, size, None)


class TestWhoAnswered:
    def test_what_the_trace_only_counts_is_in_the_mean_and_its_times_end_with_the_stage(self) -> None:
        more = MessagesLeftOut("select", "", TO_SERVER, messages=8, size=480)
        words = said(*sent(TO_SERVER, 40, 80), more, ended(10, 10, 600))
        assert "between 1.0000 and 4.0000 s, 40 to 80 bytes in the first 2, 60 on average" in words
        same = MessagesLeftOut("select", "", TO_SERVER, messages=8, size=320)
        assert "40 bytes each" in said(*sent(TO_SERVER, 40, 40), same, ended(10, 10, 400))

    def test_withheld_sizes_and_times_stay_withheld(self) -> None:
        more = MessagesLeftOut("select", "", TO_SERVER, messages=8, size=None)
        for events in (
            (*sent(TO_SERVER, *[None] * 5), ended(5, 5)),
            # One size beside a withheld one would tell the other from a total.
            (*sent(TO_SERVER, 40, None, 40, 40, 40), ended(5, 5)),
            (*sent(TO_SERVER, 40, 40), more, ended(10, 10)),
        ):
            words = said(*events, timed=False)
            assert "byte" not in words
            assert " s," not in words


def test_who_dropped_out_is_named_by_reason_and_the_others_are_counted() -> None:
    words = said(
        dropped(40, "no-answer"), dropped(12, "no-answer"), dropped(77, "refused", "budget"), ended(5, 9)
    )
    assert words.endswith(
        "; 4 dropped out: no-answer 12, 40; refused (budget) 77 and 1 that the trace does not name."
    )


class TestOrder:
    def test_each_stage_is_said_by_itself_and_a_round_that_breaks_off_is_said(self) -> None:
        words = told(
            RoundAsked("select", "advertising", None, DIGEST),
            *sent(TO_DEVICE, *[10] * 5, stage="advertising"),
            *sent(TO_SERVER, *[10] * 5, stage="advertising"),
            ended(5, 5, 50, "advertising"),
            RoundAsked("select", "sharing", None, DIGEST),
            *sent(TO_DEVICE, *[10] * 5, stage="sharing"),
            RunEnded("failed", "RoundFailed"),
        )
        assert [one.partition(":")[0] for one in words] == [
            "The server asks 5 participants for round select, stage advertising",
            "Round select, stage advertising",
            "The server asks 5 participants for round select, stage sharing",
            "Round select, stage sharing did not end; the trace has 0 answers.",
            "The run failed (RoundFailed); nothing was released.",
        ]


def test_nothing_of_what_a_user_has_is_said() -> None:
    view = Viewed("select", "user 3", ["secret item"], [77_123.25], [77_123.25], [77_123.25], masked=False)
    (words,) = told(view)
    assert "secret item" not in words and "77" not in words
