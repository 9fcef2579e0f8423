"""Where the items of a table go: a keyed hash, under a salt that was unknown when the data was fixed.

A table that decodes or not, depending on who holds what, would reveal data. Whether it decodes is decided by the items'
cells, so the cells must be as good as random *for every set of items that devices may hold*. A public hash, or a keyed
one that is linear, does not give that: an attacker could compute a name that shares all cells with a given other name,
put it into their own data, and see the run fail exactly when some user has the other name.

**The hash.** A key is a fixed number of 32-bit words (length and text, filled up with zeros), that is, of blocks of 16
bytes. Its tag is the CBC-MAC of these blocks under AES-256, and its outputs are the encryptions of `tag ^ 0`, `tag ^
1`, ... under a second, independent key. Both keys come from SHA-512 over a domain tag, the shape and the salt.

**Why it is a pseudorandom function.** CBC-MAC is one for messages of one fixed length: with q keys of b blocks it is
told from a random function with an advantage of at most about (q b)^2 / 2^128 more than AES from a random permutation
(Bellare, Kilian & Rogaway 2000). Given distinct tags, whose blocks `tag ^ j` meet with a probability below (3 q)^2 /
2^128, the outputs are values of a random permutation at distinct places, which are independent and uniform but for a
term of the same size. With 2^22 items of 1,024 bytes all this is below 2^-68. So for data that was fixed before the
salt was drawn, places and checks are as good as independent and uniform, for each item and between items. Places are
64-bit words modulo m, each of which has a chance of at most (1 + m / 2^64) / m.

One encryption call serves a block of all items: there is no loop over items.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from fedhist.protocol.histograms import Integers, Words
from fedhist.protocol.privacy.randomness import aes_blocks

HASHES = 5
"""r: the cells of an item, one in each sub-table."""

CHECK_WORDS = 2
"""The 32-bit words of an item's check."""

SALT_BYTES = 32
"""A salt has 256 bits."""

_TAG = b"fedhist/2/iblt"
_SHAPE = struct.Struct("<QQ")
_BLOCK = 16
_KEY = 32
# Five places and a check of 64 bits each, two to a block.
_BLOCKS_OUT = (HASHES + 2) // 2


class TableHash:
    """The places and checks of keys, for one salt and one shape.

    Args:
        capacity, label_bytes: the table's, which are part of the key.
        part_cells: m, the cells of a sub-table.
        salt: drawn after the data was fixed.
    """

    def __init__(self, *, capacity: int, label_bytes: int, part_cells: int, salt: bytes) -> None:
        self._part_cells = np.uint64(part_cells)
        keys = hashlib.sha512(_TAG + _SHAPE.pack(capacity, label_bytes) + salt).digest()
        self._absorbing_key, self._expanding_key = keys[:_KEY], keys[_KEY:]

    def of(self, words: Integers) -> tuple[Integers, Integers]:
        """For keys as rows of words: the place in each sub-table, of shape (HASHES, keys), and the checks' words."""
        items, width = words.shape
        message = np.zeros((-(-4 * width // _BLOCK), items, _BLOCK // 4), dtype="<u4")
        for number, block in enumerate(message):
            part = words[:, 4 * number : 4 * number + 4]
            block[:, : part.shape[1]] = part
        tags = np.zeros((items, 2), dtype="<u8")
        for block in message:
            tags = _encrypted(self._absorbing_key, tags ^ block.view("<u8"))
        tweaks = np.arange(_BLOCKS_OUT, dtype="<u8")[:, np.newaxis, np.newaxis] * np.array(
            [1, 0], dtype="<u8"
        )
        drawn = (
            _encrypted(self._expanding_key, tags ^ tweaks).astype(np.uint64, copy=False).transpose(0, 2, 1)
        )
        drawn = drawn.reshape(2 * _BLOCKS_OUT, items)
        places = (drawn[:HASHES] % self._part_cells).astype(np.int64)
        check = drawn[HASHES]
        halves = np.stack([check & np.uint64(0xFFFFFFFF), check >> np.uint64(32)], axis=1)
        return places, halves.astype(np.int64)


def _encrypted(key: bytes, blocks: Words) -> Words:
    """AES-256 on each pair of 64-bit words."""
    return np.frombuffer(aes_blocks(key, blocks.tobytes()), dtype="<u8").reshape(blocks.shape)
