"""Items hashed into buckets under a public salt: the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fedhist.protocol.histograms import Integers, Words

_PRIME = np.uint64(2**31 - 1)
_TAG = b"fedhist/1/buckets"


def item_bytes(label: str | int) -> bytes:
    """An item as it is hashed and compared: UTF-8, integers in decimal. No normalisation.

    A lone surrogate, half a character that JSON may hold, is encoded like any other, as on the wire.
    """
    return str(label).encode("utf-8", errors="surrogatepass")


def bucket_numbers(labels: Sequence[str | int], buckets: int, *, salt: bytes) -> Integers:
    """The bucket of each label.

    Two polynomials over the bytes modulo 2^31 - 1 at points drawn from the salt, mixed to 64 bits: two different
    labels of up to L bytes meet in both with probability at most (L/2^31)^2 over the salt, beyond the 1/buckets of any
    hash into buckets. The salt is public: this spreads items, it hides nothing.
    """
    encoded = [item_bytes(label) for label in labels]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    data = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint64)
    seed = np.frombuffer(hashlib.sha256(_TAG + salt).digest(), dtype="<u8").astype(np.uint64)
    first = _polynomial(data, lengths, int(seed[0] % (_PRIME - np.uint64(2))) + 1)
    second = _polynomial(data, lengths, int(seed[1] % (_PRIME - np.uint64(2))) + 1)
    words = (first << np.uint64(32)) ^ second ^ seed[2]
    # The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    numbers: Integers = ((words ^ (words >> np.uint64(31))) % np.uint64(buckets)).astype(np.int64)
    return numbers


def _polynomial(data: Words, lengths: Integers, point: int) -> Words:
    """Length plus sum of (byte + 1) point^(place + 1), modulo the prime, for each label."""
    longest = int(lengths.max(initial=0))
    powers = np.empty(longest, dtype=np.uint64)
    power = 1
    for place in range(longest):
        power = power * point % int(_PRIME)
        powers[place] = power
    ends = np.cumsum(lengths)
    place_of = np.arange(len(data)) - np.repeat(ends - lengths, lengths)
    terms = (data + np.uint64(1)) * powers[place_of] % _PRIME
    # Sums of terms below 2^31 stay below 2^64 for any label that fits in memory.
    running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms)])
    hashed: Words = (running[ends] - running[ends - lengths] + lengths.astype(np.uint64)) % _PRIME
    return hashed
