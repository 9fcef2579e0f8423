"""The public list of items: a text file, or bins with public edges; and where a population's list comes from.

A list that was inferred from the data reveals what users have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol

from fedhist.protocol.errors import InvalidFile, InvalidInput, MissingFile

if TYPE_CHECKING:
    from fedhist.protocol.histograms import Population


_FIRST_LATIN_LETTER = 0xA0
UTF_16_MARKS = b"\xff\xfe"

MAX_BINS = 1_000_000

MAX_ITEMS_BYTES = 1 << 30
"""The largest file that is read as a list."""

_PIECE = 1 << 20


def not_utf8(name: str, *, line: int, position: int, byte: int) -> InvalidFile:
    """The error for a file that is not in UTF-8.

    Args:
        name: the file.
        line: the line with the first wrong byte, from 1.
        position: of that byte in the file, from 0.
        byte: its value.
    """
    # UTF-16 begins with a mark; letters with accents are one byte from A0 on in Latin-1; Windows has quotes and dashes
    # from 80 on.
    if position == 0 and byte in UTF_16_MARKS:
        looks, code = "UTF-16", "UTF-16"
    else:
        looks, code = ("Latin-1", "LATIN1") if byte >= _FIRST_LATIN_LETTER else ("Windows-1252", "CP1252")
    return InvalidFile(
        f"line {line:,} of {name} is not in UTF-8: byte 0x{byte:02X} at position {position:,} of the file",
        allowed="text in UTF-8",
        advice=f"it looks like {looks}; convert it with iconv -f {code} -t UTF-8 OLD > NEW",
        code="not-utf8",
    )


def first_not_utf8(data: bytes, name: str) -> InvalidFile | None:
    """The error for the first byte of a whole file that is not UTF-8; None if there is none."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return not_utf8(name, line=line, position=error.start, byte=data[error.start])
    return None


def edges_of(text: str, *, name: str = "--bins") -> list[float]:
    """The edges that a text stands for: numbers with commas between them, or START:STOP:STEP.

    Args:
        text: the edges.
        name: of the setting that holds it, for the error.
    """
    wrong = InvalidInput(
        f"{name} is {text!r}",
        allowed="rising numbers with commas between them, or START:STOP:STEP with whole steps from START to STOP, "
        f"up to {MAX_BINS:,} bins",
        advice="for example 0,10,20,inf or 0:100:10",
        code="bad-bins",
    )
    try:
        if ":" not in text:
            numbers = [Decimal(part.strip()) for part in text.split(",")]
            if (
                any(number.is_finite() and math.isinf(float(number)) for number in numbers)
                or len(numbers) > MAX_BINS
            ):
                raise wrong
            return [float(number) for number in numbers]
        start, stop, step = (Decimal(part.strip()) for part in text.split(":"))
        if not (start.is_finite() and stop.is_finite() and step.is_finite() and step > 0 and stop > start):
            raise wrong
        number = (stop - start) / step
        if number != number.to_integral_value() or number > MAX_BINS:
            raise wrong
        # Steps of a decimal number: three steps of 0.1 are 0.3, which floats miss.
        return [float(start + step * place) for place in range(int(number) + 1)]
    except (InvalidOperation, ValueError, OverflowError):
        raise wrong from None


def checked_edges(edges: Collection[float]) -> tuple[float, ...]:
    """The edges of bins as floats, if they are two or more rising numbers."""
    allowed = "two or more rising numbers, for example 0, 10, 20; the first may be -inf and the last inf"
    if isinstance(edges, str | bytes) or not hasattr(edges, "__len__"):
        raise InvalidInput(
            "the bins are no list of edges",
            allowed=allowed,
            advice="a number of bins alone would have to be fitted to the data, which is not private",
            code="not-a-list-of-edges",
        )
    try:
        values = tuple(float(edge) for edge in edges)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            "an edge of the bins is not a number", allowed=allowed, code="edge-not-a-number"
        ) from None
    if len(values) < 2:
        raise InvalidInput(
            "the bins have fewer than two edges",
            allowed=allowed,
            advice="a number of bins alone would have to be fitted to the data, which is not private",
            code="too-few-edges",
        )
    for number, (low, high) in enumerate(pairwise(values), 1):
        if not low < high:  # not a number compares as false
            raise InvalidInput(
                f"edge {number + 1} of the bins is {high:g}, after {low:g}",
                allowed=allowed,
                advice="sort the edges",
                code="edges-not-rising",
            )
    return values


