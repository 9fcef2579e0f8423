"""Rows of a table, dealt to partitions by their user, and each partition added up by user and item.

A user's rows all lie in one partition, so that a partition is added up without the others. It holds its users as they
first appear, and the row in which each does: merging by that row gives the users of all partitions in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.client.files.spool import Piece, Spool
from fedhist.protocol.histograms import MAX_USER_TOTAL, Integers, Words
from fedhist.protocol.sorting import grouped_order, order_by

Numbers = npt.NDArray[np.int32]

RECORD = np.dtype([("user", "<u8"), ("item", "<i4"), ("row", "<u4")])
"""A row: the user's key, the item's number as it appeared, and the row's place in its batch."""

DEALT_BITS = 10
"""The number of first bits of users' keys by which rows are dealt. A partition is what some of these bits select."""

# Larger partitions are added up piece by piece first: one user may have any number of rows.
_MOST_ROWS = 1 << 21


@dataclass(frozen=True, eq=False)
class Batch:
    """Some consecutive rows, in the order of the first bits of their users' keys.

    Args:
        first_row: the number of its first row in the whole table.
        bounds: where the rows of each value of these bits begin, and the end.
        records: the rows.
        counts: their counts; None if each is one.
    """

    first_row: int
    bounds: Integers = field(repr=False)
    records: Piece = field(repr=False)
    counts: Piece | None = field(repr=False)

    def part(self, partition: int, bits: int) -> tuple[int, int]:
        """Where the rows of a partition begin and end; it is the first `bits` bits of its users' keys."""
        wide = DEALT_BITS - bits
        return int(self.bounds[partition << wide]), int(self.bounds[partition + 1 << wide])


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a partition, in their order.

    Args:
        users: their keys.
        items: their ranks, -1 for none.
        places: their numbers in the whole table.
        counts: their counts; None if each is one.
    """

    users: Words = field(repr=False)
    items: Numbers = field(repr=False)
    places: Integers = field(repr=False)
    counts: Integers | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Users:
    """A partition's users with what each has of each item, in the order of their first rows.

    Args:
        keys: the users' keys.
        first_rows: the row in which each appears first, rising.
        lengths: the number of each one's items.
        items: in the order of their ranks within a user.
        counts: the sums.
        too_many: the first rows of users whose counts add up to too much; they have no items here.
    """

    keys: Words = field(repr=False)
    first_rows: Integers = field(repr=False)
    lengths: Integers = field(repr=False)
    items: Numbers = field(repr=False)
    counts: Integers = field(repr=False)
    too_many: Integers = field(repr=False)


def dealt(
    users: Words, items: Numbers, counts: npt.NDArray[Any] | None, *, first_row: int, spool: Spool
) -> Batch:
    """Put rows aside by the first bits of their users' keys."""
    part = (users >> np.uint64(64 - DEALT_BITS)).astype(np.uint16)
    order = np.argsort(part, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=1 << DEALT_BITS))])
    records = np.empty(len(users), dtype=RECORD)
    records["user"], records["item"], records["row"] = users[order], items[order], order
    return Batch(first_row, bounds, spool.put(records), None if counts is None else spool.put(counts[order]))


def pieces_of(batches: Sequence[Batch], partition: int, ranks: Numbers, *, bits: int) -> Iterator[Rows]:
    """The rows of a partition, a part of them at a time.

    Args:
        batches: all rows.
        partition: the first bits of the keys of its users.
        ranks: the items' ranks; the last of these is for rows without an item.
        bits: the number of these bits.
    """
    parts: list[tuple[Batch, int, int]] = []
    rows = 0
    for batch in batches:
        start, stop = batch.part(partition, bits)
        if parts and rows + stop - start > _MOST_ROWS:
            yield _read(parts, ranks)
            parts, rows = [], 0
        parts.append((batch, start, stop))
        rows += stop - start
    yield _read(parts, ranks)


def _read(parts: Sequence[tuple[Batch, int, int]], ranks: Numbers) -> Rows:
    whole = np.concatenate([batch.records.read(start, stop) for batch, start, stop in parts])
    places = np.repeat([batch.first_row for batch, _, _ in parts], [stop - start for _, start, stop in parts])
    places += whole["row"]
    counts = None
    if any(batch.counts is not None for batch, _, _ in parts):
        # Some files may have counts and others none.
        counts = np.concatenate(
            [
                np.ones(stop - start, dtype=np.int64)
                if batch.counts is None
                else batch.counts.read(start, stop).astype(np.int64)
                for batch, start, stop in parts
            ]
        )
        # What a row without an item was to count does not count in its user's total.
        counts[whole["item"] < 0] = 0
    return Rows(np.ascontiguousarray(whole["user"]), ranks[whole["item"]], places, counts)


