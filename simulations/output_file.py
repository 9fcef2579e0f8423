"""One new file on disk: all of it or none of it, and never over another one unless asked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fedhist.protocol.errors import InvalidFile


def check_new_file(path: Path, *, force: bool = False) -> None:
    """Refuse a file that exists, unless forced, or that can't be made."""
    if path.is_dir():
        raise InvalidFile(
            f"{path} is a folder", allowed="the name of a new file", advice="name another with --out"
        )
    if not force and (path.exists() or path.is_symlink()):
        raise InvalidFile(
            f"{path} exists already", allowed="a new file", advice="name another with --out, or add --force"
        )
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidFile(f"can't write into {parent}", allowed="a file in an existing, writable folder")


def write_new_file(path: Path, content: bytes, *, force: bool = False) -> None:
    """Write a file beside the target and rename it when it is whole."""
    check_new_file(path, force=force)
    handle, name = tempfile.mkstemp(prefix=".fedhist-", suffix=".partial", dir=path.absolute().parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        partial.chmod(0o644)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
