"""Integer vectors as residues modulo 2^width, and back.

No overflow: let every user add between -L and L to each value, n users take part, and noise add at most T in absolute
value. Every sum then lies in [-(n L + T), n L + T]. The chosen width w has n L + T < 2^(w-1), so distinct sums have
distinct residues modulo 2^w, and reading the residue as a two's complement number gives the sum itself. Sums of parts
may wrap on the way; that does no harm, because addition modulo 2^w does not depend on the order.

That is about right results. Privacy rests on none of it: a device that lies about its own value is not bound by L and
moves the sum, modulo 2^w, by anything. `protocol/circle.py` says how a sum may be read all the same.

## Masks

Masks: AES-256-CTR keystream read as numbers modulo 2^32 or 2^64.

A mask's key is used for one mask of one session, so the counter starts at zero. The keystream of 256-bit keys that
are themselves outputs of HKDF is indistinguishable from uniform residues, and adding it modulo 2^width hides a value
as a one-time pad does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Integers

Residues = NDArray[np.unsignedinteger[Any]]

# The keystream is made and added piece by piece, so that it is still in the processor's cache when it is added.
_CHUNK_BYTES = 1 << 16
_ZEROS = bytes(_CHUNK_BYTES)
_BLOCK = 16

_TYPES: dict[int, tuple[np.dtype[Any], np.dtype[Any]]] = {
    32: (np.dtype(np.uint32), np.dtype(np.int32)),
    64: (np.dtype(np.uint64), np.dtype(np.int64)),
}


class MaskAdder:
    """Adds masks to residues, or takes them off, in place; one buffer serves all of them."""

    def __init__(self, residues: Residues) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._cipher, self._aes, self._mode = Cipher, algorithms.AES, modes.CTR(bytes(_BLOCK))
        # As much room as the largest piece, and the block more that the library asks for.
        self._buffer = bytearray(min(_CHUNK_BYTES, residues.nbytes + -residues.nbytes % _BLOCK) + _BLOCK)
        per_chunk = _CHUNK_BYTES // residues.itemsize
        little_endian = residues.dtype.newbyteorder("<")
        stream, zeros = np.frombuffer(self._buffer, dtype=little_endian), memoryview(_ZEROS)
        parts = [residues[begin : begin + per_chunk] for begin in range(0, len(residues), per_chunk)]
        self._pieces = [(part, stream[: len(part)], zeros[: part.nbytes]) for part in parts]

    def add(self, key: bytes) -> None:
        """Add the mask of this key, modulo 2^width."""
        self._apply(key, np.add)

    def subtract(self, key: bytes) -> None:
        """Take the mask of this key off, modulo 2^width."""
        self._apply(key, np.subtract)

    def _apply(self, key: bytes, operation: np.ufunc) -> None:
        encryptor = self._cipher(self._aes(key), self._mode).encryptor()
        for part, stream, zeros in self._pieces:
            encryptor.update_into(zeros, self._buffer)
            operation(part, stream, out=part)


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
