"""Where random bits come from: the operating system, a seed, or a device's secret.

A seed is for simulations that must repeat themselves. A secret is for a device that must give the same answer to the
same request.

Every function that draws takes a `Source` as a keyword argument; nothing in fedhist has a generator of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import operator
import os
from typing import Protocol

import numpy as np

from fedhist.protocol.histograms import Integers, Words

_STREAM_TAG = b"fedhist/1/source/stream"
_USER_TAG = b"fedhist/1/source/by-user"
_KEYED_TAG = b"fedhist/1/source/keyed"
_BUFFER_WORDS = 4096
SECRET_BYTES = 32
"""The length of a device's secret."""


class Source(Protocol):
    """A stream of uniform 64-bit words, and streams forked from it for one purpose each."""

    @property
    def seeded(self) -> bool:
        """Whether someone who knows the seed can compute every draw: never for a real release."""

    def words(self, count: int) -> Words:
        """The next `count` uniform words."""

    def fork(self, *purpose: str | int) -> Source:
        """An independent stream bound to this purpose: the same purpose gives the same stream of a seeded source."""

    def user_words(self, users: Integers, draw: Integers | int = 0) -> Words:
        """One uniform word for each user, or for each user and the number of a draw.

        A seeded source gives each such pair its own word, whatever else is in the batch, so a draw does not
        depend on how users are sharded. It does not advance the stream.
        """


class SystemSource:
    """The operating system's generator."""

    seeded = False

    def words(self, count: int) -> Words:
        """The next `count` words of the operating system's generator."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def fork(self, *purpose: str | int) -> SystemSource:
        """The operating system's generator again: its draws are independent already."""
        return self

    def user_words(self, users: Integers, draw: Integers | int = 0) -> Words:
        """A fresh word for each user."""
        return self.words(len(users))


class SeededSource:
    """AES-256 in counter mode under a key derived from the seed and the purpose. For simulation only."""

    seeded = True

    def __init__(self, seed: int, *, _path: tuple[str | int, ...] = ()) -> None:
        self._seed = seed
        self._path = _path
        self._key = _derive_key(_STREAM_TAG, seed, _path)
        self._next_block = 0
        self._buffer = np.empty(0, dtype=np.uint64)

    def __repr__(self) -> str:
        return f"SeededSource(purpose={'/'.join(map(str, self._path)) or 'root'})"

    def words(self, count: int) -> Words:
        """The next `count` words of this stream; asking in pieces gives the same words as asking at once."""
        if count > len(self._buffer):
            fresh = self._keystream(max(count - len(self._buffer), _BUFFER_WORDS))
            self._buffer = np.concatenate([self._buffer, fresh])
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def fork(self, *purpose: str | int) -> SeededSource:
        """The stream of this purpose, from its beginning."""
        return SeededSource(self._seed, _path=(*self._path, *purpose))

    def user_words(self, users: Integers, draw: Integers | int = 0) -> Words:
        """The first half of AES(key, user number and draw), under a key that the stream itself does not use."""
        key = _derive_key(_USER_TAG, self._seed, self._path)
        blocks = np.empty((len(users), 2), dtype="<u8")
        blocks[:, 0] = users
        blocks[:, 1] = draw
        encrypted = aes_blocks(key, blocks.tobytes())
        return np.frombuffer(encrypted, dtype="<u8").astype(np.uint64, copy=False)[::2]

    def _keystream(self, at_least: int) -> Words:
        blocks = -(-at_least // 2)
        counters = np.zeros((blocks, 2), dtype="<u8")
        counters[:, 0] = np.arange(self._next_block, self._next_block + blocks, dtype=np.uint64)
        self._next_block += blocks
        encrypted = aes_blocks(self._key, counters.tobytes())
        return np.frombuffer(encrypted, dtype="<u8").astype(np.uint64, copy=False)


class KeyedSource:
    """Draws that depend on a secret and a purpose alone: without the secret they can't be repeated.

    A device draws the same for a repeated request, and independently for another request. Not for keys or noise: an
    attacker who learns the secret later could compute them.

    Args:
        secret: SECRET_BYTES random bytes from the operating system.
        purpose: what the draws are for.
    """

    seeded = False

    def __init__(self, secret: bytes, *, purpose: str) -> None:
        key = hmac.digest(secret, _KEYED_TAG + b"\x00" + purpose.encode(), "sha256")
        self._stream = SeededSource(int.from_bytes(key, "big"))

    def __repr__(self) -> str:
        return "KeyedSource()"

    def words(self, count: int) -> Words:
        """The next `count` words of this stream."""
        return self._stream.words(count)

    def fork(self, *purpose: str | int) -> KeyedSource:
        """The stream of this purpose, from its beginning."""
        forked = object.__new__(KeyedSource)
        forked._stream = self._stream.fork(*purpose)
        return forked

    def user_words(self, users: Integers, draw: Integers | int = 0) -> Words:
        """The word of each user and draw, the same each time."""
        return self._stream.user_words(users, draw)


def new_secret() -> bytes:
    """A secret for a KeyedSource, from the operating system."""
    return os.urandom(SECRET_BYTES)


def _derive_key(tag: bytes, seed: int, path: tuple[str | int, ...]) -> bytes:
    digest = hashlib.sha256(tag)
    for part in (seed, *path):
        encoded = f"str:{part}".encode() if isinstance(part, str) else f"int:{operator.index(part)}".encode()
        digest.update(len(encoded).to_bytes(4, "little") + encoded)
    return digest.digest()


def aes_blocks(key: bytes, blocks: bytes) -> bytes:
    """AES-256 on each block of 16 bytes by itself. The caller makes a mode of it: counters, or CBC-MAC."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - block by block is what is wanted
    return encryptor.update(blocks) + encryptor.finalize()
