"""The size of a packed file once it is unpacked, checked before memory is given out for it.

A file of a few kilobytes can hold gigabytes of zeros, and a header can claim any size. So the sizes that a file
declares are added up and compared with a limit before anything is unpacked.
"""

from __future__ import annotations

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from fedhist.client.files.parquet_sizes import LARGEST_PAGE, unpacked_sizes
from fedhist.client.files.spool import NamelessFile, free_space, temporary_folder
from fedhist.protocol.errors import DecodeError, InvalidFile, InvalidInput

MAX_UNPACKED_BYTES = 1 << 32
"""The default limit on what a packed data file may unpack to."""

PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
"""How gzip, zstd and zlib begin: polars unpacks such text unasked, whatever it is called, and without a limit."""

LIMIT_VARIABLE = "FEDHIST_MAX_UNPACKED_BYTES"
_CHUNK = 1 << 20
_LEFT_FREE = 1 << 30
_FREE_ROWS = 1 << 20
_ROWS_AN_ENTRY = 64


def unpacked_limit() -> int:
    """The limit in bytes: from the environment, else the default."""
    text = os.environ.get(LIMIT_VARIABLE, str(MAX_UNPACKED_BYTES))
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise InvalidInput(
            f"{LIMIT_VARIABLE} is no number of bytes",
            allowed="a whole number, 1 or more",
            code="bad-unpacked-limit",
        )
    return int(text)


@contextmanager
def unpacked_text(path: Path) -> Iterator[Path]:
    """Where the text of a file lies: the file itself, or one without a name that has what was packed in it."""
    if not path.name.lower().endswith(".gz"):
        yield path.resolve()
        return
    with closing(NamelessFile()) as unpacked:
        with opened_text(path) as packed:
            _copy(path, packed, unpacked)
        yield unpacked.path


@contextmanager
def opened_text(path: Path) -> Iterator[BinaryIO]:
    """A text file, open for reading, unpacked on the way."""
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            yield file  # type: ignore[misc] # both read bytes
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InvalidFile(
            f"{path} is damaged or does not follow its format",
            allowed="a complete .gz file",
            code="damaged-file",
        ) from None


def _copy(path: Path, packed: BinaryIO, unpacked: NamelessFile) -> None:
    """Refuses what is packed twice, and what would leave the disk without room for anything else."""
    limit = unpacked_limit() if LIMIT_VARIABLE in os.environ else math.inf
    free = free_space()
    room = free - min(free // 8, _LEFT_FREE)
    length = 0
    while chunk := packed.read(_CHUNK):
        if length == 0 and chunk.startswith(PACKED):
            raise InvalidFile(
                f"{path} is packed twice",
                allowed="text that is packed once",
                advice="unpack it",
                code="packed-twice",
            )
        if length + len(chunk) > limit:
            raise _too_large(path, int(limit))
        if length + len(chunk) > room:
            raise InvalidFile(
                f"{path} is too large once it is unpacked for the temporary folder {temporary_folder()}",
                allowed=f"up to {room:,} bytes",
                advice="make room there, or name another folder in TMPDIR",
                code="temporary-folder-too-small",
            )
        unpacked.write(np.frombuffer(chunk, dtype=np.uint8), length)
        length += len(chunk)


def check_archive(path: Path) -> None:
    """Refuse a .npz whose arrays are larger than the limit, or than the archive has room for.

    Raises what `zipfile` and numpy raise when the archive is damaged.
    """
    limit = unpacked_limit()
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > limit:
            raise _too_large(path, limit)
        for member in members:
            with archive.open(member) as file:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, kind = read(file)
                # numpy gives out memory for the shape before it reads the first value.
                if math.prod(shape) * kind.itemsize > member.file_size:
                    raise ValueError("an array that claims more values than it has")


def check_shape(path: Path, shape: tuple[int, ...], *, entries: int | None) -> None:
    """Refuse a matrix whose shape claims more than the file holds: sums take memory for the whole shape.

    Args:
        path: the file, for the error.
        shape: what it claims.
        entries: the number of its entries; None when every row has its place in the file.
    """
    limit, rows = unpacked_limit(), shape[0]
    if 8 * max(shape) > limit or (entries is not None and rows > _FREE_ROWS + _ROWS_AN_ENTRY * entries):
        raise InvalidFile(
            f"{path} claims a matrix of {' by '.join(f'{side:,}' for side in shape)} that is not in it",
            allowed=f"sides of up to {limit // 8:,}, and no more than {_ROWS_AN_ENTRY} rows for each entry",
            advice="save it as a csr_array",
            code="false-shape",
        )


def check_parquet(path: Path, columns: frozenset[str]) -> None:
    """Refuse a Parquet file with a row group of which these columns (in lower case) are larger than the limit.

    A row group is unpacked in one piece, and there may be any number of them.
    """
    limit = unpacked_limit()
    try:
        with path.open("rb") as file:
            size = max(unpacked_sizes(file, columns), default=0)
    except DecodeError:
        raise InvalidFile(
            f"{path} is damaged, does not follow its format or has pages above {LARGEST_PAGE >> 20} MiB",
            allowed="a complete Parquet file",
            advice="write it again",
            code="damaged-file",
        ) from None
    if size > limit:
        raise _too_large(path, limit)


def _too_large(path: Path, limit: int) -> InvalidFile:
    return InvalidFile(
        f"{path} is too large once it is unpacked",
        allowed=f"up to {limit:,} bytes",
        advice=f"if the file is meant to be that large, set the environment variable {LIMIT_VARIABLE}",
        code="too-large-unpacked",
    )
