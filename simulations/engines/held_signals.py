"""Ctrl-C while a process is being started: held back until both sides are ready for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """A process started in here never sees Ctrl-C, not even while it imports; this process gets it at the end.

    Blocked signals are inherited and, unlike ignored ones, not lost. Another thread of this process may still take the
    signal, and Python would interrupt the main thread in the middle of a start, so the handlers wait as well.
    """
    held: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    stops = (signal.SIGINT, signal.SIGTERM) if main else ()
    handlers = {number: signal.signal(number, lambda seen, _: held.append(seen)) for number in stops}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for seen in dict.fromkeys(held):
            signal.raise_signal(seen)
