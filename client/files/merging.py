"""Users of all partitions in the order of their first rows.

Each partition holds its users in that order, so those whose first row lies in a range of rows stand together in each of
them. Ranges, called buckets, are merged a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.client.files.grouping import Users
from fedhist.client.files.spool import Piece, Spool
from fedhist.client.files.stored import Rows
from fedhist.protocol.histograms import Integers

Each = Callable[[str, Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Works on parts: called with the name of a pass, the work on one part, and the parts."""

_BUCKETS = 4096
_MERGED_PAIRS = 1 << 20


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition's users, put aside.

    Args:
        first_rows, lengths, items, counts: as in `Users`.
        users_at, pairs_at: the number of users, and of their items, before each bucket of rows.
        too_many: as in `Users`.
        rows_of_these: how many rows with items the users with too much have.
    """

    first_rows: Piece = field(repr=False)
    lengths: Piece = field(repr=False)
    items: Piece = field(repr=False)
    counts: Piece = field(repr=False)
    users_at: Integers = field(repr=False)
    pairs_at: Integers = field(repr=False)
    too_many: Integers = field(repr=False)
    rows_of_these: int

    def between(self, first: int, last: int) -> tuple[npt.NDArray[Any], ...]:
        """First rows, lengths, items and counts of the users of these buckets."""
        users = int(self.users_at[first]), int(self.users_at[last])
        pairs = int(self.pairs_at[first]), int(self.pairs_at[last])
        return (
            self.first_rows.read(*users),
            self.lengths.read(*users),
            self.items.read(*pairs),
            self.counts.read(*pairs),
        )


def put_aside(users: Users, *, rows: int, rows_of_these: int, spool: Spool) -> Partition:
    """Put the users of a partition aside.

    Args:
        users: of the partition.
        rows: the number of rows of the whole table.
        rows_of_these: how many rows with items the users with too much have.
        spool: takes them.
    """
    width = max(-(-rows // _BUCKETS), 1)
    users_at = np.searchsorted(users.first_rows, np.arange(_BUCKETS + 1) * width)
    pairs_at = np.concatenate([[0], np.cumsum(users.lengths)])[users_at]
    return Partition(
        first_rows=spool.put(users.first_rows),
        lengths=spool.put(users.lengths.astype(np.int32)),
        items=spool.put(users.items),
        # A user's counts add up to less than 2^31.
        counts=spool.put(users.counts.astype(np.int32)),
        users_at=users_at,
        pairs_at=pairs_at,
        too_many=users.too_many,
        rows_of_these=rows_of_these,
    )


def merged(partitions: Sequence[Partition], *, spool: Spool, each: Each) -> Rows:
    """The users of all partitions, in order."""
    nothing = np.zeros(_BUCKETS + 1, dtype=np.int64)
    users_at: Integers = sum((one.users_at for one in partitions), nothing)
    pairs_at: Integers = sum((one.pairs_at for one in partitions), nothing)
    users, pairs = int(users_at[-1]), int(pairs_at[-1])
    rows = Rows(
        spool.reserve(users + 1, np.int64),
        spool.reserve(pairs, np.int32),
        spool.reserve(pairs, np.int32),
    )
    rows.offsets.write(0, np.zeros(1, dtype=np.int64))

    def merge(buckets: tuple[int, int]) -> None:
        first, last = buckets
        lengths, items, counts = _in_order([one.between(first, last) for one in partitions])
        rows.offsets.write(int(users_at[first]) + 1, pairs_at[first] + np.cumsum(lengths, dtype=np.int64))
        rows.items.write(int(pairs_at[first]), items)
        rows.counts.write(int(pairs_at[first]), counts)

    # A chunk ends with the bucket in which the next _MERGED_PAIRS pairs are complete.
    ends = np.flatnonzero(np.diff(pairs_at // _MERGED_PAIRS)) + 1
    chunks = list(pairwise(np.unique([0, *ends.tolist(), _BUCKETS]).tolist()))
    for _ in each("merge", merge, chunks if partitions else []):
        pass
    return rows


def _in_order(parts: Sequence[tuple[npt.NDArray[Any], ...]]) -> tuple[npt.NDArray[Any], ...]:
    """Lengths, items and counts of the users of all parts, in the order of their first rows."""
    first_rows, lengths, items, counts = (np.concatenate(one) for one in zip(*parts, strict=True))
    if len(parts) == 1:
        return lengths, items, counts
    order = np.argsort(first_rows)
    ordered = lengths[order]
    # From where a user's items go to where they stand.
    shifts = (np.cumsum(lengths, dtype=np.int64) - lengths)[order]
    shifts -= np.cumsum(ordered, dtype=np.int64) - ordered
    places = np.repeat(shifts, ordered)
    places += np.arange(len(items))
    return ordered, items[places], counts[places]
