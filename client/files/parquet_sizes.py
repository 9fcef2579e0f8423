"""The sizes that a Parquet file declares: of its footer, and of every page that would be read.

The format's own descriptions (parquet.thrift) are structures in Thrift's compact protocol. They are read here as
dictionaries by field number, and only a few fields are looked at:

    file        3 rows · 4 row groups          row group   1 column chunks         column chunk   3 metadata
    metadata    3 path · 5 values · 7 packed size · 9, 11 offsets of its first pages
    page        2 unpacked size · 3 packed size · 5, 7, 8 headers by kind of page, whose field 1 counts the values
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from fedhist.protocol.errors import DecodeError

LARGEST_PAGE = 1 << 28
"""Writers make pages of about a megabyte. A page is unpacked in one piece, so it has a limit of its own."""

BYTES_A_VALUE = 16
"""What a value takes in memory at least, a text of any length included: runs of equal values are packed to nothing."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_DEEPEST = 16
_LARGEST_HEADER = 1 << 20


def unpacked_sizes(file: BinaryIO, columns: frozenset[str]) -> Iterator[int]:
    """The bytes that these columns (in lower case) take when they are read, by row group.

    DecodeError for a damaged file.
    """
    length = file.seek(0, 2)
    footer = _footer(file, length)
    for group in _structures(footer, 4):
        total = 0
        for chunk in _structures(group, 1):
            metadata = chunk.get(3)
            if not isinstance(metadata, dict):
                raise DecodeError("a column without its description")
            path = metadata.get(3)
            first = path[0] if isinstance(path, list) and path else b""
            if isinstance(first, bytes) and first.decode("utf-8", "replace").lower() in columns:
                total += _chunk_size(file, metadata, length)
        yield total


def declared_rows(file: BinaryIO) -> int:
    """The number of rows that the file declares; DecodeError for a damaged file."""
    return _whole(_footer(file, file.seek(0, 2)), 3)


def _footer(file: BinaryIO, length: int) -> dict[int, Any]:
    if length < _TAIL_BYTES + len(_MAGIC):
        raise DecodeError("too short for a Parquet file")
    file.seek(length - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or size > length - _TAIL_BYTES - len(_MAGIC):
        raise DecodeError("a Parquet file without its end")
    return _Reader(file, length - _TAIL_BYTES - size, size).structure()


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
        for kind in (5, 8):
            if isinstance(header.get(kind), dict):
                counted += _whole(header[kind], 1)
        place += reader.taken + _whole(header, 3)
    return max(unpacked, BYTES_A_VALUE * max(values, counted))


def _structures(structure: dict[int, Any], number: int) -> Iterator[dict[int, Any]]:
    entries = structure.get(number, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DecodeError("a field that is no list of structures")
    yield from entries


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
        self._readers: dict[int, Callable[[], Any]] = {
            3: lambda: self._take(1)[0],
            4: self._zigzag,
            5: self._zigzag,
            6: self._zigzag,
            7: lambda: self._take(8),
            8: lambda: self._take(self._varint()),
            9: self._list,
            10: self._list,
            11: self._map,
            12: self.structure,
            13: lambda: self._take(16),
        }

    def structure(self) -> dict[int, Any]:
        """Fields by number, up to the mark of the end."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DecodeError("structures that are nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while byte := self._take(1)[0]:
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            kind = byte & 0x0F
            # A field's truth is in its kind; elsewhere it takes a byte.
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):
            return self._take(1)[0] == 1
        if kind not in self._readers:
            raise DecodeError("a field of no known kind")
        return self._readers[kind]()

    def _list(self) -> list[Any]:
        head = self._take(1)[0]
        count = head >> 4 if head >> 4 < 15 else self._varint()
        # Each entry has a byte at least, so a false count ends with the bytes.
        return [self._value(head & 0x0F) for _ in range(count)]

    def _map(self) -> None:
        count = self._varint()
        kinds = self._take(1)[0] if count else 0
        for _ in range(count):
            self._value(kinds >> 4)
            self._value(kinds & 0x0F)

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
