"""One operator at a time: a lock on a campaign's folder that is gone with its process, however that ends.

It is a POSIX record lock: the system gives it back when the process dies, and processes that this one forks for their
cores do not hold it. Such a lock says nothing between threads of one process, so a table of this process does.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedhist.protocol.errors import HeldByAnother, InvalidFile

LOCK_FILE = ".lock"
_held: set[Path] = set()
_guard = threading.Lock()


@contextmanager
def only_operator(folder: Path) -> Iterator[None]:
    """Hold the campaign in this folder; HeldByAnother at once if somebody else does."""
    path = folder.resolve() / LOCK_FILE
    with _guard:
        if path in _held:
            raise _refused(folder, "another thread of this process")
        # Opened only now: closing any handle of the file would give the lock back.
        handle = _locked(path, folder)
        _held.add(path)
    try:
        yield
    finally:
        with _guard:
            os.close(handle)
            _held.discard(path)


def _locked(path: Path, folder: Path) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InvalidFile(
            f"can't write into {folder} ({error.strerror})", allowed="a campaign's folder that you may write"
        ) from None
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
        os.close(handle)
        if not isinstance(error, BlockingIOError | PermissionError):
            raise
        raise _refused(folder, f"process {holder}" if holder.isdigit() else "another process") from None
    return handle


def _refused(folder: Path, who: str) -> HeldByAnother:
    return HeldByAnother(
        f"{who} is running the campaign in {folder}: nothing was read, charged or written here. Try again when it has "
        "ended"
    )
