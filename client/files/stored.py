"""A population in files: mapped for who needs all of it at once, and read shard by shard for the rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedhist.client.files.spool import Spool
from fedhist.client.populations import SHARD_NONZEROS, SHARD_USERS, SparsePopulation
from fedhist.protocol.histograms import Histograms, Integers
from fedhist.protocol.validation import user_blocks

# Offsets that are read at once: little beside any memory.
_READ_USERS = 1 << 17


class Column(Protocol):
    """Values in memory or in a file."""

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
        """Those from start to stop."""


def shards_in(
    offsets: Column,
    items: Column,
    counts: Column,
    *,
    users: range,
    domain_size: int,
    first_user: int = 0,
) -> Iterator[Histograms]:
    """Users in order, read from compressed sparse rows in shards as small as those of a population in memory.

    Args:
        offsets: where each user's entries begin, for all users there.
        items: of all entries.
        counts: of all entries.
        users: the places of those that are read.
        domain_size: the number of items.
        first_user: the number of the user at place 0.
    """
    for low in users[::_READ_USERS]:
        starts = offsets.read(low, min(low + _READ_USERS, users.stop) + 1)
        for start, stop in user_blocks(starts, nonzeros=SHARD_NONZEROS, users=SHARD_USERS):
            entries = int(starts[start]), int(starts[stop])
            yield Histograms(
                offsets=starts[start : stop + 1] - entries[0],
                items=items.read(*entries),
                counts=counts.read(*entries),
                domain_size=domain_size,
                first_user=first_user + low + start,
            )


class StoredRows:
    """Compressed sparse rows that are put aside: `Histograms` that need not fit in memory.

    Args:
        most: as many users, and as many of their items, there are at most. What is never filled takes no
            memory.
        spool: takes them.
    """

    def __init__(self, most: int, spool: Spool) -> None:
        self.users = self.pairs = 0
        self.offsets = spool.reserve(most + 1, np.int64)
        self.items, self.counts = spool.reserve(most, np.int32), spool.reserve(most, np.int32)
        self.offsets.write(0, np.zeros(1, dtype=np.int64))

    def append(self, lengths: Integers, items: npt.NDArray[Any], counts: Integers) -> None:
        """The next users: the number of each one's items, the items, and how often each user has each."""
        self.offsets.write(self.users + 1, self.pairs + np.cumsum(lengths))
        self.items.write(self.pairs, items)
        self.counts.write(self.pairs, counts)
        self.users += len(lengths)
        self.pairs += len(items)

    @property
    def in_memory(self) -> bool:
        """Whether there was room for all of them."""
        return all(piece.held is not None for piece in (self.offsets, self.items, self.counts))

    def mapped(self, domain_size: int) -> Histograms:
        """All users; what is in files is mapped."""
        items, counts = self.items.mapped(self.pairs), self.counts.mapped(self.pairs)
        return Histograms(self.offsets.mapped(self.users + 1), items, counts, domain_size)


@dataclass(frozen=True, eq=False, repr=False)
class StoredPopulation(SparsePopulation):
    """Users in files.

    Its `histograms` are mapped from the files, for code that looks at all users at once. A pass over the shards reads
    them instead: what is mapped counts as memory of the process until the system wants it back.

    Args:
        rows: where all users are, of whom these may be a part.
    """

    rows: StoredRows = field(kw_only=True, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what another process gets, is in memory: files without names are of this process."""
        labels = None if self.labels is None else tuple(self.labels)
        return SparsePopulation, (
            *(self.histograms, labels),
            *(self.dropped_items, self.dropped_count, self.item_origin),
        )

    def shards(self) -> Iterator[Histograms]:
        """The users in order, read from the files, in pieces as small as those of a population in memory."""
        first, rows = self.histograms.first_user, self.rows
        return shards_in(
            rows.offsets,
            rows.items,
            rows.counts,
            users=range(first, first + self.users),
            domain_size=self.domain_size,
        )
