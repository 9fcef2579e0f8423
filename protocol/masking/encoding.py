"""Integer vectors as residues modulo 2^width, and back.

No overflow: let every user add between -L and L to each value, n users take part, and noise add at most T in absolute
value. Every sum then lies in [-(n L + T), n L + T]. The chosen width w has n L + T < 2^(w-1), so distinct sums have
distinct residues modulo 2^w, and reading the residue as a two's complement number gives the sum itself. Sums of parts
may wrap on the way; that does no harm, because addition modulo 2^w does not depend on the order.

That is about right results. Privacy rests on none of it: a device that lies about its own value is not bound by L and
moves the sum, modulo 2^w, by anything. `protocol/circle.py` says how a sum may be read all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.prg import Residues

_TYPES: dict[int, tuple[np.dtype[Any], np.dtype[Any]]] = {
    32: (np.dtype(np.uint32), np.dtype(np.int32)),
    64: (np.dtype(np.uint64), np.dtype(np.int64)),
}


def width_for(largest: int, users: int, *, noise_tail: int = 0) -> int:
    """The number of bits that holds every sum over `users` users and the noise: 32 if that is enough, else 64."""
    reach = largest * users + noise_tail
    for width in _TYPES:
        if reach < 1 << (width - 1):  # audited: width
            return width
    raise InvalidInput(
        f"sums of {users:,} users may reach {reach:,}",
        allowed="less than 2^63",
        advice="use a coarser grid, a smaller bound or fewer users",
        code="sum-too-large",
    )


def zeros(length: int, width: int) -> Residues:
    """An empty sum."""
    return np.zeros(length, dtype=_TYPES[width][0])


def to_residues(values: Integers, width: int) -> Residues:
    """A copy of the values modulo 2^width. Large ones wrap around: an error would reveal that there is one."""
    if values.dtype != np.int64 or values.ndim != 1:
        raise InvalidInput(
            f"the values have the type {values.dtype} and {values.ndim} dimensions",
            allowed="a vector of 64-bit integers",
        )
    residues: Residues = values.view(np.uint64).astype(_TYPES[width][0])
    return residues


def to_integers(residues: Residues) -> Integers:
    """The signed numbers that these residues stand for."""
    return residues.view(_TYPES[residues.itemsize * 8][1]).astype(np.int64)


def residue_bytes(residues: Residues) -> memoryview:
    """The bytes of the residues, little-endian; without a copy on little-endian machines."""
    return residues.astype(residues.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


def read_residues(data: memoryview, width: int) -> Residues:
    """A read-only view of residues, little-endian."""
    return np.frombuffer(data, dtype=_TYPES[width][0].newbyteorder("<"))
