"""A population in files: mapped for who needs all of it at once, and read shard by shard for the rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fedhist.client.files.spool import Piece
from fedhist.client.populations import SHARD_NONZEROS, SHARD_USERS, SparsePopulation
from fedhist.protocol.histograms import Histograms
from fedhist.protocol.validation import user_blocks

# Read at once; far more than a shard, and little beside any memory.
_READ_USERS = 1 << 17


@dataclass(frozen=True, eq=False, repr=False)
class StoredPopulation(SparsePopulation):
    """Users in files.

    Its `histograms` are mapped from the files, for code that looks at all users at once. A pass over the shards reads
    them instead: what is mapped counts as memory of the process until the system wants it back.

    Args:
        offsets, items, counts: the files of the histograms, of which these are a part.
    """

    offsets: Piece | None = field(default=None, repr=False)
    items: Piece | None = field(default=None, repr=False)
    counts: Piece | None = field(default=None, repr=False)

    def shards(self) -> Iterator[Histograms]:
        """The users in order, read from the files, in pieces as small as those of a population in memory."""
        offsets_file, items, counts = self.offsets, self.items, self.counts
        assert offsets_file is not None and items is not None and counts is not None  # noqa: PT018, S101
        first, last = self.histograms.first_user, self.histograms.first_user + self.users
        for low in range(first, last, _READ_USERS):
            offsets = offsets_file.read(low, min(low + _READ_USERS, last) + 1)
            for start, stop in user_blocks(offsets, nonzeros=SHARD_NONZEROS, users=SHARD_USERS):
                entries = int(offsets[start]), int(offsets[stop])
                yield Histograms(
                    offsets=offsets[start : stop + 1] - entries[0],
                    items=items.read(*entries),
                    counts=counts.read(*entries),
                    domain_size=self.domain_size,
                    first_user=low + start,
                )
