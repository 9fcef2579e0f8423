"""Which windows of time a device has answered, and whether it answers another one.

A run over a window that was answered before, or over one that shares a day with it, would be a second look at the same
rows, at a time and with a plan of the server's choice. The rounds of one run are one look.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedhist.protocol.errors import Refused
from fedhist.protocol.plan.window import Window, window_in
from fedhist.protocol.wire.envelope import Refusal


def check_not_answered(answered: Mapping[str, str], run: str, window: str | None, *, most: int) -> None:
    """Refuse a run if a day of its window would be in more runs than the device allows.

    Args:
        answered: the window of each run that was charged.
        run: the run's name.
        window: its window. A plan without one is none of this module's business.
        most: the number of runs that may read the same day.
    """
    asked = window_in(window)
    if asked is None:
        return
    others = [Window.parse(text) for name, text in answered.items() if name != run]
    shared = [other for other in others if other.overlaps(asked)]
    # The number of windows over a day grows only where one begins.
    days = {max(other.first, asked.first) for other in shared}
    if max((sum(other.first <= day <= other.last for other in shared) for day in days), default=0) >= most:
        texts = ", ".join(sorted({other.text for other in shared}))
        raise Refused(
            Refusal.ANSWERED_WINDOW,
            local=f"the window {asked} shares days with {texts}, and window-runs is {most}",
        )


def check_has_window(window: str | None, *, times: bool, memory: bool) -> None:
    """Refuse a plan with a window where there are no times, and one without where there are: it reads every window.

    Args:
        window: of the plan.
        times: whether the device names a column of times.
        memory: whether it has a file in which to remember what it answered.
    """
    if times != (window is not None):
        names = "names a time-column" if times else "names no time-column"
        raise Refused(
            Refusal.NO_WINDOW, local=f"the node {names}, and the plan's window is {window or 'none'}"
        )
    if times and not memory:
        raise Refused(Refusal.NO_MEMORY, local="without one it could not tell which windows it has answered")
