"""A population as files that many processes map into memory, so that they share one copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Histograms, Population, labels_of

ABOUT = "about.json"
"""Written last."""


def write_mapped(population: Population, folder: Path) -> None:
    """All users, shard by shard, into an existing folder."""
    lengths = [np.zeros(1, dtype=np.int64)]
    with (folder / "items.bin").open("wb") as items, (folder / "counts.bin").open("wb") as counts:
        for shard in population.shards():
            entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
            # Item numbers and counts are below 2^31, see Plan and Histograms.
            items.write(np.ascontiguousarray(shard.items[entries], dtype=np.int32).data)
            counts.write(np.ascontiguousarray(shard.counts[entries], dtype=np.int32).data)
            lengths.append(np.diff(shard.offsets).astype(np.int64))
    # Not with tofile, which may leave part of an array on a full disk without an error.
    (folder / "offsets.bin").write_bytes(np.cumsum(np.concatenate(lengths)).data)
    named = labels_of(population)
    about = {"domain_size": population.domain_size, "labels": None if named is None else list(named)}
    (folder / ABOUT).write_text(json.dumps(about), encoding="ascii")


def read_mapped(folder: Path) -> SparsePopulation:
    """The users in this folder."""
    about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="ascii"))
    histograms = Histograms(
        offsets=_column(folder / "offsets.bin", np.int64),
        items=_column(folder / "items.bin", np.int32),
        counts=_column(folder / "counts.bin", np.int32),
        domain_size=about["domain_size"],
    )
    return SparsePopulation(histograms, labels=None if about["labels"] is None else tuple(about["labels"]))


def _column(path: Path, kind: type[np.int32] | type[np.int64]) -> npt.NDArray[Any]:
    # An empty file can't be mapped.
    if path.stat().st_size == 0:
        return np.empty(0, dtype=kind)
    # As a plain array, because a memory map does extra work on every slice.
    return np.memmap(path, dtype=kind, mode="r").view(np.ndarray)
