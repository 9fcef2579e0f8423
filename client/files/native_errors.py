"""Keeps native code from printing when it gives up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock, get_ident

_ERRORS = 2
_one_at_a_time = RLock()
_kept: list[tuple[int, int]] = []
"""The threads that have silenced the stream, each with what it was before: the real one first."""


@contextmanager
def silent_native_errors() -> Iterator[None]:
    """Discard everything that is written to the error stream inside the block.

    A reader in Rust that meets a damaged file prints where it gave up, before Python gets its exception: a trace for a
    user's mistake, and maybe a piece of the file.
    """
    with _one_at_a_time:
        try:
            kept = (get_ident(), os.dup(_ERRORS))
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
            _end(kept)


@contextmanager
def aloud() -> Iterator[None]:
    """What is written to the error stream inside this block is seen, even inside of `silent_native_errors`."""
    if not _kept:
        yield
        return
    os.dup2(_kept[0][1], _ERRORS)
    try:
        yield
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
    finally:
        _silence()


def aloud_again() -> None:
    """End what this thread has silenced.

    Ctrl-C may come when a block of `silent_native_errors` is about to be left, and is raised before its end has run. So
    who waits for a reader calls this afterwards.
    """
    for kept in _kept[::-1]:
        if kept[0] == get_ident():
            _end(kept)


def _end(kept: tuple[int, int]) -> None:
    if kept in _kept:
        _kept.remove(kept)
        os.dup2(kept[1], _ERRORS)
        os.close(kept[1])


def _silence() -> None:
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), _ERRORS)
