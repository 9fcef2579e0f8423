"""Calendars: what people write, and what shares a day."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.api import MAX_WINDOWS, InvalidPlan, windows_in
from tests.support.refusals import refused


def texts(*written: str) -> list[str]:
    return [window.text for window in windows_in(written)]


def test_weeks_days_months_and_years_from_first_to_last() -> None:
    assert texts("2026-W51..2027-W02") == ["2026-W51", "2026-W52", "2026-W53", "2027-W01", "2027-W02"]
    assert texts("2026-02-27..2026-03-02") == ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
    assert texts("2026-11..2027-02") == ["2026-11", "2026-12", "2027-01", "2027-02"]
    assert texts("2026..2028") == ["2026", "2027", "2028"]
    assert texts("2026-11-01/2026-11-10..2026-11-21/2026-11-30") == [
        "2026-11-01/2026-11-10",
        "2026-11-11/2026-11-20",
        "2026-11-21/2026-11-30",
    ]


def test_a_number_from_the_first_on() -> None:
    assert texts("2026-W40x3") == ["2026-W40", "2026-W41", "2026-W42"]
    assert texts("2024-02x2") == ["2024-02", "2024-03"]


def test_lists_are_put_in_order() -> None:
    assert texts("2026-11, 2026-W40", "2026-10-20") == ["2026-W40", "2026-10-20", "2026-11"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", ("no-windows",)),
        ("2026-W40,2026-W40", ("windows-overlap",)),
        ("2026-W40..2026-W42,2026-10-05", ("windows-overlap",)),
        ("2026-W42..2026-W40", ("window-ends-first",)),
        ("2026-W40..2026-12", ("two-kinds-of-windows",)),
        ("2026-W40..2026-10-10", ("two-kinds-of-windows",)),
        ("2026-W40x0", ("not-a-window",)),
        (f"2026-01-01x{MAX_WINDOWS + 1}", ("too-many-windows",)),
        ("2000-01-01..2026-01-01", ("too-many-windows",)),
        ("2026-W54", ("not-in-the-calendar",)),
        ("weekly", ("not-a-window", "weekly")),
    ],
)
def test_what_is_no_calendar_is_refused_in_a_sentence(written: str, told: tuple[str, ...]) -> None:
    with refused(InvalidPlan, *told):
        windows_in(written)


@pytest.mark.parametrize("first", ["2026-W01", "2024-02-28", "2023-12", "1999", "2026-01-30/2026-02-02"])
def test_windows_that_follow_each_other_leave_out_no_day(first: str) -> None:
    for earlier, later in pairwise(windows_in(f"{first}x60")):
        assert earlier.end == later.start
