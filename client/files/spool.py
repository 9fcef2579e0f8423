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
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import NotWritten

Array = npt.NDArray[Any]


class NamelessFile:
    """A temporary file without a name. It is gone when nothing refers to it any more."""

    def __init__(self) -> None:
        try:
            with tempfile.TemporaryFile(dir=temporary_folder(), prefix="fedhist-") as made:
                self.descriptor = os.dup(made.fileno())
        except OSError as error:
            raise _full(error) from None

    def close(self) -> None:
        """Give its space back. A large file takes a while, and Ctrl-C within __del__ would be lost."""
        if hasattr(self, "descriptor"):
            descriptor = self.descriptor
            del self.descriptor
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a file without a name can't be copied")

    @property
    def path(self) -> Path:
        """Where this process, as long as it has the file, can open it once more."""
        return Path(f"/dev/fd/{self.descriptor}")

    def read(self, values: Array, place: int) -> None:
        """Fill an array from this byte on."""
        left = memoryview(values.data).cast("B")
        while len(left):
            done = os.preadv(self.descriptor, [left], place)
            if done == 0:
                raise NotWritten("a temporary file ends too early; its disk may be damaged. Run it again")
            left, place = left[done:], place + done

    def write(self, values: Array, place: int) -> None:
        """Write an array from this byte on."""
        left = memoryview(values.data).cast("B")
        try:
            while len(left):
                done = os.pwrite(self.descriptor, left, place)
                left, place = left[done:], place + done
        except OSError as error:
            raise _full(error) from None

    def mapped(self, length: int, *, offset: int = 0) -> mmap.mmap:
        """These bytes of the file, mapped for reading; the offset is one of a page."""
        return mmap.mmap(self.descriptor, length, prot=mmap.PROT_READ, offset=offset)


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
    file: NamelessFile | None = field(default=None, repr=False)
    offset: int = 0

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """The values from start to stop: a view if they are in memory, else read from the file."""
        stop = self.length if stop is None else stop
        if self.held is not None:
            return self.held[start:stop]
        values = np.empty(stop - start, dtype=self.kind)
        self._file.read(values, self.offset + start * self.kind.itemsize)
        return values

    def write(self, start: int, values: Array) -> None:
        """Put values in their place, from start on."""
        if self.held is not None:
            self.held[start : start + len(values)] = values
            return
        there = np.ascontiguousarray(values, dtype=self.kind)
        self._file.write(there, self.offset + start * self.kind.itemsize)

    def mapped(self, length: int) -> Array:
        """The first values as an array: a view if they are in memory, else the file mapped."""
        if self.held is not None:
            return self.held[:length]
        if length == 0:
            return np.empty(0, dtype=self.kind)
        size = length * self.kind.itemsize
        return np.frombuffer(self._file.mapped(size, offset=self.offset), dtype=self.kind)

    @property
    def _file(self) -> NamelessFile:
        assert self.file is not None  # noqa: S101 - not in memory
        return self.file


class Spool:
    """Puts arrays aside.

    Args:
        room: the bytes that may stay in memory.
    """

    def __init__(self, room: int) -> None:
        self._left = room
        self._file: NamelessFile | None = None
        self._end = 0
        self._one_at_a_time = Lock()

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

    def close(self) -> None:
        """Give the space of the file back; its arrays can't be read any more."""
        if self._file is not None:
            self._file.close()

    def _place(self, length: int, kind: np.dtype[Any]) -> Piece:
        if self._file is None:
            self._file = NamelessFile()
        # A mapped file begins at whole pages.
        offset = -(-self._end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._end = offset + length * kind.itemsize
        return Piece(length, kind, file=self._file, offset=offset)


def temporary_folder() -> Path:
    """Where temporary files go: TMPDIR, or the system's folder."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise NotWritten(
            "there is no folder for temporary data; name one in TMPDIR that exists and can be written to"
        ) from None


def free_space() -> int:
    """The bytes that are free there."""
    return shutil.disk_usage(temporary_folder()).free


def _full(error: OSError) -> NotWritten:
    return NotWritten(
        f"temporary data can't be written to {temporary_folder()} ({error.strerror}): nothing was released and nothing "
        "is left there; make room, name another folder in TMPDIR, or give more --memory"
    )
