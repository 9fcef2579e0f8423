"""A run's folder on disk: all of it or none of it."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile, NotWritten
from fedhist.protocol.plan import Plan
from fedhist.server.releases.contract import Release
from fedhist.server.report import why_not_private

NOT_PRIVATE_FILE = "NOT-PRIVATE.txt"
# For result.json and plan.json, and for the rows of an open domain, whose number nobody knows beforehand.
_ROOM_FOR_DOCUMENTS = 2**18
# Separators and numbers with all their digits, of the widest table.
_ROW_BYTES = 208
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def default_folder(now: datetime) -> Path:
    """A new name in the current folder: fedhist-run-20260131-235959, or that and a number if it is taken."""
    return first_free(lambda number: Path(f"fedhist-run-{now:%Y%m%d-%H%M%S}{number}"))


def first_free(named: Callable[[str], Path]) -> Path:
    """The first of named(""), named("-2"), named("-3") and so on where nothing lies."""
    numbers = chain([""], (f"-{number}" for number in count(2)))
    return next(path for path in map(named, numbers) if not (path.exists() or path.is_symlink()))


def check_target(target: Path | None) -> None:
    """Refuse a folder that exists or can't be made, before anything is spent. None stands for no folder."""
    if target is None:
        return
    advice = "name another one with --out"
    try:
        target.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InvalidFile(
            f"can't make the folder {target} ({error.strerror})", allowed="a new folder", advice=advice
        ) from None
    else:
        raise InvalidFile(
            f"{target} exists already", allowed="a new folder", advice=advice, code="exists-already"
        )
    parent = target.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidFile(
            f"can't write into {parent}",
            allowed="a new folder in an existing, writable one",
            advice=advice,
        )


def check_room(target: Path, plan: Plan, labels: Sequence[str | int] | None) -> None:
    """Refuse a disk that has no room for the result, before anything is spent on it.

    The room is allocated in a file without a name and given back at once, so a disk that others fill in the meantime
    still fails late. Where the file system can't allocate, nothing is refused.
    """
    rows = len(labels) if labels is not None else plan.items or 0
    names = sum(len(str(label)) for label in labels or ())
    needed = _ROOM_FOR_DOCUMENTS + rows * _ROW_BYTES + names
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:
        return
    made = False
    try:
        with tempfile.TemporaryFile(dir=target.absolute().parent) as probe:
            made = True
            allocate(probe.fileno(), 0, needed)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise InvalidFile(
                f"there is no room for the folder {target} ({error.strerror}; it may need {needed:,} bytes)",
                allowed="a new folder on a disk with room",
                advice="nothing was spent on it; make room, or choose another folder",
                code="no-room",
            ) from None
        if not made:
            raise InvalidFile(
                f"can't write into {target.absolute().parent} ({error.strerror})",
                allowed="a new folder in an existing, writable one",
                advice="nothing was spent on it; choose another folder",
            ) from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside the target, which it becomes when the block ends well; else it vanishes.

    What the disk refuses inside the block is NotWritten.
    """
    check_target(target)
    try:
        with _partial_folder(target) as partial:
            yield partial
    except OSError as error:
        raise NotWritten(
            f"the result folder {target} can't be written ({error.strerror}): nothing of it was released, and "
            "what the run has charged stays charged"
        ) from error


@contextmanager
def _partial_folder(target: Path) -> Iterator[Path]:
    parent = target.absolute().parent
    partial = Path(tempfile.mkdtemp(prefix=".fedhist-", suffix=".partial", dir=parent))
    try:
        partial.chmod(0o755)
        yield partial
        _sync(partial)
        with undisturbed():
            check_target(target)
            partial.rename(target)
            _sync(parent)
    except BaseException:
        with undisturbed():
            shutil.rmtree(partial, ignore_errors=True)
        raise


_held_off: list[int] = []


@contextmanager
def undisturbed() -> Iterator[None]:
    """No Ctrl-C in here: for the short steps that leave a mess when a second one stops them halfway."""
    if threading.current_thread() is not threading.main_thread():
        # Signals reach the main thread only, and only there can they be held off.
        yield
        return
    before = {number: signal.signal(number, _hold_off) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hold_off(number: int, frame: object) -> None:
    _held_off.append(number)


def forget_interrupts() -> None:
    """From now on, `raise_interrupts` knows of later ones only."""
    _held_off.clear()


def raise_interrupts() -> None:
    """Let a Ctrl-C that came where it was held off have its effect now: for who goes on to something else."""
    held = _held_off.copy()
    _held_off.clear()
    for number in held[:1]:
        signal.raise_signal(number)


def write_results(
    folder: Path, document: dict[str, Any], release: Release, labels: Sequence[str | int] | None
) -> None:
    """result.json, histogram.csv (every item's value, estimate and lower limit) and plan.json.

    Floats are written so that they read back as they were. Names in histogram.csv are as their owners wrote them,
    quoted where CSV needs it and changed nowhere: programs look them up. `name_notes` says what a spreadsheet or a
    terminal would make of them. A release that is not private says
    so in a file of its own too, because histogram.csv has no place for it.
    """
    write_text(folder / "result.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
    write_text(folder / "plan.json", json.dumps(release.plan.to_json(), indent=2, allow_nan=False) + "\n")
    reasons = why_not_private(release)
    if reasons:
        text = "\n".join([*reasons, "For simulation only; do not publish."])
        write_text(folder / NOT_PRIVATE_FILE, f"{text}\n")
    columns = release.columns(labels)
    with (folder / "histogram.csv").open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """A text file, on disk when this returns."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
