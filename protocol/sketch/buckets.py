"""Items hashed into buckets under a public salt: the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fedhist.protocol.histograms import Integers, Words
from fedhist.protocol.labels.name_bytes import in_bytes, in_pieces

_PRIME = 2**31 - 1
_TAG = b"fedhist/1/buckets"


def bucket_numbers(labels: Sequence[str | int], buckets: int, *, salt: bytes) -> Integers:
    """The bucket of each label.

    Two polynomials over the bytes modulo 2^31 - 1 at points drawn from the salt, mixed to 64 bits: two different
    labels of up to L bytes meet in both with probability at most (L/2^31)^2 over the salt, beyond the 1/buckets of any
    hash into buckets. The salt is public: this spreads items, it hides nothing.
    """
    seed = np.frombuffer(hashlib.sha256(_TAG + salt).digest(), dtype="<u8").astype(np.uint64)
    points = [word % (_PRIME - 2) + 1 for word in seed[:2].tolist()]
    numbers = np.empty(len(labels), dtype=np.int64)
    filled = 0
    for piece in in_pieces(labels):
        first, second = _polynomials(*in_bytes(piece), points)
        words = (first << np.uint64(32)) ^ second ^ seed[2]
        # The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        numbers[filled : filled + len(piece)] = (words ^ (words >> np.uint64(31))) % np.uint64(buckets)
        filled += len(piece)
    return numbers


def _polynomials(data: npt.NDArray[np.uint8], lengths: Integers, points: Sequence[int]) -> Iterator[Words]:
    """For each point, and each label: length plus sum of (byte + 1) point^(place + 1), modulo the prime."""
    ends = np.cumsum(lengths)
    place_of = np.arange(len(data)) - np.repeat(ends - lengths, lengths)
    for point in points:
        powers = np.empty(int(lengths.max(initial=0)), dtype=np.uint64)
        power = 1
        for place in range(len(powers)):
            power = power * point % _PRIME
            powers[place] = power
        # A term is below 2^40, so the sum of a label of up to 2^24 bytes fits in a word. Running sums may wrap around.
        running = np.zeros(len(data) + 1, dtype=np.uint64)
        np.cumsum((data + np.uint64(1)) * powers[place_of], out=running[1:])
        sums = running[ends] - running[ends - lengths] + lengths.astype(np.uint64)
        yield sums % np.uint64(_PRIME)
