"""A new file on disk: all of it or none of it, and never over another one unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedhist.protocol.errors import InvalidFile


def check_new_file(path: Path, *, suffixes: Sequence[str], force: bool) -> None:
    """Refuse a file that can't or shouldn't be written, before any work is done.

    Args:
        path: the file to make.
        suffixes: what its name may end in.
        force: whether a file of that name may be replaced.
    """
    ends = " or ".join(suffixes)
    if path.suffix.lower() not in suffixes:
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
        raise InvalidFile(f"{path} is a folder", allowed="the name of a file", advice="name another file")
    if not force and (path.exists() or path.is_symlink()):
        raise InvalidFile(
            f"{path} exists already",
            allowed="a new file",
            advice="name another file, or replace this one with --force",
        )


@contextmanager
def new_file(path: Path, *, suffixes: Sequence[str], force: bool) -> Iterator[BinaryIO]:
    """A hidden file beside this one, which it becomes when the block ends well; else it vanishes."""
    check_new_file(path, suffixes=suffixes, force=force)
    handle, name = tempfile.mkstemp(prefix=".fedhist-", suffix=".partial", dir=path.absolute().parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner alone; give this one the rights that a new file has.
        mask = os.umask(0)
        os.umask(mask)
        partial.chmod(0o666 & ~mask)
        # Asked again: another process may have made the file meanwhile.
        check_new_file(path, suffixes=suffixes, force=force)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
