"""Bytes from outside, read from front to back: never beyond the end, and nothing may be left over."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from fedhist.protocol.errors import DecodeError
from fedhist.protocol.histograms import Integers


class Reader:
    """Takes pieces off the front of some bytes. Every fault is a DecodeError that counts bytes and shows none.

    Args:
        data: the bytes.
        name: what they should be, for the errors.
    """

    def __init__(self, data: bytes, *, name: str) -> None:
        self._data, self._name, self._place = data, name, 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._place + size
        if end > len(self._data):
            raise DecodeError(f"{self._name} of {len(self._data)} bytes where at least {end} are due")
        taken, self._place = self._data[self._place : end], end
        return taken

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fields of this layout."""
        return layout.unpack(self.take(layout.size))

    def entries(self, layout: struct.Struct, count: int) -> list[tuple[Any, ...]]:
        """The next `count` entries, each of this layout."""
        return list(layout.iter_unpack(self.take(count * layout.size)))

    def array(self, kind: str, count: int) -> Integers:
        """The next `count` numbers of this numpy type, as 64-bit integers."""
        return np.frombuffer(self.take(np.dtype(kind).itemsize * count), dtype=kind).astype(np.int64)

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if self._place != len(self._data):
            raise DecodeError(
                f"{len(self._data) - self._place} bytes after {self._name}", code="bytes-left-over"
            )
