"""What the items of a table are called: whole numbers, or texts that need not fit in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

import numpy as np

from fedhist.client.files.spool import Array, Tape
from fedhist.protocol.histograms import Flags, Integers, Labels, Words

if TYPE_CHECKING:
    import polars as pl

# Names lie anywhere on a tape, so a block of them touches as many pages.
_BLOCK = 1 << 14
_WORD = 8


class ItemNames(ABC):
    """The names of items, in the order in which they first appeared."""

    @abstractmethod
    def append(self, names: pl.Series) -> None:
        """Take these in, too."""

    @abstractmethod
    def order(self, totals: Integers) -> Integers:
        """The items by falling total, equal totals by the length of the name in UTF-8, then by its code points."""

    @abstractmethod
    def texts(self) -> Iterator[str]:
        """All of them, as text."""

    @abstractmethod
    def chosen(self, numbers: Integers) -> Labels:
        """Those with these numbers, in this order."""


class NumberNames(ItemNames):
    """Items that are whole numbers."""

    def __init__(self) -> None:
        self._parts: list[pl.Series] = []

    def append(self, names: pl.Series) -> None:
        """Take these in, too."""
        self._parts.append(names)

    def order(self, totals: Integers) -> Integers:
        """As texts: 9 comes before 10."""
        import polars as pl

        return order_of_texts(self._all().cast(pl.String), totals)

    def texts(self) -> Iterator[str]:
        """All of them, in decimal."""
        return map(str, self._all().to_list())

    def chosen(self, numbers: Integers) -> Labels:
        """A list of Python's numbers."""
        found: list[int] = self._all().gather(numbers).to_list()
        return found

    def _all(self) -> pl.Series:
        import polars as pl

        if len(self._parts) != 1:
            self._parts = [pl.concat(self._parts) if self._parts else pl.Series(dtype=pl.Int64)]
        return self._parts[0]


class TextNames(ItemNames):
    """Items that are texts. Memory holds a few numbers of each; the texts need not fit.

    Args:
        room: the bytes of text that may stay in memory.
    """

    def __init__(self, *, room: int) -> None:
        self._tape, self._room = Tape(room), room
        self._parts = [np.zeros(0, dtype=np.int64)]

    def append(self, names: pl.Series) -> None:
        """Take these in, too."""
        self._parts.append(names.str.len_bytes().to_numpy().astype(np.int64))
        self._tape.append("".join(names.to_list()).encode())

    def order(self, totals: Integers) -> Integers:
        """By total and length first; texts are read only where these are equal.

        Texts of one length compare like the numbers that their bytes are, and so eight bytes at a time.
        """
        lengths = self._lengths()
        order = np.lexsort((lengths, -totals))
        # Where a group begins of items that only their names can tell apart.
        begins = _changes(totals[order]) | _changes(lengths[order])
        depth = 0
        while True:
            alone = begins & np.append(begins[1:], True)
            rows = np.flatnonzero(~alone & (lengths[order] > _WORD * depth))
            if len(rows) == 0:
                return order
            items, groups = order[rows], np.cumsum(begins)[rows]
            words = self._words(items, depth, lengths)
            sorted_rows = np.lexsort((words, groups))
            order[rows] = items[sorted_rows]
            begins[rows] |= _changes(words[sorted_rows])
            depth += 1

    def texts(self) -> Iterator[str]:
        """All of them, block by block."""
        return iter(StoredNames(np.cumsum(self._lengths()), self._tape))

    def chosen(self, numbers: Integers) -> Labels:
        """A list if its texts fit in the room, else names that are read when they are needed."""
        lengths = self._lengths()
        starts = np.cumsum(lengths) - lengths
        ends = np.cumsum(lengths[numbers])
        copy, text = Tape(self._room), self._tape.view()
        for block in _blocks(len(numbers)):
            places = numbers[block]
            copy.append(_gathered(text, starts[places], lengths[places]).tobytes())
            self._tape.let_go()
        stored = StoredNames(ends, copy)
        return list(stored) if copy.length <= self._room else stored

    def _lengths(self) -> Integers:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def _words(self, items: Integers, depth: int, lengths: Integers) -> Words:
        """Of each of these names the eight bytes after `depth` times eight, filled up with zeros, as a number."""
        starts = np.cumsum(lengths) - lengths + _WORD * depth
        words, text, cells = np.empty(len(items), dtype=np.uint64), self._tape.view(), np.arange(_WORD)
        for block in _blocks(len(items)):
            places = items[block]
            left = lengths[places] - _WORD * depth
            found = text[np.minimum(starts[places][:, np.newaxis] + cells, len(text) - 1)]
            found[cells >= left[:, np.newaxis]] = 0
            words[block] = found.view(">u8")[:, 0]
            self._tape.let_go()
        return words


@dataclass(frozen=True, eq=False)
class StoredNames(Sequence[str]):
    """Texts on a tape, each read when it is needed.

    Args:
        ends: where each one ends.
        tape: the texts, one after the other.
    """

    ends: Integers = field(repr=False)
    tape: Tape = field(repr=False)

    def __len__(self) -> int:
        return len(self.ends)

    def __reduce__(self) -> tuple[type[tuple[str, ...]], tuple[list[str]]]:
        """A copy, and what another process gets, is in memory."""
        return tuple, (list(self),)

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        """One name, or a list of them for a slice. The range checks the bounds and counts from the end."""
        chosen = range(len(self))[number]
        if isinstance(chosen, int):
            return self._block(chosen, chosen + 1)[0]
        if chosen.step == 1:
            return self._block(chosen.start, chosen.stop)
        return [self._block(place, place + 1)[0] for place in chosen]

    def __iter__(self) -> Iterator[str]:
        """All of them, in order."""
        for block in _blocks(len(self)):
            yield from self._block(block.start, block.stop)
            self.tape.let_go()

    def _block(self, start: int, stop: int) -> list[str]:
        begin = int(self.ends[start - 1]) if start else 0
        ends = (self.ends[start:stop] - begin).tolist()
        text = self.tape.view()[begin : begin + ends[-1] if ends else begin].tobytes()
        if text.isascii():
            whole = text.decode("ascii")
            return [whole[low:high] for low, high in zip([0, *ends], ends, strict=False)]
        return [text[low:high].decode() for low, high in zip([0, *ends], ends, strict=False)]


def order_of_texts(texts: pl.Series, totals: Integers) -> Integers:
    """Texts in memory by falling total, equal totals by the length in UTF-8, then by code points."""
    import polars as pl

    items = pl.DataFrame({"total": totals, "text": texts}).with_row_index("number")
    ordered = items.sort(
        pl.col("total"), pl.col("text").str.len_bytes(), "text", descending=[True, False, False]
    )
    return ordered["number"].cast(pl.Int64).to_numpy()


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, length)) for start in range(0, length, _BLOCK))


def _gathered(text: Array, starts: Integers, lengths: Integers) -> Array:
    """The bytes of these names, one after the other."""
    before = np.cumsum(lengths) - lengths
    return text[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))]


def _changes(ordered: Integers | Words) -> Flags:
    """Whether each value differs from the one before it; the first does."""
    changes = np.ones(len(ordered), dtype=np.bool_)
    changes[1:] = ordered[1:] != ordered[:-1]
    return changes
