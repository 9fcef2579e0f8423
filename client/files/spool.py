"""Arrays that are put aside, and populations of them: in memory while there is room, then in a file without a name.

The file has no name from the moment it is made, so nothing is left behind, whatever ends the process. Such a population
is mapped for who needs all of it at once, and read shard by shard for the rounds.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from fedhist.client.populations import SHARD_NONZEROS, SHARD_USERS, SparsePopulation
from fedhist.protocol.errors import NotWritten
from fedhist.protocol.histograms import Histograms, Integers
from fedhist.protocol.validation import user_blocks

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
        shared = mmap.mmap(self._file.descriptor, size, prot=mmap.PROT_READ, offset=self.offset)
        return np.frombuffer(shared, dtype=self.kind)

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
        with self._one_at_a_time:
            fits = values.nbytes <= self._left
            self._left -= values.nbytes * fits
        if fits:
            return Piece(len(values), values.dtype, held=values)
        piece = self.reserve(len(values), values.dtype)
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
            if self._file is None:
                self._file = NamelessFile()
            # A mapped file begins at whole pages.
            offset = -(-self._end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            self._end = offset + size
            return Piece(length, dtype, file=self._file, offset=offset)

    def close(self) -> None:
        """Give the space of the file back; its arrays can't be read any more."""
        if self._file is not None:
            self._file.close()


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


# Offsets that are read at once: little beside any memory.
_READ_USERS = 1 << 17


class Column(Protocol):
    """Values in memory or in a file."""

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
        """Those from start to stop."""


def shards_in(
    offsets: Column,
    items: Column,
    counts: Column,
    *,
    users: range,
    domain_size: int,
    first_user: int = 0,
) -> Iterator[Histograms]:
    """Users in order, read from compressed sparse rows in shards as small as those of a population in memory.

    Args:
        offsets: where each user's entries begin, for all users there.
        items: of all entries.
        counts: of all entries.
        users: the places of those that are read.
        domain_size: the number of items.
        first_user: the number of the user at place 0.
    """
    for low in users[::_READ_USERS]:
        starts = offsets.read(low, min(low + _READ_USERS, users.stop) + 1)
        for start, stop in user_blocks(starts, nonzeros=SHARD_NONZEROS, users=SHARD_USERS):
            entries = int(starts[start]), int(starts[stop])
            yield Histograms(
                offsets=starts[start : stop + 1] - entries[0],
                items=items.read(*entries),
                counts=counts.read(*entries),
                domain_size=domain_size,
                first_user=first_user + low + start,
            )


class StoredRows:
    """Compressed sparse rows that are put aside: `Histograms` that need not fit in memory.

    Args:
        most: as many users, and as many of their items, there are at most. What is never filled takes no
            memory.
        spool: takes them.
    """

    def __init__(self, most: int, spool: Spool) -> None:
        self.users = self.pairs = 0
        self.offsets = spool.reserve(most + 1, np.int64)
        self.items, self.counts = spool.reserve(most, np.int32), spool.reserve(most, np.int32)
        self.offsets.write(0, np.zeros(1, dtype=np.int64))

    def append(self, lengths: Integers, items: npt.NDArray[Any], counts: Integers) -> None:
        """The next users: the number of each one's items, the items, and how often each user has each."""
        self.offsets.write(self.users + 1, self.pairs + np.cumsum(lengths))
        self.items.write(self.pairs, items)
        self.counts.write(self.pairs, counts)
        self.users += len(lengths)
        self.pairs += len(items)

    @property
    def in_memory(self) -> bool:
        """Whether there was room for all of them."""
        return all(piece.held is not None for piece in (self.offsets, self.items, self.counts))

    def mapped(self, domain_size: int) -> Histograms:
        """All users; what is in files is mapped."""
        items, counts = self.items.mapped(self.pairs), self.counts.mapped(self.pairs)
        return Histograms(self.offsets.mapped(self.users + 1), items, counts, domain_size)


@dataclass(frozen=True, eq=False, repr=False)
class StoredPopulation(SparsePopulation):
    """Users in files.

    Its `histograms` are mapped from the files, for code that looks at all users at once. A pass over the shards reads
    them instead: what is mapped counts as memory of the process until the system wants it back.

    Args:
        rows: where all users are, of whom these may be a part.
    """

    rows: StoredRows = field(kw_only=True, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what another process gets, is in memory: files without names are of this process."""
        labels = None if self.labels is None else tuple(self.labels)
        return SparsePopulation, (
            *(self.histograms, labels),
            *(self.dropped_items, self.dropped_count, self.item_origin),
        )

    def shards(self) -> Iterator[Histograms]:
        """The users in order, read from the files, in pieces as small as those of a population in memory."""
        first, rows = self.histograms.first_user, self.rows
        return shards_in(
            rows.offsets,
            rows.items,
            rows.counts,
            users=range(first, first + self.users),
            domain_size=self.domain_size,
        )
