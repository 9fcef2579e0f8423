"""The keyed part of a contribution as bytes: labels once each, then rows that point to them.

    labels u32 · rows u32 · kinds u8[labels] · lengths u16[labels] · text
    items u32[rows] · bins u16[rows] · values i64[rows x columns]

A label's kind is 0 for text (UTF-8) and 1 for an integer (decimal). Labels are distinct, rows rise by item and bin,
and nothing follows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from fedhist.protocol.errors import DecodeError, InvalidPopulation
from fedhist.protocol.histograms import Integers
from fedhist.protocol.items import byte_lengths, item_bytes, names_at
from fedhist.protocol.keyed import Keyed

# Bytes from outside, read from front to back: never beyond the end, and nothing may be left over.


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


MAX_LABEL_BYTES = 1024
"""Items are texts of up to 1,024 bytes of UTF-8, or integers."""

Label = str | int
_COUNTS = struct.Struct("<II")


def label_bytes(label: Label) -> bytes:
    """A label's text. Refuses what is too long, without showing it."""
    text = item_bytes(label)
    if len(text) > MAX_LABEL_BYTES:
        raise InvalidPopulation(
            f"an item's name has {len(text)} bytes",
            allowed=f"up to {MAX_LABEL_BYTES} bytes of UTF-8",
            advice="shorten or hash long names",
            code="name-too-long",
        )
    return text


def with_short_names(keyed: Keyed, bins: int, labels: Sequence[Label] | None, longest: int) -> Keyed:
    """The sums without items whose names have more bytes than this.

    Each user's row loses such items for itself, which costs no sensitivity. To refuse the answer instead would let one
    user's item decide whether all users of its participant are in the sum.
    """
    items, places = np.unique(keyed.keys // bins, return_inverse=True)
    short = byte_lengths(_names(labels, items), items) <= longest
    if short.all():
        return keyed
    kept = short[places]
    return Keyed(keys=keyed.keys[kept], values=keyed.values[kept])


def encode_keyed(keyed: Keyed, bins: int, labels: Sequence[Label] | None) -> bytes:
    """Keys item x bins + bin, with their rows of values; names above MAX_LABEL_BYTES are left out."""
    keyed = with_short_names(keyed, bins, labels, MAX_LABEL_BYTES)
    items, places = np.divmod(keyed.keys, bins)
    distinct, rows = np.unique(items, return_inverse=True)
    names = chain.from_iterable(names_at(_names(labels, distinct), distinct))
    kinds, texts = bytearray(), []
    for name in names:
        kinds.append(0 if isinstance(name, str) else 1)
        texts.append(label_bytes(name))
    return b"".join(
        (
            _COUNTS.pack(len(texts), keyed.length),
            bytes(kinds),
            np.fromiter(map(len, texts), dtype="<u2", count=len(texts)).tobytes(),
            *texts,
            rows.astype("<u4").tobytes(),
            places.astype("<u2").tobytes(),
            keyed.values.astype("<i8").tobytes(),
        )
    )


def _names(labels: Sequence[Label] | None, rising: Integers) -> Sequence[Label]:
    """What items are called, by their numbers if they have no names."""
    return range(int(rising[-1]) + 1 if len(rising) else 0) if labels is None else labels


def decode_keyed(data: bytes, columns: int, bins: int) -> tuple[Keyed, list[Label]]:
    """The rows in these bytes, their items numbered by the labels that come with them."""
    reader = Reader(data, name="keys")
    count, rows = _COUNTS.unpack(reader.take(_COUNTS.size))
    kinds = reader.take(count)
    lengths = reader.array("<u2", count)
    text = reader.take(int(lengths.sum()))
    items, places = reader.array("<u4", rows), reader.array("<u2", rows)
    values = reader.array("<i8", rows * columns).reshape(rows, columns)
    reader.end()
    keys = items * bins + places
    if (items >= count).any() or (places >= bins).any() or (np.diff(keys) <= 0).any():
        raise DecodeError("rows that do not rise, or point to no label or bin")
    labels = read_labels(text, lengths, kinds)
    if len(set(labels)) != len(labels):
        raise DecodeError("a label that stands twice")
    return Keyed(keys=keys, values=values), labels


def read_labels(text: bytes, lengths: Integers, kinds: bytes) -> list[Label]:
    """The labels in this text, one after the other; DecodeError if they are none."""
    if (lengths > MAX_LABEL_BYTES).any():
        raise DecodeError(f"a label of more than {MAX_LABEL_BYTES} bytes")
    ends = np.cumsum(lengths)
    places = zip(kinds, (ends - lengths).tolist(), ends.tolist(), strict=True)
    labels: list[Label] = []
    for kind, start, end in places:
        try:
            name = text[start:end].decode("utf-8", errors="surrogatepass")
            if kind == 0:
                labels.append(name)
            elif kind == 1 and str(int(name)) == name:
                labels.append(int(name))
            else:
                raise DecodeError("a label of unknown kind or an integer that is not plain")
        except ValueError:
            raise DecodeError("a label that is not what its kind says") from None
    return labels