def bin_labels(edges: Collection[float]) -> list[str]:
    """What the bins are called: [0, 10), [10, 20)."""
    texts = [_edge_text(float(edge)) for edge in edges]
    opening = ["(" if edge == -math.inf else "[" for edge in edges]
    return [f"{bracket}{low}, {high})" for bracket, low, high in zip(opening, texts, texts[1:], strict=False)]


def _edge_text(edge: float) -> str:
    """The shortest text that reads as the same number: 10 for 10.0."""
    return str(int(edge)) if edge.is_integer() and abs(edge) < 1e15 else repr(edge)


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


class ItemOrigin(StrEnum):
    """Where the list of items comes from."""

    PUBLIC = "public"
    """A list from elsewhere, or the column numbers of a matrix."""
    SYNTHETIC = "synthetic"
    """The users are synthetic: they are nobody, and what is learned of them harms nobody."""
    DATA = "data"
    """Every item that some user has. Harmless over an open domain, where the release decides which keys are shown."""
    TOP = "top"
    """The items with the largest totals. One user can change which, over an open domain too."""

    def tells(self, domain: str) -> bool:
        """Whether a release over these items, of an open or closed domain, is not private, whatever noise it has."""
        return self is ItemOrigin.TOP or (self is ItemOrigin.DATA and domain == "closed")

    @property
    def reason(self) -> str:
        """Why such a release is not private."""
        return f"the {'top ' if self is ItemOrigin.TOP else ''}items were inferred from the data"

    @property
    def note(self) -> str:
        """The reason, and what to do."""
        return f"not private: {self.reason}; give a public list with --items-file, or use --domain open"


def origin_of(population: Population) -> ItemOrigin:
    """Where the items come from: public if the population does not say."""
    origin: ItemOrigin = getattr(population, "item_origin", ItemOrigin.PUBLIC)
    return origin


def why_never_private(origin: ItemOrigin, domain: str, *, seeded: bool, evaluated: bool) -> list[str]:
    """Why a run is not private whatever its mechanisms are, a sentence each; none for one that may be.

    With the mechanisms this is all that decides it: a release says `private` by it, and a ledger refuses a run by it.

    Args:
        origin: where the items come from.
        domain: "closed", or "open" where the release decides which items are shown.
        seeded: whether its noise can be drawn again.
        evaluated: whether it is compared with the exact data.
    """
    reasons = [origin.note] if origin.tells(domain) else []
    if evaluated:
        reasons.append("evaluated run, not private: it was compared with the exact data")
    if seeded:  # audited: seeds say so
        reasons.append("seeded run, not private: anyone who knows the seed can subtract the noise")
    return reasons


def check_private(origin: ItemOrigin, domain: str, *, seeded: bool, evaluated: bool, charged: bool) -> None:
    """Refuse to infer items from people's data unasked, and to charge people for what does not protect them.

    Synthetic users are nobody: their runs are charged as they are.
    """
    inferred = origin.tells(domain)
    if inferred and not evaluated:
        raise InvalidInput(
            f"the {'top ' if origin is ItemOrigin.TOP else ''}items would be inferred from the data, which is not "
            "private",
            allowed="a public list with --items-file, or items that are found privately with --domain open, both "
            "without --top-items",
            advice="to look at data of your own without privacy, add --evaluate",
            code="items-from-the-data",
        )
    if charged and origin is not ItemOrigin.SYNTHETIC and (evaluated or seeded):  # audited: charged
        raise InvalidInput(
            f"--ledger with {'--evaluate' if evaluated else '--seed'}, and such a run is not private",
            allowed="--ledger without --evaluate and --seed; with both of them for synthetic users",
            advice="for an experiment on data of your own, leave --ledger out",
            code="not-private",
        )
