"""What real processes leave running, by their environment and not by what was noted of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_ORPHAN_SECONDS = 30


def processes_of(folder: Path) -> dict[int, str]:
    """What runs with a home, or a Flower home, in this folder: command lines by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def ends_soon(still_there: Callable[[], object]) -> bool:
    """Whether it ends within seconds: a killed process, and a child that sees it gone, end a moment later."""
    until = time.monotonic() + _ORPHAN_SECONDS
    while still_there() and time.monotonic() < until:
        time.sleep(0.1)
    return not still_there()
