"""The files that a path stands for: one file, all tables of a folder, or those that a pattern names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from fedhist.client.files.text_tables import PACKED
from fedhist.protocol.errors import InvalidFile, MissingFile
from fedhist.protocol.item_lists import UTF_16_MARKS, not_utf8

MATRIX = ".npz"
PARQUET = ".parquet"
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", PARQUET)

_GZIP = b"\x1f\x8b"
_MAGIC = {MATRIX: b"PK", PARQUET: b"PAR1", ".csv.gz": _GZIP, ".tsv.gz": _GZIP, ".jsonl.gz": _GZIP}
_NOT_TEXT = (b"PK\x03\x04", b"PAR1", b"\x93NUMPY", *PACKED)
_LOOK_BYTES = 4096


def data_files(path: Path) -> list[Path]:
    """The files of a path: itself, or the tables of a folder or pattern, in the order of their names.

    A file that is found under several names, by symbolic links, is one table, under the first of them.
    """
    try:
        if path.is_dir():
            found, where = list(_in_folder(path)), f"the folder {path}"
        elif glob.has_magic(str(path)) and not path.exists():
            names = glob.glob(str(path), recursive=True)  # noqa: PTH207 - of any path
            found, where = [Path(name) for name in names], f"the pattern {path}"
        else:
            return [path]  # refused when it is opened, if it is no file
        named = sorted(file for file in found if _suffix(file) in TABLES and not file.is_dir())
    except OSError as error:
        _refuse(error)
    tables = list({file.resolve(): file for file in reversed(named)}.values())[::-1]
    if not tables:
        raise MissingFile(
            f"{where} has no tables",
            allowed=", ".join(TABLES),
            advice="check the path and the names of the files",
            code="folder-without-tables",
        )
    return tables


def suffix_of(path: Path, separator: str | None = None) -> str:
    """What kind of file it is, by its name; a file with any other name is a text table if a separator is given."""
    suffix = _suffix(path)
    if suffix is None and separator is not None and path.is_file():
        return ".csv.gz" if path.name.lower().endswith(".gz") else ".csv"
    if suffix is None:
        check_is_file(path)
        raise InvalidFile(
            f"{path.name} has a suffix that is not known",
            allowed=", ".join((MATRIX, *TABLES)),
            advice="convert the file, or correct its name; of a text table, name the --separator",
            code="unknown-suffix",
        )
    return suffix


def check_is_file(path: Path) -> None:
    """Refuse what is no file."""
    if not path.is_file():
        allowed, advice = "a file, a folder or a pattern", "check the path"
        if path.exists():
            raise InvalidFile(f"{path} is not a file", allowed=allowed, advice=advice)
        raise MissingFile(f"there is no file {path}", allowed=allowed, advice=advice)


def check_content(path: Path, suffix: str) -> None:
    """Refuse what is not a readable file, and a file that begins like another kind than its name says."""
    try:
        check_is_file(path)
        with path.open("rb") as file:
            beginning = file.read(_LOOK_BYTES)
    except OSError as error:
        _refuse(error)
    # A file of JSON lines without a line is a table without rows.
    if not (beginning or suffix.startswith(".jsonl")):
        raise InvalidFile(
            f"{path} is empty", allowed="a file with a population", advice="write it again", code="empty-file"
        )
    magic = _MAGIC.get(suffix)
    is_text = not beginning.startswith(_NOT_TEXT) and b"\x00" not in beginning
    if beginning.startswith(magic) if magic else is_text:
        return
    if not magic and beginning[0] in UTF_16_MARKS:
        raise not_utf8(str(path), line=1, position=0, byte=beginning[0])
    raise InvalidFile(
        f"{path} does not hold what its suffix {suffix} says",
        allowed=f"a {suffix} file" + ("" if magic else " in UTF-8"),
        advice="correct the suffix or convert the file",
        code="not-what-its-suffix-says",
    )


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    # The longest match, so that .csv.gz is not taken for .gz alone.
    return max((one for one in (MATRIX, *TABLES) if name.endswith(one)), key=len, default=None)


def _in_folder(folder: Path) -> Iterator[Path]:
    """Its files and those of its sub-folders, without what is hidden and what writers call _SUCCESS or _temporary."""
    seen = set()
    for where, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        # Links may lead in circles.
        real = Path(where).resolve()
        folders[:] = [] if real in seen else sorted(name for name in folders if not _hidden(name))
        if real not in seen:
            yield from (Path(where, name) for name in names if not _hidden(name))
        seen.add(real)


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _refuse(error: OSError) -> NoReturn:
    raise InvalidFile(
        f"{error.filename} can't be opened ({error.strerror})",
        allowed="a file you may read",
        advice="check the path and its permissions",
        code="not-readable",
    ) from None
