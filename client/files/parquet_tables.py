"""Tables in Parquet files: what their row groups take in memory is added up before one of them is unpacked.

A file of a few kilobytes can hold gigabytes of zeros, and a header can claim any size. So the sizes that the file
declares, of its row groups and of every page that would be read, are compared with limits first. The format's own
descriptions (parquet.thrift) are structures in Thrift's compact protocol, read here as dictionaries by field number:

    file        4 row groups      row group   1 column chunks · 3 rows      column chunk   3 metadata
    metadata    3 path · 5 values · 7 packed size · 9, 11 offsets of its first pages
    page        2 unpacked size · 3 packed size · 5, 7, 8 headers by kind of page, whose field 1 counts the values
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fedhist.client.files.columns import Columns, Where, named_columns, with_plain_types
from fedhist.client.files.memory import Memory, too_large, unpacked_limit
from fedhist.client.files.native_errors import read_by_polars
from fedhist.protocol.errors import DecodeError, InvalidFile

if TYPE_CHECKING:
    import polars as pl

LARGEST_PAGE = 1 << 28
"""Writers make pages of about a megabyte. A page is unpacked in one piece, so it has a limit of its own."""

BYTES_A_VALUE = 16
"""What a value takes in memory at least, a text of any length included: runs of equal values are packed to nothing."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_DEEPEST = 16
_LARGEST_HEADER = 1 << 20
_GROUPS_BYTES = 1 << 26
_SLICE_ROWS = 1 << 18


@dataclass(frozen=True)
class RowGroup:
    """A row group, and the bytes that the columns which are read take in memory."""

    rows: int
    size: int


def checked_groups(path: Path, columns: Columns, memory: Memory) -> list[RowGroup]:
    """The row groups of a file that can be read within the limits. One is unpacked in one piece."""
    names = frozenset(name.lower() for name in columns.names)
    try:
        with path.open("rb") as file:
            groups = list(row_groups(file, names))
    except DecodeError:
        raise InvalidFile(
            f"{path} is damaged, does not follow its format or has pages above {LARGEST_PAGE >> 20} MiB",
            allowed="a complete Parquet file",
            advice="write it again",
            code="damaged-file",
        ) from None
    largest = max((group.size for group in groups), default=0)
    if largest > unpacked_limit():
        raise too_large(path, unpacked_limit())
    if largest > memory.limit // 2:
        raise InvalidFile(
            f"a row group of {path} takes {largest:,} bytes of memory",
            allowed=f"up to {memory.limit // 2:,} bytes, half of the limit on memory",
            advice="give more --memory, or write the file again with smaller row groups",
            code="row-group-too-large",
        )
    return groups


def parquet_batches(path: Path, columns: Columns, *, memory: Memory) -> Iterator[tuple[pl.DataFrame, Where]]:
    """The columns user, item and maybe count of a Parquet file; users and items are strings or integers."""
    import polars as pl

    def read(start: int, rows: int) -> pl.DataFrame:
        table = pl.scan_parquet(path.resolve(), glob=False, hive_partitioning=False).slice(start, rows)
        names = named_columns(str(path), table.collect_schema().names(), columns)
        return table.select(pl.selectors.by_name(*names)).rename(names).collect(engine="streaming")

    start = 0
    for rows in _together(checked_groups(path, columns, memory)):
        whole = read_by_polars(path, lambda at=start, many=rows: read(at, many), advice="write it again")  # type: ignore[misc]
        whole = with_plain_types(whole, str(path), columns, InvalidFile)
        for table in whole.iter_slices(_SLICE_ROWS):
            yield table, _where(path, columns, start)
            start += table.height


def _where(path: Path, columns: Columns, first: int) -> Where:
    return lambda row, role: f"row {first + row + 1:,}, column {columns.name_of(role)!r}, of {path}"


def _together(groups: list[RowGroup]) -> Iterator[int]:
    """The numbers of rows that are read at once: of small row groups several."""
    rows = size = 0
    for group in groups:
        if rows and size + group.size > _GROUPS_BYTES:
            yield rows
            rows = size = 0
        rows, size = rows + group.rows, size + group.size
    yield rows


