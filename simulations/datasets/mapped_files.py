"""A population as files: mapped into memory by many processes that share one copy, or read piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.client.files.spool import shards_in
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.histograms import Histograms, Labels, Population, labels_of

ABOUT = "about.json"
"""Written last."""

_OFFSETS, _ITEMS, _COUNTS = "offsets.bin", "items.bin", "counts.bin"


@dataclass(frozen=True)
class StoredUsers:
    """Users in a folder, read shard by shard: no more than a shard is in memory. It pickles as a path and a range.

    For processes that read a part each, once. Who reads the same users again and again maps them, see `read_mapped`.

    Args:
        folder: filled by `write_mapped`.
        start, stop: the places of the users there.
    """

    folder: Path
    start: int
    stop: int
    travels = True

    @property
    def marker(self) -> Path:
        """A file that every reader of the users can read."""
        return self.folder / ABOUT

    @property
    def users(self) -> int:
        """The number of these users."""
        return self.stop - self.start

    @property
    def domain_size(self) -> int:
        """The number of items in the domain."""
        return int(_about(self.folder)["domain_size"])

    @property
    def labels(self) -> Labels | None:
        """What the items are called."""
        labels: Labels | None = _about(self.folder)["labels"]
        return labels

    def part(self, start: int, stop: int) -> StoredUsers:
        """Users start..stop of these."""
        return StoredUsers(self.folder, self.start + start, self.start + stop)

    def shards(self) -> Iterator[Histograms]:
        """The users in order, in shards as of a population in memory."""
        about, columns = _about(self.folder), (_OFFSETS, _ITEMS, _COUNTS)
        return shards_in(
            *(_File(self.folder / name, np.int64 if name == _OFFSETS else np.int32) for name in columns),
            users=range(self.start, self.stop),
            domain_size=int(about["domain_size"]),
            first_user=int(about["first_user"]),
        )


@dataclass(frozen=True)
class _File:
    """Whole numbers in a file, read from any place on."""

    path: Path
    kind: type[np.int32] | type[np.int64]

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
        """The numbers from start to stop."""
        count = -1 if stop is None else stop - start
        found = np.fromfile(
            self.path, dtype=self.kind, count=count, offset=start * np.dtype(self.kind).itemsize
        )
        if len(found) < count:
            raise InvalidFile(f"{self.path} has become shorter", allowed="the file as it was written")
        return found


def write_mapped(population: Population, folder: Path) -> StoredUsers:
    """All users, shard by shard, into an existing folder."""
    lengths = [np.zeros(1, dtype=np.int64)]
    first_user: int | None = None
    with (folder / _ITEMS).open("wb") as items, (folder / _COUNTS).open("wb") as counts:
        for shard in population.shards():
            first_user = shard.first_user if first_user is None else first_user
            entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
            # Item numbers and counts are below 2^31, see Plan and Histograms.
            items.write(np.ascontiguousarray(shard.items[entries], dtype=np.int32).data)
            counts.write(np.ascontiguousarray(shard.counts[entries], dtype=np.int32).data)
            lengths.append(np.diff(shard.offsets).astype(np.int64))
    offsets = np.cumsum(np.concatenate(lengths))
    # Not with tofile, which may leave part of an array on a full disk without an error.
    (folder / _OFFSETS).write_bytes(offsets.data)
    named = labels_of(population)
    about = {
        "domain_size": population.domain_size,
        "first_user": first_user or 0,
        "labels": None if named is None else list(named),
    }
    (folder / ABOUT).write_text(json.dumps(about), encoding="ascii")
    return StoredUsers(folder, 0, len(offsets) - 1)


def read_mapped(folder: Path) -> SparsePopulation:
    """The users in this folder, mapped into memory."""
    about = _about(folder)
    histograms = Histograms(
        offsets=_column(folder / _OFFSETS, np.int64),
        items=_column(folder / _ITEMS, np.int32),
        counts=_column(folder / _COUNTS, np.int32),
        domain_size=about["domain_size"],
        first_user=about["first_user"],
    )
    return SparsePopulation(histograms, labels=about["labels"])


def _about(folder: Path) -> dict[str, Any]:
    """What the folder says of its users."""
    path = folder / ABOUT
    return _parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _parsed(path: Path, written: int) -> dict[str, Any]:
    """Once in each process, which serves many parts."""
    about: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    return about | {"labels": None if about["labels"] is None else tuple(about["labels"])}


def _column(path: Path, kind: type[np.int32] | type[np.int64]) -> npt.NDArray[Any]:
    # An empty file can't be mapped.
    if path.stat().st_size == 0:
        return np.empty(0, dtype=kind)
    # As a plain array, because a memory map does extra work on every slice.
    return np.memmap(path, dtype=kind, mode="r").view(np.ndarray)
