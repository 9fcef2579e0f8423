"""Rows of a table, dealt to partitions by their user's key, and each partition added up by user and item.

A user's rows all lie in one partition, so a partition is added up without the others. One sort of one word a row does
it: the user's key above, the item's rank below. The key's first bits are the partition's, so the word has room for as
many bits of ranks. Where ranks take more, last bits of keys go, and it is checked that this makes no two users one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedhist.client.files.spool import Array, Piece, Spool
from fedhist.protocol.histograms import Integers, Words

Ranks = npt.NDArray[np.uint64]

DEALT_BITS = 10
"""The number of first bits of users' keys by which rows are dealt. A partition is what some of these bits select."""

# Larger partitions are added up piece by piece: one user may have any number of rows.
_MOST_ROWS = 1 << 21


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows, in the order of the first bits of their users' keys.

    Args:
        bounds: where the rows of each value of these bits begin, and the end.
        users: the keys.
        items: the items' numbers from 1; 0 for none.
        counts: the observations that a row stands for; None if each is one.
    """

    bounds: Integers = field(repr=False)
    users: Piece = field(repr=False)
    items: Piece = field(repr=False)
    counts: Piece | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of users.

    Args:
        users: their keys.
        items: the items' ranks; the last of all is for rows without an item.
        counts: None if each is one.
    """

    users: Words = field(repr=False)
    items: Ranks = field(repr=False)
    counts: Integers | None = field(repr=False)


def dealt(users: Words, items: Array, counts: Array | None, *, spool: Spool) -> Batch:
    """Put rows aside in the order of the first bits of their users' keys."""
    places = np.uint64((1 << len(users).bit_length()) - 1)
    words = (users & ~places) | np.arange(len(users), dtype=np.uint64)
    words.sort()
    order = (words & places).astype(np.intp)
    bounds = np.searchsorted(words, np.arange(1 << DEALT_BITS, dtype=np.uint64) << np.uint64(64 - DEALT_BITS))
    return Batch(
        np.append(bounds, len(users)),
        spool.put(users[order]),
        spool.put(items[order]),
        None if counts is None else spool.put(counts[order]),
    )


def pieces_of(batches: Sequence[Batch], partition: int, ranks: Ranks, *, bits: int) -> Iterator[Rows]:
    """The rows of a partition, a part of them at a time.

    Args:
        batches: all rows.
        partition: the first bits of the keys of its users.
        ranks: the rank of each item's number.
        bits: the number of these bits.
    """
    ends = slice(
        partition << DEALT_BITS - bits, (partition + 1 << DEALT_BITS - bits) + 1, 1 << DEALT_BITS - bits
    )
    parts: list[tuple[Batch, int, int]] = []
    rows = 0
    for batch in batches:
        start, stop = batch.bounds[ends].tolist()
        if parts and rows + stop - start > _MOST_ROWS:
            yield _read(parts, ranks)
            parts, rows = [], 0
        parts.append((batch, start, stop))
        rows += stop - start
    yield _read(parts, ranks)


def _read(parts: Sequence[tuple[Batch, int, int]], ranks: Ranks) -> Rows:
    items = np.concatenate([batch.items.read(start, stop) for batch, start, stop in parts])
    counts = None
    if any(batch.counts is not None for batch, _, _ in parts):
        # Some files may have counts and others none.
        counts = np.concatenate(
            [
                np.ones(stop - start, dtype=np.int64)
                if batch.counts is None
                else batch.counts.read(start, stop)
                for batch, start, stop in parts
            ]
        ).astype(np.int64)
        # What a row without an item was to count does not count in its user's total.
        counts[items == 0] = 0
    return Rows(
        np.concatenate([batch.users.read(start, stop) for batch, start, stop in parts]), ranks[items], counts
    )


@dataclass(frozen=True, eq=False)
class Sums:
    """What users have, in the order of their keys.

    Args:
        begins: where each user's items begin.
        items: the items' ranks, rising within a user.
        counts: the sums.
    """

    begins: Integers = field(repr=False)
    items: Ranks = field(repr=False)
    counts: Integers = field(repr=False)

    def of_users(self, values: Integers) -> Integers:
        """The sum of these values, one for each item of a user, by user."""
        return np.add.reduceat(values, self.begins) if len(self.begins) else np.zeros(0, dtype=np.int64)


def added_up(pieces: Iterable[Rows], *, bits: int, item_bits: int) -> tuple[Rows, Sums]:
    """The rows of a partition, or what is left of them where there are many, and what they come to.

    Args:
        pieces: its rows. As soon as there are two, they are added up together.
        bits: the number of first bits that the keys of its users share.
        item_bits: the number of bits of an item's rank.
    """
    parts: list[Rows] = []
    waiting = 0
    for piece in pieces:
        parts.append(piece)
        waiting += len(piece.users)
        if len(parts) > 1 and waiting > max(_MOST_ROWS, len(parts[0].users)):
            parts, waiting = [_reduced(_joined(parts), bits=bits, item_bits=item_bits)], 0
    rows = _joined(parts)
    return rows, _sums(rows, bits=bits, item_bits=item_bits)


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    counts = [
        np.ones(len(part.users), dtype=np.int64) if part.counts is None else part.counts for part in parts
    ]
    return Rows(
        np.concatenate([part.users for part in parts]),
        np.concatenate([part.items for part in parts]),
        np.concatenate(counts),
    )


def _reduced(rows: Rows, *, bits: int, item_bits: int) -> Rows:
    """The rows added up, as rows again."""
    sums = _sums(rows, bits=bits, item_bits=item_bits)
    sizes = np.diff(sums.begins, append=len(sums.items))
    return Rows(np.repeat(np.unique(rows.users), sizes), sums.items, sums.counts)


def _sums(rows: Rows, *, bits: int, item_bits: int) -> Sums:
    below = np.uint64(item_bits)
    owners = (rows.users << np.uint64(bits)) >> below
    if item_bits > bits:
        users = np.sort(rows.users)
        cut = (users << np.uint64(bits)) >> below
        if np.count_nonzero(users[1:] != users[:-1]) > np.count_nonzero(cut[1:] != cut[:-1]):
            owners = np.unique(rows.users, return_inverse=True)[1].astype(np.uint64)
    words = (owners << below) | rows.items
    if rows.counts is None:
        words.sort()
    else:
        order = np.argsort(words)
        words = words[order]
    starts = _starts(words)
    heads = words[starts]
    if rows.counts is None:
        counts = np.diff(starts, append=len(words))
    else:
        counts = np.add.reduceat(rows.counts[order], starts) if len(starts) else np.zeros(0, dtype=np.int64)
    return Sums(_starts(heads >> below), heads & np.uint64((1 << item_bits) - 1), counts)


def _starts(ordered: Words) -> Integers:
    """Where each run of equal values begins."""
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return np.concatenate([np.zeros(min(len(ordered), 1), dtype=np.int64), changes])