def row_groups(file: BinaryIO, columns: frozenset[str]) -> Iterator[RowGroup]:
    """The row groups, with what these columns (in lower case) take when they are read.

    DecodeError for a damaged file.
    """
    length = file.seek(0, 2)
    file.seek(max(length - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or size > length - _TAIL_BYTES - len(_MAGIC):
        raise DecodeError("a Parquet file without its end")
    for group in _structures(_Reader(file, length - _TAIL_BYTES - size, size).structure(), 4):
        total = 0
        for chunk in _structures(group, 1):
            metadata = chunk.get(3)
            if not isinstance(metadata, dict):
                raise DecodeError("a column without its description")
            path = metadata.get(3)
            first = path[0] if isinstance(path, list) and path else b""
            if isinstance(first, bytes) and first.decode("utf-8", "replace").lower() in columns:
                total += _chunk_size(file, metadata, length)
        yield RowGroup(_whole(group, 3), total)


def _chunk_size(file: BinaryIO, metadata: dict[int, Any], length: int) -> int:
    """The larger of what the pages of a column chunk unpack to and what their values take."""
    values, place = _whole(metadata, 5), _whole(metadata, 9)
    dictionary = metadata.get(11, 0)
    if isinstance(dictionary, int) and 0 < dictionary < place:
        place = dictionary
    end = place + _whole(metadata, 7)
    if end > length:
        raise DecodeError("a column beyond the end of the file")
    unpacked, counted = 0, 0
    while place < end and counted < max(values, 1):
        reader = _Reader(file, place, _LARGEST_HEADER)
        header = reader.structure()
        unpacked_page = _whole(header, 2)
        if unpacked_page > LARGEST_PAGE:
            raise DecodeError("a page that is too large")
        unpacked += unpacked_page
        counted += sum(_whole(header[kind], 1) for kind in (5, 8) if isinstance(header.get(kind), dict))
        place += reader.taken + _whole(header, 3)
    return max(unpacked, BYTES_A_VALUE * max(values, counted))


def _structures(structure: dict[int, Any], number: int) -> list[dict[int, Any]]:
    entries = structure.get(number, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DecodeError("a field that is no list of structures")
    return entries


def _whole(structure: dict[int, Any], number: int) -> int:
    value = structure.get(number, 0)
    if not isinstance(value, int) or value < 0:
        raise DecodeError("a field that is no size")
    return value


class _Reader:
    """Thrift's compact protocol, from a place in a file and no further than `most` bytes; else a DecodeError."""

    def __init__(self, file: BinaryIO, place: int, most: int) -> None:
        file.seek(place)
        self._file, self._most = file, most
        self._depth = 0
        self.taken = 0

    def structure(self) -> dict[int, Any]:
        """Fields by number, up to the mark of the end."""
        fields: dict[int, Any] = {}
        number = 0
        while byte := self._take(1)[0]:
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            kind = byte & 0x0F
            # A field's truth is in its kind; elsewhere it takes a byte.
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DecodeError("values that are nested too deep")
        value = self._value_of(kind)
        self._depth -= 1
        return value

    def _value_of(self, kind: int) -> Any:
        if kind in (9, 10):
            head = self._take(1)[0]
            count = head >> 4 if head >> 4 < 15 else self._varint()
            # Each entry has a byte at least, so a false count ends with the bytes.
            return [self._value(head & 0x0F) for _ in range(count)]
        if kind == 11:
            count = self._varint()
            kinds = self._take(1)[0] if count else 0
            return [(self._value(kinds >> 4), self._value(kinds & 0x0F)) for _ in range(count)]
        if kind == 12:
            return self.structure()
        if kind in (4, 5, 6):
            return self._zigzag()
        sizes = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
        if kind != 8 and kind not in sizes:
            raise DecodeError("a field of no known kind")
        return self._take(sizes.get(kind) or self._varint())

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise DecodeError("a number that does not end")

    def _take(self, count: int) -> bytes:
        self.taken += count
        if self.taken > self._most or len(taken := self._file.read(count)) != count:
            raise DecodeError("a structure that is cut short")
        return taken
