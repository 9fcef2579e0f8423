"""Files and folders that are on disk whole or not at all, and signals that wait meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import IO, BinaryIO

from fedhist.protocol.errors import InvalidFile, NotWritten

HIDDEN = ".fedhist-*.partial"
"""What a killed process leaves beside what it was writing."""


def first_free(named: Callable[[str], Path]) -> Path:
    """The first of named(""), named("-2"), named("-3") and so on where nothing lies."""
    numbers = chain([""], (f"-{number}" for number in count(2)))
    return next(path for path in map(named, numbers) if not os.path.lexists(path))


def check_target(target: Path | None) -> None:
    """Refuse a folder that exists or can't be made, before anything is spent. None stands for no folder."""
    if target is not None:
        _check_new(target, "folder", "name another one", force=False)


def check_new_file(path: Path, *, suffixes: Sequence[str] = (), force: bool = False) -> None:
    """Refuse a file that can't or shouldn't be written, before any work is done.

    Args:
        path: the file to make.
        suffixes: what its name may end in; none if anything.
        force: whether a plain file of that name may be replaced.
    """
    ends = " or ".join(suffixes)
    if suffixes and path.suffix.lower() not in suffixes:
        raise InvalidFile(
            f"{path} does not end in {ends}",
            allowed=f"a name that ends in {ends}",
            advice="name another file",
        )
    if path.is_dir():
        raise InvalidFile(
            f"{path} is a folder", allowed="the name of a file", advice="name another file", code="a-folder"
        )
    if path.exists() and not path.is_file():
        raise InvalidFile(
            f"{path} is a device, a pipe or a socket",
            allowed="a new file, or a plain one to replace",
            advice="name another file",
            code="not-a-plain-file",
        )
    _check_new(path, "file", "name another file, or replace this one with --force", force=force)


def _check_new(path: Path, what: str, advice: str, *, force: bool) -> None:
    try:
        there = path.lstat() is not None
    except FileNotFoundError:
        there = False
    except OSError as error:
        raise InvalidFile(
            f"can't make the {what} {path} ({error.strerror})", allowed=f"a new {what}", advice=advice
        ) from None
    if there and not force:
        raise InvalidFile(
            f"{path} exists already", allowed=f"a new {what}", advice=advice, code="exists-already"
        )
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidFile(
            f"can't write into {parent}",
            allowed=f"a new {what} in an existing, writable folder",
            advice=advice,
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside the target, which it becomes when the block ends well; else it vanishes.

    What the disk refuses inside the block is NotWritten.
    """
    check_target(target)
    try:
        with _hidden_beside(target) as hidden:
            hidden.chmod(0o755)
            yield hidden
            _sync(hidden)
            with held_off():
                check_target(target)
                hidden.rename(target)
                _sync(target.absolute().parent)
    except OSError as error:
        raise NotWritten(
            f"the folder {target} can't be written ({why_refused(error)}): nothing of it is there; what was charged "
            "stays charged"
        ) from error


@contextmanager
def new_file(path: Path, *, suffixes: Sequence[str] = (), force: bool = False) -> Iterator[BinaryIO]:
    """A file in a hidden folder beside this one, which it becomes when the block ends well; else it vanishes.

    What the disk refuses inside the block is NotWritten.
    """
    check_new_file(path, suffixes=suffixes, force=force)
    try:
        with _hidden_beside(path) as hidden:
            with (hidden / path.name).open("wb") as file:
                yield file
                flush(file)
            with held_off():
                # Asked again: another process may have made the file meanwhile.
                check_new_file(path, suffixes=suffixes, force=force)
                (hidden / path.name).replace(path)
                _sync(path.absolute().parent)
    except OSError as error:
        raise NotWritten(
            f"{path} can't be written ({why_refused(error)}): nothing of it is there; make room, or name another file"
        ) from None


@contextmanager
def _hidden_beside(target: Path) -> Iterator[Path]:
    hidden = Path(tempfile.mkdtemp(prefix=".fedhist-", suffix=".partial", dir=target.absolute().parent))
    try:
        yield hidden
    finally:
        with held_off():
            # A folder that has its name by now is not found here.
            shutil.rmtree(hidden, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """A text file, on disk when this returns."""
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
        flush(file)


def flush(file: IO[str] | IO[bytes]) -> None:
    """All that was written is on disk when this returns."""
    file.flush()
    os.fsync(file.fileno())


def why_refused(error: OSError) -> str:
    """The system's words for it; numpy has none for what a disk does not take."""
    return error.strerror or "the disk refused it"


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_held_off: list[int] = []


@contextmanager
def held_off(*, starting: bool = False) -> Iterator[None]:
    """Ctrl-C and SIGTERM wait in here: for short steps that leave a mess when they are stopped halfway.

    What came has no effect then: before a result was there it is answered by the error that is under way, and after it
    came too late. Who goes on to something else asks `raise_interrupts`.

    Args:
        starting: a process is started in here. It never sees Ctrl-C, not even while it imports: blocked signals are
            inherited and, unlike ignored ones, not lost. Another thread of this process may still take the signal, and
            Python would interrupt the main thread in the middle of a start, so the handlers wait as well. What came has
            its effect at the end.
    """
    held: list[int] = []
    # Signals reach the main thread only, and only there can handlers be changed.
    main = threading.current_thread() is threading.main_thread()
    stops = (signal.SIGINT, signal.SIGTERM) if main else ()
    handlers = {number: signal.signal(number, lambda seen, _: held.append(seen)) for number in stops}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if starting else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if starting:
            _raise(held)
        else:
            _held_off.extend(held)


def forget_interrupts() -> None:
    """From now on, `raise_interrupts` knows of later ones only."""
    _held_off.clear()


def raise_interrupts() -> None:
    """Let a Ctrl-C that came where it was held off have its effect now."""
    held = _held_off.copy()
    _held_off.clear()
    _raise(held)


def _raise(numbers: Sequence[int]) -> None:
    for number in dict.fromkeys(numbers):
        signal.raise_signal(number)


def leave_signals() -> None:
    """A worker ignores the keyboard and ends silently when its parent ends it; the parent informs the user."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
