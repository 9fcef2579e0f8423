"""The window of time that a run reads: whole days of UTC.

| text | days |
|---|---|
| `2026` | a year |
| `2026-11` | a month |
| `2026-W47` | a week of ISO 8601, Monday to Sunday |
| `2026-11-18` | a day |
| `2026-11-01/2026-11-15` | from the first day to the last, both included |

A window begins with the first moment of its first day and ends before the first moment after its last day, so that
windows which follow each other leave nothing out and share nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from fedhist.protocol.errors import InvalidPlan

_DAY = timedelta(days=1)
_FIRST_YEAR, _LAST_YEAR = 1000, 9998
_WRITTEN = (
    "2026, 2026-11, 2026-W47, 2026-11-18, or two days as in 2026-11-01/2026-11-15, the last one included"
)


@dataclass(frozen=True)
class Window:
    """The days from `first` to `last`, both included. Windows of the same days are equal, however they were written."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise InvalidPlan(
                f"the window ends on {self.last}, before it begins on {self.first}",
                allowed="a last day that is not before the first",
                code="window-ends-first",
            )
        if self.first.year < _FIRST_YEAR or self.last.year > _LAST_YEAR:
            raise InvalidPlan(
                "a window of other years",
                allowed=f"years from {_FIRST_YEAR} to {_LAST_YEAR}",
                code="window-out-of-range",
            )

    @classmethod
    def parse(cls, text: str) -> Window:
        """The window that a text names; an InvalidPlan for any other text."""
        for pattern, days in _KINDS:
            found = pattern.fullmatch(text)
            if found is not None:
                try:
                    return cls(*days(*map(int, found.groups())))
                except ValueError as problem:
                    if isinstance(problem, InvalidPlan):
                        raise
                    raise InvalidPlan(
                        f"the window {text} has a day or week that is in no calendar",
                        allowed=_WRITTEN,
                        code="not-in-the-calendar",
                    ) from None
        raise InvalidPlan(f"the window is {text[:40]!r}", allowed=_WRITTEN, code="not-a-window")

    @property
    def text(self) -> str:
        """The shortest way to write it: equal windows have equal texts."""
        first, last = self.first, self.last
        if first == last:
            return first.isoformat()
        if _year(first.year) == (first, last):
            return f"{first.year:04}"
        if _month(first.year, first.month) == (first, last):
            return f"{first.year:04}-{first.month:02}"
        year, week, day = first.isocalendar()
        if day == 1 and last - first == 6 * _DAY:
            return f"{year:04}-W{week:02}"
        return f"{first.isoformat()}/{last.isoformat()}"

    def __str__(self) -> str:
        return self.text

    @property
    def start(self) -> int:
        """Its first second, in seconds since 1970."""
        return _seconds(self.first)

    @property
    def end(self) -> int:
        """The first second after it."""
        return _seconds(self.last + _DAY)

    def overlaps(self, other: Window) -> bool:
        """Whether they share a day. Windows that share none are disjoint."""
        return self.first <= other.last and other.first <= self.last


def window_in(text: str | None) -> Window | None:
    """The window that a plan names, None for one that reads everything."""
    return None if text is None else Window.parse(text)


def _seconds(day: date) -> int:
    return (day.toordinal() - date(1970, 1, 1).toordinal()) * 86_400


def _year(year: int) -> tuple[date, date]:
    return date(year, 1, 1), date(year, 12, 31)


def _month(year: int, month: int) -> tuple[date, date]:
    first = date(year, month, 1)
    following = date(year + month // 12, month % 12 + 1, 1)
    return first, following - _DAY


def _week(year: int, week: int) -> tuple[date, date]:
    return date.fromisocalendar(year, week, 1), date.fromisocalendar(year, week, 7)


def _day(year: int, month: int, day: int) -> tuple[date, date]:
    return date(year, month, day), date(year, month, day)


def _range(*numbers: int) -> tuple[date, date]:
    return date(*numbers[:3]), date(*numbers[3:])


_KINDS: tuple[tuple[re.Pattern[str], Callable[..., tuple[date, date]]], ...] = tuple(
    (re.compile(pattern, re.ASCII), days)
    for pattern, days in (
        (r"(\d{4})", _year),
        (r"(\d{4})-(\d{2})", _month),
        (r"(\d{4})-W(\d{2})", _week),
        (r"(\d{4})-(\d{2})-(\d{2})", _day),
        (r"(\d{4})-(\d{2})-(\d{2})/(\d{4})-(\d{2})-(\d{2})", _range),
    )
)
