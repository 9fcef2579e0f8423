"""Masks: AES-256-CTR keystream read as numbers modulo 2^32 or 2^64.

A mask's key is used for one mask of one session, so the counter starts at zero. The keystream of 256-bit keys that
are themselves outputs of HKDF is indistinguishable from uniform residues, and adding it modulo 2^width hides a value
as a one-time pad does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Residues = NDArray[np.unsignedinteger[Any]]

# The keystream is made and added piece by piece, so that it is still in the processor's cache when it is added.
_CHUNK_BYTES = 1 << 16
_ZEROS = bytes(_CHUNK_BYTES)
_BLOCK = 16


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
