"""Where a row of a table stands in its text file, and which line a reader could not read.

Only for errors: a file is read again from its start, line by line. Lines and kinds of mistakes are named, never what
somebody wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from fedhist.client.files.columns import Columns
from fedhist.client.files.unpacked import opened_text
from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.labels.encodings import not_utf8

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Possessive: a quote that is never closed would else be tried at every place up to the end of the file.
_QUOTED = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"')
_QUOTE = b'"'


@dataclass(frozen=True)
class Record:
    """A line of a table; a field in quotes may go on over several lines.

    Args:
        line: the line in which it begins, from 1.
        fields: the number of its fields.
        problem: what is wrong with its quotes, with the line; None if nothing is.
    """

    line: int
    fields: int
    problem: str | None = None


def records(file: BinaryIO, separator: bytes) -> Iterator[Record]:
    """The records of a text file: its header, then its rows. A blank line is one too."""
    lines = enumerate(file, 1)
    for number, first in lines:
        text = first.removeprefix(_BYTE_ORDER_MARK) if number == 1 else first
        if _QUOTE not in text:
            yield Record(number, text.count(separator) + 1)
            continue
        parsed = _parsed(text, number, separator)
        pieces = [text]
        while parsed is None:
            _, more = next(lines, (0, b""))
            pieces.append(more)
            # Within quotes a quote is written twice, so an even number of them closes nothing.
            if not more or more.count(_QUOTE) % 2:
                parsed = _parsed(b"".join(pieces), number, separator, at_end=not more)
        yield parsed


def _parsed(text: bytes, line: int, separator: bytes, *, at_end: bool = False) -> Record | None:
    """The record of a text that may have quotes; None if a quote is still open, unless the file ends there."""
    place, fields = 0, 0
    while True:
        fields += 1
        here = line + text.count(b"\n", 0, place)
        if text[place : place + 1] == _QUOTE:
            field = _QUOTED.match(text, place)
            if field is None:
                problem = f"a quote opens in line {here:,}, field {fields}, and is never closed"
                return Record(line, fields, problem) if at_end else None
            place = field.end()
            if text[place : place + 1] not in (separator, b"\r", b"\n", b""):
                closed = line + text.count(b"\n", 0, place)
                opened = f"a quote opens in line {here:,}, field {fields}"
                return Record(line, fields, f"{opened}, and text follows where it closes in line {closed:,}")
        else:
            end = text.find(separator, place)
            field_text = text[place:] if end < 0 else text[place:end]
            place = len(text) if end < 0 else end
            if field_text.count(_QUOTE) % 2:
                problem = f"in line {here:,}, field {fields}, a quote stands inside of a field without quotes"
                return Record(line, fields, problem)
        if text[place : place + 1] != separator:
            return Record(line, fields)
        place += 1


def refused_table(path: Path, separator: str) -> InvalidFile | None:
    """Why a reader refused a text file: the first line that is not UTF-8, has open quotes or too many fields.

    Without a line of names, the first line says how many fields there are.
    """
    wrong = _first_not_utf8(path)
    if wrong is not None:
        return wrong
    with opened_text(path) as file:
        first = None
        for record in records(file, separator.encode()):
            first = first or record
            if record.problem is not None:
                return InvalidFile(
                    f"{path}: {record.problem}",
                    allowed="fields in double quotes if they hold a quote, a separator or a line end",
                    advice="write a quote inside of such a field twice",
                    code="bad-quotes",
                )
            if record.fields > first.fields:
                return InvalidFile(
                    f"line {record.line:,} of {path} has {_fields(record)}, and the first line has {first.fields}",
                    allowed="as many fields in every line as the first line has",
                    advice="write fields that hold the separator in double quotes, or give another --separator",
                    code="too-many-fields",
                )
    return None


def refused_json(path: Path) -> InvalidFile | None:
    """Why a reader refused a file of JSON lines: the first line that is not UTF-8, or not a JSON object."""
    wrong = _first_not_utf8(path)
    if wrong is not None:
        return wrong
    with opened_text(path) as file:
        for number, line in enumerate(file, 1):
            kind = _not_an_object(line, first=number == 1)
            if kind is not None:
                return InvalidFile(
                    f"line {number:,} of {path} {kind}",
                    allowed="a JSON object in every line",
                    advice='write {"user": ..., "item": ..., "count": 1} in every line, as UTF-8',
                    code="not-a-json-object",
                )
    return None


@dataclass(frozen=True)
class TextPlaces:
    """Names a row of a text file by its line."""

    path: Path
    columns: Columns
    separator: str

    def __call__(self, index: int, role: str) -> str:
        """The words for the value of a role in the row with this index, from 0."""
        with opened_text(self.path) as file:
            every = records(file, self.separator.encode())
            first = next(every)
            rows = chain([first], every) if self.columns.numbered else every
            row = next((record for number, record in enumerate(rows) if number == index), first)
        name = f"line {row.line:,}, column {self.columns.name_of(role)!r}, of {self.path}"
        return (
            name
            if row.fields == first.fields
            else f"{name} (it has {_fields(row)}, the first line {first.fields})"
        )


@dataclass(frozen=True)
class JsonPlaces:
    """Names a row of a file with JSON lines by its line; blank lines are no rows."""

    path: Path
    columns: Columns

    def __call__(self, index: int, role: str) -> str:
        """The words for the value of a role in the row with this index, from 0."""
        with opened_text(self.path) as file:
            rows = (number for number, line in enumerate(file, 1) if line.strip())
            line = next((number for place, number in enumerate(rows) if place == index), 0)
        return f"line {line:,}, key {self.columns.name_of(role)!r}, of {self.path}"


def _first_not_utf8(path: Path) -> InvalidFile | None:
    position = 0
    with opened_text(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return not_utf8(
                    str(path), line=number, position=position + error.start, byte=line[error.start]
                )
            position += len(line)
    return None


def _not_an_object(line: bytes, *, first: bool) -> str | None:
    """What a line is that should be a JSON object; None if it is one, or blank."""
    if not line.strip():
        return None
    if first and line.startswith(_BYTE_ORDER_MARK):
        return "begins with a byte order mark"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "is not JSON"
    return (
        None
        if isinstance(value, dict)
        else f"is no JSON object but a {_JSON_KINDS.get(type(value), 'value')}"
    )


_JSON_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}


def _fields(record: Record) -> str:
    return f"{record.fields} field{'s' * (record.fields != 1)}"
