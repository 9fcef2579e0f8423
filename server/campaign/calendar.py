"""The windows of a campaign, as people write them.

| text | windows |
|---|---|
| `2026-W40..2026-W52` | all weeks from the first to the last, and likewise days, months and years |
| `2026-W40x13` | thirteen of them, from the first one on |
| `2026-11-18` | one window of any kind, see `Window` |

Several of these, with commas between them, make one calendar. Its windows share no day, and it is in their order,
however they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import islice, pairwise

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan.window import Window

MAX_WINDOWS = 1000
_DAY = timedelta(days=1)
_NUMBERED = re.compile(r"(.+)x([0-9]{1,6})", re.ASCII)
_WRITTEN = "2026-W40..2026-W52, 2026-W40x13, or single windows such as 2026-11, with commas between them"


def windows_in(texts: str | Iterable[str]) -> tuple[Window, ...]:
    """The calendar that these texts name, in order; an InvalidPlan if windows overlap or there are none."""
    if not isinstance(texts, Iterable):
        raise InvalidPlan(f"the calendar is {texts!r}", allowed=_WRITTEN, code="not-a-calendar")
    listed = [texts] if isinstance(texts, str) else list(texts)
    parts = [part.strip() for text in listed for part in str(text).split(",") if part.strip()]
    found = sorted(
        (window for part in parts for window in _windows(part)),
        key=lambda window: (window.first, window.last),
    )
    if not found:
        raise InvalidPlan("a campaign without windows", allowed=_WRITTEN, code="no-windows")
    if len(found) > MAX_WINDOWS:
        raise _too_many()
    for earlier, later in pairwise(found):
        if earlier.overlaps(later):
            both = f"{earlier} twice" if earlier == later else f"{earlier} and {later}, which share a day"
            raise InvalidPlan(
                f"the calendar has {both}",
                allowed="windows that share no day: what one user adds is counted once in each",
                code="windows-overlap",
            )
    return tuple(found)


def _windows(text: str) -> list[Window]:
    start, dots, stop = text.partition("..")
    if dots:
        return list(_up_to(Window.parse(start.strip()), Window.parse(stop.strip()), text))
    numbered = _NUMBERED.fullmatch(text)
    if numbered is None:
        return [Window.parse(text)]
    number = int(numbered[2])
    if number < 1:
        raise InvalidPlan(
            f"the calendar has {text}, which is no window",
            allowed="a number of at least 1",
            code="not-a-window",
        )
    if number > MAX_WINDOWS:
        raise _too_many()
    return list(islice(_from(Window.parse(numbered[1].strip())), number))


def _up_to(first: Window, last: Window, text: str) -> Iterator[Window]:
    if last.first < first.first:
        raise InvalidPlan(
            f"the calendar {text} ends before it begins",
            allowed="a first window, two dots, and a later one",
            code="window-ends-first",
        )
    for number, window in enumerate(_from(first)):
        if number >= MAX_WINDOWS:
            raise _too_many()
        if window.first > last.first or (window.first == last.first and window != last):
            raise InvalidPlan(
                f"the calendar {text} has two kinds of windows: {first} and those after it never come to {last}",
                allowed="two weeks, two days, two months or two years",
                code="two-kinds-of-windows",
            )
        yield window
        if window == last:
            return


def _from(window: Window) -> Iterator[Window]:
    """The window and those that follow it, of the same kind."""
    while True:
        yield window
        window = _next(window)


def _next(window: Window) -> Window:
    first, last = window.first, window.last
    start = last + _DAY
    if len(window.text) == len("2026") and first.month == 1:
        return Window(start, date(start.year, 12, 31))
    if len(window.text) == len("2026-11"):
        return Window.parse(f"{start.year:04}-{start.month:02}")
    return Window(start, start + (last - first))


def _too_many() -> InvalidPlan:
    return InvalidPlan(
        "the calendar has too many windows", allowed=f"at most {MAX_WINDOWS:,}", code="too-many-windows"
    )
