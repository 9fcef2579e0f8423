"""The public list of a closed domain's items, as both sides read it: the same text gives the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Literal, Protocol

from fedhist.protocol.errors import InvalidFile, MissingFile
from fedhist.protocol.labels.encodings import first_not_utf8

MAX_ITEMS_BYTES = 1 << 30
"""The largest file that is read as a list."""

_PIECE = 1 << 20


class OpenFile(Protocol):
    """A path, as far as it is read here."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """The file, for reading bytes."""


def read_list(file: BinaryIO) -> bytes:
    """The content of a list's file, up to a little beyond the limit: a device or pipe may never end."""
    content = bytearray()
    while len(content) <= MAX_ITEMS_BYTES and (piece := file.read(_PIECE)):
        content += piece
    return bytes(content)


def read_items(path: OpenFile) -> list[str]:
    """A public list of items from a UTF-8 text file, one item a line."""
    try:
        with path.open("rb") as file:
            return parse_items(read_list(file), name=str(path))
    except FileNotFoundError:
        raise MissingFile(
            f"can't read the items in {path}: there is no such file",
            allowed="a UTF-8 text file, one item a line",
        ) from None
    except OSError:
        raise unreadable(str(path)) from None


def parse_items(data: bytes, *, name: str) -> list[str]:
    """One item a line, in UTF-8, each once.

    Args:
        data: the file's content.
        name: the file's name, for the error.
    """
    if len(data) > MAX_ITEMS_BYTES:
        raise InvalidFile(f"{name} is too large for a list of items", allowed="up to 1 GiB", code="too-large")
    try:
        # Some editors write a byte order mark before the first line. It is not part of an item.
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise first_not_utf8(data, name) or unreadable(name) from None
    lines = text.split("\n")
    items = [line for line in lines if line]
    if not items:
        raise InvalidFile(f"{name} has no items", allowed="one item a line, each once")
    if len(set(items)) != len(items):
        first, again = first_repeat(lines, blank="") or (0, 0)
        raise InvalidFile(
            f"{name} has an item twice: line {again + 1:,} repeats line {first + 1:,}",
            allowed="one item a line, each once",
            advice="remove one of the lines",
            code="repeated-item",
        )
    return items


def first_repeat(labels: Sequence[str], *, blank: str | None = None) -> tuple[int, int] | None:
    """The places, from 0, of the first label that stands there twice; `blank` may stand there often."""
    places: dict[str, int] = {}
    for place, label in enumerate(labels):
        if label != blank and places.setdefault(label, place) != place:
            return places[label], place
    return None


def unreadable(name: str) -> InvalidFile:
    """The error for a list that can't be read."""
    return InvalidFile(
        f"can't read the items in {name}",
        allowed="a UTF-8 text file, one item a line",
        code="unreadable-items",
    )
