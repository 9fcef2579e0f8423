"""Messages of many participants said together: who answered, who dropped out why, sizes and times where they may be."""

from __future__ import annotations

from tests.support.api import (
    TO_DEVICE,
    TO_SERVER,
    DroppedOut,
    Event,
    Exchange,
    MessageSent,
    MessagesLeftOut,
    RoundAsked,
    RoundEnded,
    TraceLine,
    exchanges,
)

PLAN = "0" * 16


def sent(to: str, who: int, size: int | None, stage: str = "") -> MessageSent:
    return MessageSent("select", stage, to, f"node {who}", size, PLAN)


def dropped(who: int, reason: str, refusal: str | None = None) -> DroppedOut:
    return DroppedOut("select", "", f"node {who}", reason, refusal)


def ended(answered: int, participants: int, size: int | None = None, stage: str = "") -> RoundEnded:
    return RoundEnded("select", stage, participants, answered, None if stage else 9, size, None)


def said(*events: Event, timed: bool = True) -> str:
    """What the one exchange of these events says of its answers; events are a second apart."""
    asked = RoundAsked("select", events[-1].stage, None, PLAN)  # type: ignore[attr-defined]  # an event of a round
    lines = [TraceLine(n, float(n) if timed else None, event) for n, event in enumerate((asked, *events))]
    (exchange,) = exchanges(lines)
    assert isinstance(exchange, Exchange)
    return exchange.answered_words()


class TestWhoAnswered:
    def test_one_size_one_sentence(self) -> None:
        words = said(sent(TO_SERVER, 1, 40), sent(TO_SERVER, 2, 40), ended(2, 2, 80))
        assert words == (
            "Round select: 2 of 2 participants are in the sum, 9 users, between 1.0000 and 2.0000 s, "
            "40 bytes each, 80 bytes in all."
        )

    def test_several_sizes_are_a_range(self) -> None:
        words = said(sent(TO_SERVER, 1, 40), sent(TO_SERVER, 2, 1042), ended(2, 2, 1082))
        assert "40 to 1,042 bytes each" in words

    def test_what_the_trace_only_counts_is_in_the_mean_and_its_times_end_with_the_stage(self) -> None:
        more = MessagesLeftOut("select", "", TO_SERVER, messages=8, size=480)
        words = said(sent(TO_SERVER, 1, 40), sent(TO_SERVER, 2, 80), more, ended(10, 10, 600))
        assert "between 1.0000 and 4.0000 s, 40 to 80 bytes in the first 2, 60 on average" in words
        same = MessagesLeftOut("select", "", TO_SERVER, messages=8, size=320)
        assert "40 bytes each" in said(
            sent(TO_SERVER, 1, 40), sent(TO_SERVER, 2, 40), same, ended(10, 10, 400)
        )

    def test_withheld_sizes_and_times_stay_withheld(self) -> None:
        more = MessagesLeftOut("select", "", TO_SERVER, messages=8, size=None)
        for events in (
            (sent(TO_SERVER, 1, None), sent(TO_SERVER, 2, None), ended(2, 2)),
            # One size beside a withheld one would tell the other from a total.
            (sent(TO_SERVER, 1, 40), sent(TO_SERVER, 2, None), ended(2, 2)),
            (sent(TO_SERVER, 1, 40), sent(TO_SERVER, 2, 40), more, ended(10, 10)),
        ):
            words = said(*events, timed=False)
            assert "byte" not in words
            assert " s," not in words

    def test_answers_that_were_not_traced_are_not_described(self) -> None:
        words = said(sent(TO_SERVER, 7, 40), ended(90, 90))
        assert (
            "90 of 90 participants are in the sum, 9 users (1 of the answers in the trace, 40 bytes each)"
            in words
        )


class TestWhoDroppedOut:
    def test_they_are_named_by_reason(self) -> None:
        words = said(
            dropped(40, "no-answer"), dropped(12, "no-answer"), dropped(77, "refused", "budget"), ended(6, 9)
        )
        assert words.endswith("; 3 dropped out: no-answer 12, 40; refused (budget) 77.")

    def test_those_that_the_trace_does_not_name_are_counted(self) -> None:
        assert said(dropped(1, "error"), ended(5, 9)).endswith(
            "; 4 dropped out: error 1 and 3 that the trace does not name."
        )
        assert said(ended(5, 9)).endswith("; 4 dropped out.")


class TestOrder:
    def test_each_stage_is_one_exchange_and_a_round_that_breaks_off_is_said(self) -> None:
        events: list[Event] = [
            RoundAsked("select", "advertising", None, PLAN),
            sent(TO_DEVICE, 1, 10, "advertising"),
            sent(TO_SERVER, 1, 10, "advertising"),
            ended(1, 1, 10, "advertising"),
            RoundAsked("select", "sharing", None, PLAN),
            sent(TO_DEVICE, 1, 10, "sharing"),
        ]
        found = list(exchanges(TraceLine(number, None, event) for number, event in enumerate(events)))
        assert [(part.stage, len(part.lines)) for part in found if isinstance(part, Exchange)] == [
            ("advertising", 4),
            ("sharing", 2),
        ]
        last = found[-1]
        assert isinstance(last, Exchange)
        assert last.answered_words() == "Round select, stage sharing did not end; the trace has 0 answers."
