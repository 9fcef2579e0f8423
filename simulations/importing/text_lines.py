"""Reads a text file, plain or gzip, as numbered lines, some megabytes at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Literal

import polars as pl

from fedhist.protocol.errors import InvalidFile

Encoding = Literal["utf-8", "latin-1"]

CHUNK_BYTES = 1 << 26
_GZIP = b"\x1f\x8b"
_ARCHIVE = b"PK\x03\x04"
_NOT_TEXT = (b"PAR1", b"\x93NUMPY")
_MARK = b"\xef\xbb\xbf"
_LOOK_BYTES = 4096


@dataclass(frozen=True, eq=False)
class Lines:
    """Consecutive lines of a file.

    Args:
        text: the lines without their line ends; null for a line that is not in the file's encoding.
        first: the number of the first of these lines; a file begins with line 1.
    """

    text: pl.Series
    first: int


def line_chunks(path: Path, encoding: Encoding, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Lines]:
    """The lines of a file from the first to the last, about `chunk_bytes` at a time.

    A file that begins like a gzip file is unpacked. Lines end in a line feed, with or without a carriage return.
    """
    try:
        with _opened(path) as file:
            first, rest = 1, b""
            while chunk := file.read(chunk_bytes):
                whole, ended, rest_of_chunk = chunk.rpartition(b"\n")
                if not ended:
                    rest += chunk
                    continue
                lines = _decoded(rest + whole, encoding, first)
                yield lines
                first, rest = first + len(lines.text), rest_of_chunk
            if rest:
                yield _decoded(rest, encoding, first)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InvalidFile(
            f"{path} is cut short or damaged",
            allowed="a complete gzip file",
            advice="download or compress it again",
        ) from None
    except OSError as error:
        raise InvalidFile(
            f"{path} can't be read ({error.strerror})", allowed="a file you may read", advice="check the path"
        ) from None


def _opened(path: Path) -> BufferedIOBase:
    if not path.is_file():
        problem = f"{path} is not a file" if path.exists() else f"there is no file {path}"
        raise InvalidFile(problem, allowed="a file that exists", advice="check the path")
    with path.open("rb") as raw:
        packed = raw.read(len(_GZIP)) == _GZIP
    file: BufferedIOBase = gzip.open(path) if packed else path.open("rb")  # noqa: SIM115 - the caller closes it
    try:
        _check_text(path, file.read(_LOOK_BYTES))
        # Some editors put a byte order mark before the first line.
        file.seek(0)
        if file.read(len(_MARK)) != _MARK:
            file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _check_text(path: Path, beginning: bytes) -> None:
    if not beginning:
        raise InvalidFile(f"{path} is empty", allowed="a file with records", advice="download it again")
    if beginning.startswith(_ARCHIVE):
        raise InvalidFile(
            f"{path} is an archive of files", allowed="one of the files in it", advice="unzip it first"
        )
    if beginning.startswith(_NOT_TEXT) or b"\x00" in beginning:
        raise InvalidFile(
            f"{path} is not text", allowed="a text file, plain or gzip", advice="check which file it is"
        )


def _decoded(data: bytes, encoding: Encoding, first: int) -> Lines:
    try:
        text = pl.Series("line", [data.decode(encoding)]).str.split("\n").explode()
    except UnicodeDecodeError:
        # Some line is in another encoding, so each is decoded by itself.
        text = pl.Series(
            "line", [_decoded_line(line, encoding) for line in data.split(b"\n")], dtype=pl.String
        )
    return Lines(text=text.str.strip_suffix("\r"), first=first)


def _decoded_line(line: bytes, encoding: Encoding) -> str | None:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        return None
