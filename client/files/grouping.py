"""Rows of a table, dealt to partitions by their user, and each partition added up by user and item.

A user's rows all lie in one partition, so that a partition is added up without the others. It holds its users as they
first appear, and the row in which each does: merging by that row gives the users of all partitions in order.
"""

from __future__ import annotations

from collections.abc import Sequence
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

# Larger partitions are added up piece by piece first: one user may have any number of rows.
_MOST_ROWS = 1 << 21


@dataclass(frozen=True, eq=False)
class Batch:
    """Some consecutive rows, in the order of their partitions.

    Args:
        first_row: the number of its first row in the whole table.
        bounds: where each partition begins, and the end.
        records: the rows.
        counts: their counts; None if each is one.
    """

    first_row: int
    bounds: Integers = field(repr=False)
    records: Piece = field(repr=False)
    counts: Piece | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a partition, in their order.

    Args:
        users: their keys.
        items: their final numbers, -1 for none.
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
        items: rising within a user.
        counts: the sums.
        too_many: the first rows of users whose counts add up to too much; they have no items here.
        rows_of_these: how many rows they have in all.
    """

    keys: Words = field(repr=False)
    first_rows: Integers = field(repr=False)
    lengths: Integers = field(repr=False)
    items: Numbers = field(repr=False)
    counts: Integers = field(repr=False)
    too_many: Integers = field(repr=False)
    rows_of_these: int = 0


def dealt(
    users: Words, items: Numbers, counts: npt.NDArray[Any] | None, *, first_row: int, bits: int, spool: Spool
) -> Batch:
    """Put rows aside by partition: the first `bits` bits of a user's key."""
    records = np.empty(len(users), dtype=RECORD)
    if bits == 0:
        order, bounds = None, np.array([0, len(users)])
        records["user"], records["item"], records["row"] = users, items, np.arange(len(users))
    else:
        part = (users >> np.uint64(64 - bits)).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=1 << bits))])
        records["user"], records["item"], records["row"] = users[order], items[order], order
    if counts is not None and order is not None:
        counts = counts[order]
    return Batch(first_row, bounds, spool.put(records), None if counts is None else spool.put(counts))


def rows_of(batches: Sequence[Batch], partition: int, new_numbers: Numbers) -> Rows:
    """The rows of a partition, with the items' final numbers; the last of these is for rows without an item."""
    bounds = [batch.bounds[partition : partition + 2].tolist() for batch in batches]
    whole = np.concatenate([batch.records.read(*part) for batch, part in zip(batches, bounds, strict=True)])
    counts = [
        batch.counts.read(*part)
        for batch, part in zip(batches, bounds, strict=True)
        if batch.counts is not None
    ]
    places = np.repeat([batch.first_row for batch in batches], [stop - start for start, stop in bounds])
    places += whole["row"]
    return Rows(
        users=np.ascontiguousarray(whole["user"]),
        items=new_numbers[whole["item"]],
        places=places,
        counts=np.concatenate(counts).astype(np.int64) if counts else None,
    )


def added_up(rows: Rows, *, bits: int, item_bits: int) -> Users:
    """The users of a partition.

    Args:
        rows: of the partition.
        bits: the number of first bits that the keys of its users share.
        item_bits: the number of bits of an item's number.
    """
    few = len(rows.users) <= _MOST_ROWS
    whole = rows if few else _reduced(rows, bits=bits, item_bits=item_bits)
    users = _added_up(whole, bits=bits, item_bits=item_bits)
    if len(users.too_many) == 0:
        return users
    theirs = users.keys[np.searchsorted(users.first_rows, users.too_many)]
    return replace(users, rows_of_these=int(np.isin(rows.users, theirs).sum()))


def _reduced(rows: Rows, *, bits: int, item_bits: int) -> Rows:
    """The rows added up within pieces, as rows again. Every user has one more without an item, so that none is lost."""
    parts = []
    for start in range(0, len(rows.users), _MOST_ROWS):
        piece = slice(start, start + _MOST_ROWS)
        counts = None if rows.counts is None else rows.counts[piece]
        users = _added_up(
            Rows(rows.users[piece], rows.items[piece], rows.places[piece], counts),
            bits=bits,
            item_bits=item_bits,
            limit=None,
        )
        owners = np.concatenate(
            [np.arange(len(users.keys)), np.repeat(np.arange(len(users.keys)), users.lengths)]
        )
        parts.append(
            Rows(
                users.keys[owners],
                np.concatenate([np.full(len(users.keys), -1, dtype=np.int32), users.items]),
                users.first_rows[owners],
                np.concatenate([np.zeros(len(users.keys), dtype=np.int64), users.counts]),
            )
        )
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
