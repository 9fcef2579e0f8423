"""A new file on disk: all of it or none of it, and never over another one unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedhist.protocol.errors import InvalidFile, NotWritten


def check_new_file(path: Path, *, suffixes: Sequence[str] = (), force: bool = False) -> None:
    """Refuse a file that can't or shouldn't be written, before any work is done.

    Args:
        path: the file to make.
        suffixes: what its name may end in; none if anything.
        force: whether a file of that name may be replaced.
    """
    ends = " or ".join(suffixes)
    if suffixes and path.suffix.lower() not in suffixes:
        raise InvalidFile(
            f"{path} does not end in {ends}",
            allowed=f"a name that ends in {ends}",
            advice="name another file",
        )
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidFile(
            f"can't write into {parent}",
            allowed="a file in an existing, writable folder",
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
    if not force and (path.exists() or path.is_symlink()):
        raise InvalidFile(
            f"{path} exists already",
            allowed="a new file",
            advice="name another file, or replace this one with --force",
            code="exists-already",
        )


def why_refused(error: OSError) -> str:
    """The system's words for it; numpy has none for what a disk does not take."""
    return error.strerror or "the disk refused it"


@contextmanager
def new_file(path: Path, *, suffixes: Sequence[str] = (), force: bool = False) -> Iterator[BinaryIO]:
    """A hidden file beside this one, which it becomes when the block ends well; else it vanishes.

    What the disk refuses inside the block is NotWritten.
    """
    check_new_file(path, suffixes=suffixes, force=force)
    try:
        with _partial_file(path) as (file, partial):
            yield file
            _give_usual_rights(file)
            # Asked again: another process may have made the file meanwhile.
            check_new_file(path, suffixes=suffixes, force=force)
            partial.replace(path)
    except OSError as error:
        raise NotWritten(
            f"{path} can't be written ({why_refused(error)}): nothing of it is there; make room, or name another file"
        ) from None


@contextmanager
def _partial_file(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    handle, name = tempfile.mkstemp(prefix=".fedhist-", suffix=".partial", dir=path.absolute().parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, partial
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _give_usual_rights(file: BinaryIO) -> None:
    """All of it on the disk, with the rights of a new file: mkstemp makes files for their owner alone."""
    file.flush()
    os.fsync(file.fileno())
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(file.fileno(), 0o666 & ~mask)
