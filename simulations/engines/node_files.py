"""What virtual nodes read: each its own users, mapped into memory without a copy, and its key for signed masking."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.masking.crypto import KEY_BYTES, Identity, draw_bytes
from fedhist.protocol.privacy.randomness import Source
from fedhist.simulations.datasets.mapped_files import read_mapped
from fedhist.simulations.engines.masked_in_process import numbered_identities

_mapped = lru_cache(maxsize=1)(read_mapped)
"""Mapped once in each process, which serves many nodes."""


def read_part(folder: Path, number: int, parts: int) -> SparsePopulation:
    """The users of one node of `parts`, under their numbers in the whole population."""
    whole = _mapped(folder)
    start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
    return whole.part(start, stop)


def write_secrets(folder: Path, nodes: int, *, source: Source) -> None:
    """A secret for each node, from which its key for signed masking is made. In a simulation all lie in one place."""
    (folder / "secrets.bin").write_bytes(draw_bytes(KEY_BYTES * nodes, source=source))


@lru_cache(maxsize=1)
def read_identities(folder: Path) -> Sequence[Identity]:
    """Each node's key with the directory of all."""
    data = (folder / "secrets.bin").read_bytes()
    return numbered_identities([data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)])
