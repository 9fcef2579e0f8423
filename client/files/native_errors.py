"""Keeps native code from printing when it gives up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

_ERRORS = 2
_one_at_a_time = RLock()
_kept: list[int] = []
"""The streams that are silent now, the real one first."""


@contextmanager
def silent_native_errors() -> Iterator[None]:
    """Discard everything that is written to the error stream inside the block.

    A reader in Rust that meets a damaged file prints where it gave up, before Python gets its exception: a trace for a
    user's mistake, and maybe a piece of the file.
    """
    with _one_at_a_time:
        try:
            kept = os.dup(_ERRORS)
        except OSError:  # there is no such stream
            yield
            return
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        try:
            _kept.append(kept)
            _silence()
            yield
        finally:
            _kept.pop()
            os.dup2(kept, _ERRORS)
            os.close(kept)


@contextmanager
def aloud() -> Iterator[None]:
    """What is written to the error stream inside this block is seen, even inside of `silent_native_errors`."""
    if not _kept:
        yield
        return
    os.dup2(_kept[0], _ERRORS)
    try:
        yield
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
    finally:
        _silence()


def _silence() -> None:
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), _ERRORS)
