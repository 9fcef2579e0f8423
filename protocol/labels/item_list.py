"""The public list of a closed domain's items, as both sides read it: the same text gives the same order."""

from __future__ import annotations

from typing import BinaryIO, Literal, Protocol

from fedhist.protocol.errors import InvalidFile

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
    except OSError:
        raise unreadable(str(path)) from None


def parse_items(data: bytes, *, name: str) -> list[str]:
    """One item a line, in UTF-8, each once.

    Args:
        data: the file's content.
        name: the file's name, for the error.
    """
    if len(data) > MAX_ITEMS_BYTES:
        raise InvalidFile(f"{name} is too large for a list of items", allowed="up to 1 GiB")
    try:
        # Some editors write a byte order mark before the first line. It is not part of an item.
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise unreadable(name) from None
    items = [line for line in text.split("\n") if line]
    if not items or len(set(items)) != len(items):
        problem = "has an item twice" if items else "has no items"
        raise InvalidFile(f"{name} {problem}", allowed="one item a line, each once")
    return items


def unreadable(name: str) -> InvalidFile:
    """The error for a list that can't be read."""
    return InvalidFile(f"can't read the items in {name}", allowed="a UTF-8 text file, one item a line")
