"""Calls of readers in native code: they print nothing, and what they refuse is an error of ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import TypeVar

from fedhist.protocol.errors import InvalidFile

_ERRORS = 2
_one_at_a_time = RLock()
# How the system's refusal of memory, or of a thread for want of it, reads in errors of polars.
_NO_MEMORY = ("os error 12", "os error 11", "code: 12", "code: 11")

T = TypeVar("T")


def silenced(call: Callable[[], T]) -> T:
    """Its result, with nothing printed to the error stream meanwhile.

    A reader in Rust that meets a damaged file prints where it gave up, before Python gets its exception: a trace for a
    user's mistake, and maybe a piece of the file. The stream is put back by a statement of this function and not by a
    context manager: Ctrl-C at the end of a block would be raised before the block's end has run.
    """
    with _one_at_a_time:
        try:
            kept = os.dup(_ERRORS)
        except OSError:  # there is no such stream
            return call()
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        try:
            with Path(os.devnull).open("wb") as nothing:
                os.dup2(nothing.fileno(), _ERRORS)
            return call()
        finally:
            os.dup2(kept, _ERRORS)
            os.close(kept)


def read_by_polars(
    path: Path, call: Callable[[], T], *, advice: str, why: Callable[[], InvalidFile | None] | None = None
) -> T:
    """What polars reads from a file. Its errors quote the file, so they are neither passed on nor printed.

    Args:
        path: the file.
        call: reads.
        advice: what to do about damage.
        why: looks for the line that was refused.
    """
    import polars as pl

    try:
        return silenced(call)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError) as error:
        if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
            raise InvalidFile(
                f"there is not enough memory to read {path}",
                allowed="rows that fit in memory batch by batch",
                advice="free some memory, or write the file again with smaller row groups",
                code="not-enough-memory",
            ) from None
        found = None if why is None else why()
        raise found or damaged(path, advice=advice) from None


def damaged(path: Path, *, advice: str | None = None) -> InvalidFile:
    """The error for a file that is not what it should be."""
    return InvalidFile(
        f"{path} is damaged or does not follow its format",
        allowed="a complete file",
        advice=advice or "write it again",
        code="damaged-file",
    )
