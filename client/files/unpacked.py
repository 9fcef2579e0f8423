"""The size of a packed file once it is unpacked, checked before memory is given out for it.

A file of a few kilobytes can hold gigabytes of zeros, and a header can claim any size. So the sizes that a file
declares are added up and compared with a limit before anything is unpacked.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
import zlib
from pathlib import Path

from numpy.lib import format as npy

from fedhist.client.files.parquet_sizes import LARGEST_PAGE, unpacked_size
from fedhist.protocol.errors import DecodeError, InvalidFile, InvalidInput

MAX_UNPACKED_BYTES = 1 << 32
"""The default limit on what a packed data file may unpack to."""

PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
"""How gzip, zstd and zlib begin: polars unpacks such text unasked, whatever it is called, and without a limit."""

LIMIT_VARIABLE = "FEDHIST_MAX_UNPACKED_BYTES"
_CHUNK = 1 << 20
_FREE_ROWS = 1 << 20
_ROWS_AN_ENTRY = 64


def unpacked_limit() -> int:
    """The limit in bytes: from the environment, else the default."""
    text = os.environ.get(LIMIT_VARIABLE, str(MAX_UNPACKED_BYTES))
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise InvalidInput(f"{LIMIT_VARIABLE} is no number of bytes", allowed="a whole number, 1 or more")
    return int(text)


def text_source(path: Path) -> Path | bytes:
    """What polars reads a text file from: its path, or its content if it was packed and is within the limit."""
    if not path.name.lower().endswith(".gz"):
        return path.resolve()
    limit, content = unpacked_limit(), io.BytesIO()
    try:
        with gzip.open(path) as file:
            while chunk := file.read(_CHUNK):
                content.write(chunk)
                if content.tell() > limit:
                    raise _too_large(path, limit)
    except (OSError, EOFError, zlib.error):
        raise InvalidFile(
            f"{path} is damaged or does not follow its format", allowed="a complete .gz file"
        ) from None
    if content.getvalue().startswith(PACKED):
        raise InvalidFile(f"{path} is packed twice", allowed="text that is packed once", advice="unpack it")
    return content.getvalue()


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
        )


def check_parquet(path: Path, columns: frozenset[str]) -> None:
    """Refuse a Parquet file of which these columns (in lower case) are larger than the limit."""
    limit = unpacked_limit()
    try:
        with path.open("rb") as file:
            size = unpacked_size(file, columns)
    except DecodeError:
        raise InvalidFile(
            f"{path} is damaged, does not follow its format or has pages above {LARGEST_PAGE >> 20} MiB",
            allowed="a complete Parquet file",
            advice="write it again",
        ) from None
    if size > limit:
        raise _too_large(path, limit)


def _too_large(path: Path, limit: int) -> InvalidFile:
    return InvalidFile(
        f"{path} is too large once it is unpacked",
        allowed=f"up to {limit:,} bytes",
        advice=f"if the file is meant to be that large, set the environment variable {LIMIT_VARIABLE}",
    )
