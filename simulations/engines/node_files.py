"""A population as files that many processes map into memory: each node reads its own users and no copy is made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import AnyIntegers, Histograms, Population, labels_of
from fedhist.protocol.masking.keys import KEY_BYTES, Identity, draw_bytes
from fedhist.protocol.privacy.randomness import Source
from fedhist.simulations.engines.masked_in_process import numbered_identities


def write_population(population: Population, folder: Path) -> None:
    """All users, shard by shard: what a node needs to find its part."""
    lengths = [np.zeros(1, dtype=np.int64)]
    with (folder / "items.bin").open("wb") as items, (folder / "counts.bin").open("wb") as counts:
        for shard in population.shards():
            entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
            # Item numbers and counts are below 2^31, see Plan and Histograms.
            items.write(np.ascontiguousarray(shard.items[entries], dtype=np.int32).data)
            counts.write(np.ascontiguousarray(shard.counts[entries], dtype=np.int32).data)
            lengths.append(np.diff(shard.offsets).astype(np.int64))
    np.save(folder / "offsets.npy", np.cumsum(np.concatenate(lengths)))
    named = labels_of(population)
    labels = None if named is None else list(named)
    about = {"domain_size": population.domain_size, "labels": labels}
    (folder / "about.json").write_text(json.dumps(about), encoding="ascii")


def read_part(folder: Path, number: int, parts: int) -> SparsePopulation:
    """The users of one node of `parts`, under their numbers in the whole population."""
    whole, labels = _mapped(folder)
    start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
    return SparsePopulation(whole.rows(start, stop), labels=labels)


def write_secrets(folder: Path, nodes: int, *, source: Source) -> None:
    """A secret for each node, from which its key for signed masking is made. In a simulation all lie in one place."""
    (folder / "secrets.bin").write_bytes(draw_bytes(KEY_BYTES * nodes, source=source))


@lru_cache(maxsize=1)
def read_identities(folder: Path) -> Sequence[Identity]:
    """Each node's key with the directory of all."""
    data = (folder / "secrets.bin").read_bytes()
    return numbered_identities([data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)])


@lru_cache(maxsize=1)
def _mapped(folder: Path) -> tuple[Histograms, Sequence[str | int] | None]:
    """Mapped once in each process, which serves many nodes."""
    about: dict[str, Any] = json.loads((folder / "about.json").read_text(encoding="ascii"))
    offsets: npt.NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
    histograms = Histograms(
        offsets=offsets,
        items=_column(folder / "items.bin"),
        counts=_column(folder / "counts.bin"),
        domain_size=about["domain_size"],
    )
    labels = about["labels"]
    return histograms, None if labels is None else tuple(labels)


def _column(path: Path) -> AnyIntegers:
    # An empty file can't be mapped.
    if path.stat().st_size == 0:
        return np.empty(0, dtype=np.int32)
    return np.memmap(path, dtype=np.int32, mode="r")