def rows_with_items(batches: Sequence[Batch], partition: int, users: Words, *, bits: int) -> int:
    """How many rows with an item these users of a partition have."""
    found = 0
    for batch in batches:
        records = batch.records.read(*batch.part(partition, bits))
        found += int((np.isin(records["user"], users) & (records["item"] >= 0)).sum())
    return found


def added_up(pieces: Iterable[Rows], *, bits: int, item_bits: int) -> Users:
    """The users of a partition.

    Args:
        pieces: its rows. As soon as there are two, each is added up by itself.
        bits: the number of first bits that the keys of its users share.
        item_bits: the number of bits of an item's rank.
    """
    parts: list[Rows] = []
    for piece in pieces:
        if len(parts) == 1:
            parts[0] = _reduced(parts[0], bits=bits, item_bits=item_bits)
        parts.append(piece if not parts else _reduced(piece, bits=bits, item_bits=item_bits))
        if sum(len(part.users) for part in parts) > max(_MOST_ROWS, 2 * len(parts[0].users)):
            parts = [_reduced(_joined(parts), bits=bits, item_bits=item_bits)]
    return _added_up(_joined(parts), bits=bits, item_bits=item_bits)


def _reduced(rows: Rows, *, bits: int, item_bits: int) -> Rows:
    """The rows added up, as rows again. Those without an item stay: they count in their user's total."""
    nothing = np.int32(1 << item_bits)
    items = np.where(rows.items < 0, nothing, rows.items)
    users = _added_up(replace(rows, items=items), bits=bits, item_bits=item_bits + 1, limit=None)
    owners = np.repeat(np.arange(len(users.keys)), users.lengths)
    return Rows(
        users.keys[owners],
        np.where(users.items == nothing, np.int32(-1), users.items),
        users.first_rows[owners],
        users.counts,
    )


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return Rows(
        users=np.concatenate([part.users for part in parts]),
        items=np.concatenate([part.items for part in parts]),
        places=np.concatenate([part.places for part in parts]),
        counts=np.concatenate([part.counts for part in parts if part.counts is not None]),
    )


def _added_up(rows: Rows, *, bits: int, item_bits: int, limit: int | None = MAX_USER_TOTAL) -> Users:
    order, starts = grouped_order(rows.users, known_bits=bits)
    first = order[starts]
    # Groups come in the order of keys, and users in that of their first rows.
    by_row = order_by((rows.places[first], int(rows.places.max(initial=1)).bit_length()))
    ranks = np.empty(len(first), dtype=np.uint32)
    ranks[by_row] = np.arange(len(first), dtype=np.uint32)
    sizes = np.diff(starts, append=len(order))
    users, items = np.repeat(ranks, sizes), rows.items[order]
    counts = None if rows.counts is None else rows.counts[order]
    too_many = np.empty(0, dtype=np.int64)
    heavy = limit is not None and (len(order) if counts is None else int(counts.sum())) > limit
    if heavy:
        totals = sizes if counts is None else np.add.reduceat(counts, starts)
        over = totals > limit
        too_many = np.sort(rows.places[first[over]])
        items = np.where(np.repeat(over, sizes), np.int32(-1), items)
    if len(items) and items.min() < 0:
        kept = np.flatnonzero(items >= 0)
        users, items = users[kept], items[kept]
        counts = None if counts is None else counts[kept]
    pairs = order_by((items, item_bits), (users, max(len(first) - 1, 1).bit_length()))
    users, items = users[pairs], items[pairs]
    changes = np.flatnonzero((users[1:] != users[:-1]) | (items[1:] != items[:-1])) + 1
    begins = np.concatenate([np.zeros(min(len(items), 1), dtype=np.int64), changes])
    if counts is None:
        sums = np.diff(begins, append=len(items))
    else:
        sums = np.add.reduceat(counts[pairs], begins) if len(begins) else np.empty(0, dtype=np.int64)
    return Users(
        keys=rows.users[first[by_row]],
        first_rows=rows.places[first[by_row]],
        lengths=np.bincount(users[begins], minlength=len(first)),
        items=items[begins],
        counts=sums,
        too_many=too_many,
    )
