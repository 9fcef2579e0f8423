"""Arrays that are put aside: in memory while there is room, then in a file without a name.

The file has no name from the moment it is made, so nothing is left behind, whatever ends the process.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import NotWritten

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Piece:
    """A one-dimensional array that was put aside.

    Args:
        length: the number of its values.
        kind: the type of a value.
        held: the array itself, if it is in memory.
        file: else the file that it is in.
        offset: where it begins there, in bytes.
    """

    length: int
    kind: np.dtype[Any]
    held: Array | None = field(default=None, repr=False)
    file: BinaryIO | None = field(default=None, repr=False)
    offset: int = 0

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """The values from start to stop: a view if they are in memory, else read from the file."""
        stop = self.length if stop is None else stop
        if self.held is not None:
            return self.held[start:stop]
        values = np.empty(stop - start, dtype=self.kind)
        left, place = memoryview(values).cast("B"), self.offset + start * self.kind.itemsize
        while len(left):
            done = os.preadv(self._descriptor, [left], place)
            if done == 0:
                raise NotWritten("a temporary file ends too early; its disk may be damaged. Run it again")
            left, place = left[done:], place + done
        return values

    def write(self, start: int, values: Array) -> None:
        """Put values in their place, from start on."""
        if self.held is not None:
            self.held[start : start + len(values)] = values
            return
        place = self.offset + start * self.kind.itemsize
        _write(self._descriptor, np.ascontiguousarray(values, dtype=self.kind), place)

    def mapped(self) -> Array:
        """All of it as an array: the one in memory, or the file mapped."""
        if self.held is not None:
            return self.held
        if self.length == 0:
            return np.empty(0, dtype=self.kind)
        assert self.file is not None  # noqa: S101 - one of the two is there
        mapped = np.memmap(self.file, dtype=self.kind, mode="r", offset=self.offset, shape=(self.length,))
        # As a plain array, because a memory map does extra work on every slice.
        return mapped.view(np.ndarray)

    @property
    def _descriptor(self) -> int:
        assert self.file is not None  # noqa: S101 - not in memory
        return self.file.fileno()


class Spool:
    """Puts arrays aside.

    Args:
        room: the bytes that may stay in memory.
    """

    def __init__(self, room: int) -> None:
        self._left = room
        self._file: BinaryIO | None = None
        self._end = 0
        self._one_at_a_time = Lock()

    @property
    def on_disk(self) -> int:
        """The bytes in the file."""
        return self._end

    def put(self, values: Array) -> Piece:
        """Put an array aside. One that stays in memory is not copied."""
        kind, size = values.dtype, values.nbytes
        with self._one_at_a_time:
            if size <= self._left:
                self._left -= size
                return Piece(len(values), kind, held=values)
            piece = self._place(len(values), kind)
        piece.write(0, values)
        return piece

    def reserve(self, length: int, kind: npt.DTypeLike) -> Piece:
        """Room for an array that is written bit by bit."""
        dtype = np.dtype(kind)
        size = length * dtype.itemsize
        with self._one_at_a_time:
            if size <= self._left:
                self._left -= size
                return Piece(length, dtype, held=np.empty(length, dtype=dtype))
            return self._place(length, dtype)

    def _place(self, length: int, kind: np.dtype[Any]) -> Piece:
        if self._file is None:
            self._file = _nameless_file()
        # A mapped file begins at whole pages.
        offset = -(-self._end // 4096) * 4096
        self._end = offset + length * kind.itemsize
        return Piece(length, kind, file=self._file, offset=offset)


class Tape:
    """Bytes one after the other: in memory up to a limit, then in a file without a name.

    Args:
        room: the bytes that may stay in memory.
    """

    def __init__(self, room: int) -> None:
        self.length = 0
        self._room = room
        self._held = bytearray()
        self._file: BinaryIO | None = None
        self._map: mmap.mmap | None = None

    def append(self, text: bytes) -> None:
        """Add these at the end."""
        self.length += len(text)
        self._held += text
        if len(self._held) > self._room:
            self._to_file()

    def view(self) -> Array:
        """All of it, as an array of bytes. Nothing may be appended as long as it is used."""
        if self._file is None:
            return np.frombuffer(self._held, dtype=np.uint8)
        self._to_file()
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), self.length, prot=mmap.PROT_READ)
        return np.frombuffer(self._map, dtype=np.uint8)

    def let_go(self) -> None:
        """Give back the memory of what was read of the file."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def _to_file(self) -> None:
        if self._file is None:
            self._file = _nameless_file()
        start = self.length - len(self._held)
        _write(self._file.fileno(), np.frombuffer(self._held, dtype=np.uint8), start)
        self._held = bytearray()
        # A map has the length that the file had when it was made.
        self._map = None


def temporary_folder() -> Path:
    """Where temporary files go: TMPDIR, or the system's folder."""
    return Path(tempfile.gettempdir())


def free_space() -> int:
    """The bytes that are free there."""
    return shutil.disk_usage(temporary_folder()).free


def _nameless_file() -> BinaryIO:
    try:
        return tempfile.TemporaryFile(prefix="fedhist-")  # type: ignore[return-value] # noqa: SIM115 - lives as long as what is in it
    except OSError as error:
        raise _full(error) from None


def _write(descriptor: int, values: Array, place: int) -> None:
    left = memoryview(values).cast("B")
    try:
        while len(left):
            done = os.pwrite(descriptor, left, place)
            left, place = left[done:], place + done
    except OSError as error:
        raise _full(error) from None


def _full(error: OSError) -> NotWritten:
    return NotWritten(
        f"temporary data can't be written to {temporary_folder()} ({error.strerror}): nothing was released and nothing "
        "is left there; make room, name another folder in TMPDIR, or give more --memory"
    )
