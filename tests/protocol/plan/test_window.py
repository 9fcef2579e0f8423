"""Windows of time: whole days of UTC, written in a few ways, compared by the days that they cover."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import Plan
from tests.support.api import InvalidPlan, Window, window_in
from tests.support.refusals import refused

DAYS = st.dates(date(1000, 1, 1), date(9998, 12, 31))
WINDOWS = st.tuples(DAYS, DAYS).map(lambda ends: Window(min(ends), max(ends)))
NEAR = st.integers(0, 40).map(lambda days: date(2026, 1, 1) + timedelta(days))
SMALL = st.tuples(NEAR, NEAR).map(lambda ends: Window(min(ends), max(ends)))


def days_of(window: Window) -> set[date]:
    return {window.first + timedelta(days) for days in range((window.last - window.first).days + 1)}


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026", date(2026, 1, 1), date(2026, 12, 31)),
        ("2026-11", date(2026, 11, 1), date(2026, 11, 30)),
        ("2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("2026-12", date(2026, 12, 1), date(2026, 12, 31)),
        ("2026-W47", date(2026, 11, 16), date(2026, 11, 22)),
        ("2026-W01", date(2025, 12, 29), date(2026, 1, 4)),
        ("2026-11-18", date(2026, 11, 18), date(2026, 11, 18)),
        ("2026-11-01/2026-11-15", date(2026, 11, 1), date(2026, 11, 15)),
    ],
)
def test_a_text_names_its_days(text: str, first: date, last: date) -> None:
    window = Window.parse(text)
    assert (window.first, window.last, window.text, str(window)) == (first, last, text, text)
    assert window.start == datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp()
    assert window.end - window.start == 86_400 * ((last - first).days + 1)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "26",
            "2026-13",
            "2026-W54",
            "2025-W53",
            "2026-02-29",
            "2026-w47",
            "2026-11-15/2026-11-01",
            "0000",
        ),
        *(
            "9999",
            "2026-11/2026-12",
            " 2026",
            "2026\n",
            "2026-1",
            "2026-11-18T00:00",
            "٢٠٢٦",
            "2026-11-18/",
            "0999",
        ),
    ],
)
def test_another_text_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidPlan):
        Window.parse(text)


@given(WINDOWS)
def test_the_shortest_text_names_the_same_window(window: Window) -> None:
    written_out = f"{window.first.isoformat()}/{window.last.isoformat()}"
    assert Window.parse(window.text) == Window.parse(written_out) == window
    assert len(window.text) <= len(written_out)
    assert hash(Window.parse(window.text)) == hash(window)


@given(WINDOWS, WINDOWS)
def test_equal_windows_have_equal_texts(one: Window, other: Window) -> None:
    assert (one == other) == (one.text == other.text)


@given(SMALL, SMALL)
def test_windows_overlap_when_they_share_a_day(one: Window, other: Window) -> None:
    assert one.overlaps(other) == other.overlaps(one) == bool(days_of(one) & days_of(other))
    assert one.overlaps(other) == (one.start < other.end and other.start < one.end)


@given(DAYS.filter(lambda day: day < date(9998, 12, 31)))
def test_days_that_follow_each_other_share_no_moment_and_leave_none_out(day: date) -> None:
    assert Window(day, day).end == Window(day + timedelta(1), day + timedelta(1)).start


def test_a_window_is_in_the_plans_digest() -> None:
    plain, weekly = Plan(users=10, items=3), Plan(users=10, items=3, window="2026-11-16/2026-11-22")
    assert plain.to_json()["window"] is None
    assert weekly.window == weekly.to_json()["window"] == "2026-W47"
    assert weekly.digest == Plan(users=10, items=3, window="2026-W47").digest != plain.digest
    assert Plan.from_json(weekly.to_json()) == weekly
    assert window_in(plain.window) is None


def test_a_plan_refuses_a_window_that_is_none() -> None:
    with refused(InvalidPlan, "not-a-window", "2026"):
        Plan(users=10, items=3, window="last week")
