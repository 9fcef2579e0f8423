"""Shamir's secret sharing of 32-byte secrets over the prime field of 2^256 + 297 elements.

The smallest prime above 2^256, so every 32-byte string is an element. A share of threshold t is the value of a
random polynomial of degree t - 1 with the secret as its constant term; t shares at distinct points, none of them 0,
give the secret back, and t - 1 say nothing about it.

The arithmetic is Python's and not constant in time. Whoever can time a device that closely sits on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.masking.keys import draw_bytes
from fedhist.protocol.privacy.randomness import Source

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
# 384 bits modulo a prime of 257: within 2^-127 of uniform.
_COEFFICIENT_BYTES = 48


def split(secret: bytes, threshold: int, holders: int, *, source: Source) -> list[bytes]:
    """Shares of a secret at the points 1, 2, ..., holders."""
    if len(secret) != SECRET_BYTES:
        raise InvalidInput("a secret of another length", allowed="32 bytes")
    if not 1 <= threshold <= holders:
        raise InvalidInput(f"threshold {threshold} of {holders} shares", allowed="1 to the number of shares")
    random = draw_bytes(_COEFFICIENT_BYTES * (threshold - 1), source=source)
    falling = [
        int.from_bytes(random[begin : begin + _COEFFICIENT_BYTES], "little") % PRIME
        for begin in range(0, len(random), _COEFFICIENT_BYTES)
    ]
    falling.append(int.from_bytes(secret, "little"))
    return [_evaluate(falling, point).to_bytes(SHARE_BYTES, "little") for point in range(1, holders + 1)]


def reconstruct(points: Sequence[int], shares: Sequence[bytes]) -> bytes | None:
    """The secret from exactly `threshold` shares; None if what they give is no 32-byte string."""
    total = sum(
        weight * int.from_bytes(share, "little")
        for weight, share in zip(lagrange_at_zero(tuple(points)), shares, strict=True)
    )
    secret = total % PRIME
    return secret.to_bytes(SECRET_BYTES, "little") if secret >> 256 == 0 else None


def check_share(share: bytes) -> None:
    """DecodeError unless these bytes are an element of the field, in its one encoding."""
    if len(share) != SHARE_BYTES or int.from_bytes(share, "little") >= PRIME:
        raise DecodeError("the bytes are no share")


@lru_cache(maxsize=4096)
def lagrange_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """The weights with which values at these points add up to the value at 0.

    w_i = prod_{j != i} x_j / (x_j - x_i). All are inverted at the price of one inversion (Montgomery's trick).
    """
    if len(set(points)) != len(points) or not all(0 < point < PRIME for point in points):
        raise InvalidInput("the points of shares are not distinct or hold 0", allowed="distinct, from 1")
    everything = prod(points)
    below = [x * prod(other - x for other in points if other != x) % PRIME for x in points]
    prefixes = list(accumulate(below, lambda a, b: a * b % PRIME, initial=1))
    inverse = pow(prefixes[-1], -1, PRIME)
    weights = []
    for value, prefix in zip(reversed(below), reversed(prefixes[:-1]), strict=True):
        weights.append(everything * inverse * prefix % PRIME)
        inverse = inverse * value % PRIME
    return tuple(reversed(weights))


def _evaluate(falling: Sequence[int], point: int) -> int:
    """Horner's rule; points are small, so it pays to reduce only now and then."""
    value = 0
    for count, coefficient in enumerate(falling):
        value = value * point + coefficient
        if count % 32 == 31:
            value %= PRIME
    return value % PRIME
