"""Tables in text files and in JSON lines, a block of whole records at a time.

What is packed is unpacked on the way. A record has a limit, so that a block has one: a file of one endless line is
refused, and so is one whose quotes never close. Where a row or a mistake stands is looked for when there is an error:
in the block, whose first line is then counted from the start of the file. Lines and kinds of mistakes are named, never
what somebody wrote.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fedhist.client.files.columns import Columns, Where, placed_columns
from fedhist.client.files.memory import LIMIT_VARIABLE, Memory, too_large, unpacked_limit
from fedhist.client.files.native_errors import damaged, read_by_polars
from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.item_lists import not_utf8

if TYPE_CHECKING:
    import polars as pl

PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
"""How gzip, zstd and zlib begin: polars unpacks such text unasked, whatever it is called, and without a limit."""

_BLOCK_BYTES = 1 << 22
# Text is packed to about a sixth.
_GZIP_FACTOR = 6
_MARK = b"\xef\xbb\xbf"
_LONE_RETURN = re.compile("\r(?!\n)")
_TEXT_ADVICE = "write labels that hold a quote or a separator in double quotes, as UTF-8"
_JSON_ADVICE = 'write {"user": ..., "item": ..., "count": 1} in every line, as UTF-8'
_JSON_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}


@dataclass(frozen=True)
class _Block:
    """Whole records of a file, and the place of the first byte in its text."""

    path: Path
    start: int
    data: bytes = field(repr=False)

    def without(self, length: int) -> _Block:
        return _Block(self.path, self.start + length, self.data[length:])

    def first_line(self) -> int:
        """The number of its first line, from 1."""
        with _opened(self.path) as file:
            parts = iter(partial(file.read, _BLOCK_BYTES), b"")
            read, lines = 0, 1
            for part in parts:
                lines += part.count(b"\n", 0, max(self.start - read, 0))
                read += len(part)
        return lines

    def not_utf8(self) -> InvalidFile | None:
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            line = self.first_line() + self.data.count(b"\n", 0, error.start)
            place, byte = self.start + error.start, self.data[error.start]
            return not_utf8(str(self.path), line=line, position=place, byte=byte)
        return None


@dataclass(frozen=True)
class _Layout:
    """Of a text table: how many columns its first line has, and what is between them."""

    columns: Columns
    separator: str
    width: int


def expected_rows(path: Path) -> int:
    """About how many rows a text has, from the length of its first lines."""
    size = path.stat().st_size
    if path.name.lower().endswith(".gz"):
        return _GZIP_FACTOR * size // 16
    with path.open("rb") as file:
        sample = file.read(_BLOCK_BYTES)
    return size * max(sample.count(b"\n"), 1) // max(len(sample), 1)


def text_batches(
    path: Path, columns: Columns, *, separator: str, tell: bool, memory: Memory
) -> Iterator[tuple[pl.DataFrame, Where]]:
    """The columns user, item and maybe count of a text file; all are text.

    Types are never guessed: a guess from the first rows would turn 007 into 7 in one file and not in another.
    """
    import polars as pl

    def read(text: bytes, names: dict[int, str]) -> pl.DataFrame:
        rows = pl.scan_csv(text, separator=separator, infer_schema=False)
        if b'"' in text:
            # A quote out of place is seen where its column is parsed, and may hide line ends.
            rows = rows.collect(engine="streaming").lazy()
        wanted = rows.select(pl.col(str(place)).alias(role) for place, role in names.items())
        return wanted.collect(engine="streaming")

    names: dict[int, str] = {}
    layout = _Layout(columns, separator, 0)
    for whole in _blocks(path, memory, quotes=True):
        block = whole
        if not names:
            found, length = _first_record(whole, layout, tell=tell)
            layout = _Layout(columns, separator, len(found))
            names = placed_columns(str(path), found, columns)
            # Without a line of names the first record is a row, without the mark before it.
            block = whole.without(whole.data.startswith(_MARK) * len(_MARK) if columns.numbered else length)
        # Columns are called by their numbers: two may have one name, and names may hold quotes.
        head = separator.join(map(str, range(layout.width))).encode() + b"\n"
        why = partial(_refused_record, block, layout) if tell else None
        table = read_by_polars(path, partial(read, head + block.data, names), advice=_TEXT_ADVICE, why=why)
        yield table, partial(_place_of_record, block, layout)


def json_batches(
    path: Path, columns: Columns, *, tell: bool, memory: Memory
) -> Iterator[tuple[pl.DataFrame, Where]]:
    """The keys user, item and maybe count of a file with a JSON object a line; numbers become text as written.

    A line without a count is one observation. A count that is no number does not spoil the file: it is text here.
    """
    import polars as pl

    names = {name: role for role, name in columns.roles.items()}

    def read(text: bytes) -> pl.DataFrame:
        rows = pl.scan_ndjson(text, schema=dict.fromkeys(names, pl.String)).rename(names)
        return rows.with_columns(pl.col("count").fill_null("1")).collect(engine="streaming")

    for block in _blocks(path, memory, quotes=False):
        why = partial(_refused_line, block) if tell else None
        table = read_by_polars(path, partial(read, block.data), advice=_JSON_ADVICE, why=why)
        yield table, partial(_place_of_line, block, columns)


def _blocks(path: Path, memory: Memory, *, quotes: bool) -> Iterator[_Block]:
    """A text file in blocks of whole records, which may go on over several lines within quotes if these count."""
    packed = path.name.lower().endswith(".gz")
    limit = unpacked_limit() if packed and LIMIT_VARIABLE in os.environ else math.inf
    start, rest = 0, b""
    with _opened(path) as file:
        while (chunk := file.read(min(_BLOCK_BYTES, memory.longest_record))) or rest:
            data = rest + chunk
            if packed and start == 0 and data.startswith(PACKED):
                raise InvalidFile(
                    f"{path} is packed twice",
                    allowed="text that is packed once",
                    advice="unpack it",
                    code="packed-twice",
                )
            if start + len(data) > limit:
                raise too_large(path, int(limit))
            end = _end_of_records(data, quotes=quotes) if chunk else len(data)
            if end:
                yield _Block(path, start, data[:end])
            start, rest = start + end, data[end:]
            if len(rest) > memory.longest_record:
                raise InvalidFile(
                    f"{path} has a line, or a field in quotes, of more than {memory.longest_record:,} bytes",
                    allowed="shorter lines, and a quote at the end of every field that begins with one",
                    advice="write it again, or give more --memory",
                    code="line-too-long",
                )


def _end_of_records(data: bytes, *, quotes: bool) -> int:
    """Behind the last line end, and the last one outside of quotes if these count."""
    end = data.rfind(b"\n") + 1
    odd = quotes and data.count(b'"', 0, end) % 2
    while odd:
        start = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
        odd = (odd + data.count(b'"', start, end)) % 2
        end = start
    return end


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            yield file  # type: ignore[misc] # both read bytes
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise damaged(path) from None


def _first_record(block: _Block, layout: _Layout, *, tell: bool) -> tuple[list[str], int]:
    """Its fields, and the bytes that it takes."""
    lines = io.BytesIO(block.data)
    texts = (line.decode("utf-8-sig") for line in lines)
    try:
        return next(csv.reader(texts, delimiter=layout.separator, strict=True)) or [""], lines.tell()
    except (UnicodeDecodeError, csv.Error):
        found = _refused_record(block, layout) if tell else None
        raise found or damaged(block.path, advice=_TEXT_ADVICE) from None


def records(text: str, separator: str) -> Iterator[tuple[int, int, str | None]]:
    """Of each record the line in which it begins, from 0, the number of its fields, and what is wrong with quotes."""
    lines = text.split("\n")
    # A return that ends no line is data to polars, and an error to this reader.
    reader = csv.reader(
        io.StringIO(_LONE_RETURN.sub(" ", text), newline="\n"), delimiter=separator, strict=True
    )
    longest = csv.field_size_limit(sys.maxsize)
    begin = 0
    try:
        for row in reader:
            odd = sum(line.count('"') for line in lines[begin : reader.line_num]) % 2
            yield begin, len(row) or 1, "a quote stands inside of a field without quotes" if odd else None
            begin = reader.line_num
    except csv.Error as error:
        never = "end of data" in str(error)
        yield begin, 1, f"a quote opens, and {'is never closed' if never else 'text follows where it closes'}"
    finally:
        csv.field_size_limit(longest)


def _refused_record(block: _Block, layout: _Layout) -> InvalidFile | None:
    """Why a reader refused a block: the first line that is not UTF-8, has open quotes or too many fields."""
    wrong = block.not_utf8()
    if wrong is not None:
        return wrong
    for line, fields, problem in records(block.data.decode(), layout.separator):
        name = f"line {block.first_line() + line:,} of {block.path}"
        if problem is not None:
            return InvalidFile(
                f"in the record that begins in {name}, {problem}",
                allowed="fields in double quotes if they hold a quote, a separator or a line end",
                advice="write a quote inside of such a field twice",
                code="bad-quotes",
            )
        if fields > layout.width > 0:
            return InvalidFile(
                f"{name} has {_fields(fields)}, and the first line has {layout.width}",
                allowed="as many fields in every line as the first line has",
                advice="write fields that hold the separator in double quotes, or give another --separator",
                code="too-many-fields",
            )
    return None


def _refused_line(block: _Block) -> InvalidFile | None:
    """Why a reader refused JSON lines: the first line that is not UTF-8, or not a JSON object."""
    wrong = block.not_utf8()
    if wrong is not None:
        return wrong
    for number, line in enumerate(block.data.split(b"\n")):
        kind = _not_an_object(line, first=block.start + number == 0)
        if kind is not None:
            return InvalidFile(
                f"line {block.first_line() + number:,} of {block.path} {kind}",
                allowed="a JSON object in every line",
                advice=_JSON_ADVICE,
                code="not-a-json-object",
            )
    return None


def _not_an_object(line: bytes, *, first: bool) -> str | None:
    """What a line is that should be a JSON object; None if it is one, or blank."""
    if not line.strip():
        return None
    if first and line.startswith(_MARK):
        return "begins with a byte order mark"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "is not JSON"
    if isinstance(value, dict):
        return None
    return f"is no JSON object but a {_JSON_KINDS.get(type(value), 'value')}"


def _place_of_record(block: _Block, layout: _Layout, row: int, role: str) -> str:
    """The words for the value of a role in a row of the block."""
    rows, width = enumerate(records(block.data.decode(), layout.separator)), layout.width
    line, fields = next(((line, fields) for number, (line, fields, _) in rows if number == row), (0, width))
    name = f"line {block.first_line() + line:,}, column {layout.columns.name_of(role)!r}, of {block.path}"
    return name if fields == width else f"{name} (it has {_fields(fields)}, the first line {width})"


def _place_of_line(block: _Block, columns: Columns, row: int, role: str) -> str:
    """The same where every line that is not blank is a row."""
    rows = [number for number, line in enumerate(block.data.split(b"\n")) if line.strip()]
    return f"line {block.first_line() + rows[row]:,}, key {columns.name_of(role)!r}, of {block.path}"


def _fields(number: int) -> str:
    return f"{number} field{'s' * (number != 1)}"
