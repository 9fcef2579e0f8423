"""Shamir's secret sharing of 32-byte secrets over the prime field of 2^256 + 297 elements.

This is the smallest prime above 2^256, so every 32-byte string is an element. A share of threshold t is the value of a
random polynomial of degree t - 1 with the secret as its constant term; t shares at distinct points, none of them 0,
give the secret back, and t - 1 say nothing about it.

The arithmetic is Python's and takes a time that depends on the secret. To measure that, an attacker would have to be on
the device itself.

## Boxes

Sealed boxes: one device's shares for one neighbour, AES-256-GCM under a key that only the two have.

The nonce is random, though a key seals one box in a session: a device that was set back to an older state and seals
again must not repeat a nonce. The associated data binds the session, the sender and the receiver, so a box that is
replayed, swapped or sent back does not open.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.masking.crypto import draw_bytes
from fedhist.protocol.privacy.randomness import Source

PRIME = (1 << 256) + 297
_SECRET_BYTES = 32
SHARE_BYTES = 33
# 384 bits modulo a prime of 257: within 2^-127 of uniform.
_COEFFICIENT_BYTES = 48

NONCE_BYTES = 12
_TAG_BYTES = 16
BOX_BYTES = NONCE_BYTES + 2 * SHARE_BYTES + _TAG_BYTES
PAIR_KEY_BYTES = 64
_AAD_TAG = b"fedhist/masking/1/box\x00"
_IDS = struct.Struct("<QQ")

SharePair = tuple[bytes, bytes]
"""A share of the mask secret, and a share of the self-mask seed."""


def split(secret: bytes, threshold: int, holders: int, *, source: Source) -> list[bytes]:
    """Shares of a secret at the points 1, 2, ..., holders."""
    if len(secret) != _SECRET_BYTES:
        raise InvalidInput(f"the secret has {len(secret)} bytes", allowed=f"{_SECRET_BYTES} bytes")
    if not 1 <= threshold <= holders:
        raise InvalidInput(
            f"the threshold of {holders} shares is {threshold}", allowed="1 to the number of shares"
        )
    random = draw_bytes(_COEFFICIENT_BYTES * (threshold - 1), source=source)
    falling = [
        int.from_bytes(random[begin : begin + _COEFFICIENT_BYTES], "little") % PRIME
        for begin in range(0, len(random), _COEFFICIENT_BYTES)
    ]
    falling.append(int.from_bytes(secret, "little"))
    return [_evaluate(falling, point).to_bytes(SHARE_BYTES, "little") for point in range(1, holders + 1)]


def reconstruct(points: Sequence[int], shares: Sequence[bytes]) -> bytes | None:
    """The secret from exactly `threshold` shares; None if the result is not a 32-byte string."""
    total = sum(
        weight * int.from_bytes(share, "little")
        for weight, share in zip(lagrange_at_zero(tuple(points)), shares, strict=True)
    )
    secret = total % PRIME
    return secret.to_bytes(_SECRET_BYTES, "little") if secret >> 256 == 0 else None


def correct(
    points: Sequence[int], shares: Sequence[bytes], threshold: int
) -> tuple[bytes, frozenset[int]] | None:
    """The secret, and the points of wrong shares, if at most half of the shares beyond the threshold are wrong.

    Gao 2003: let n shares lie on f, of degree below t, all but e <= (n - t)/2 of them. Euclid's algorithm on g = prod
    (x - x_i) and the polynomial through all n shares stops at the first remainder r = u g + v h of degree below (n +
    t)/2. Then r = f v, and v is zero at the points of the wrong shares and at no others, so f(0) = r(0)/v(0).

    Returns:
        A candidate for the secret, which the caller has to check. None if there is none.
    """
    order = sorted(range(len(points)), key=points.__getitem__)
    at = [points[place] for place in order]
    before = [1]
    for point in at:
        before = _times_root(before, point)
    rest = _interpolate(at, [int.from_bytes(shares[place], "little") for place in order])
    ahead, locator = [0], [1]
    while 2 * (len(rest) - 1) >= len(at) + threshold:
        quotient, remainder = _divide(before, rest)
        before, rest = rest, remainder
        ahead, locator = locator, _less_product(ahead, quotient, locator)
    if locator[0] == 0:
        return None
    secret = (rest or [0])[0] * pow(locator[0], -1, PRIME) % PRIME
    if secret >> 256:
        return None
    falling = locator[::-1]
    wrong = frozenset(point for point in at if _evaluate(falling, point) == 0)
    return secret.to_bytes(_SECRET_BYTES, "little"), wrong


def _interpolate(points: Sequence[int], values: Sequence[int]) -> list[int]:
    """The polynomial through these values, by Newton's divided differences; the constant coefficient comes first."""
    table = list(values)
    for step in range(1, len(points)):
        for place in range(len(points) - 1, step - 1, -1):
            inverse = _inverse(points[place] - points[place - step])
            table[place] = (table[place] - table[place - 1]) * inverse % PRIME
    found: list[int] = []
    for point, difference in zip(reversed(points), reversed(table), strict=True):
        found = _times_root(found, point) if found else [0]
        found[0] = (found[0] + difference) % PRIME
    return _trimmed(found)


def _times_root(polynomial: list[int], root: int) -> list[int]:
    """The polynomial times (x - root)."""
    shifted = zip([0, *polynomial], [*polynomial, 0], strict=True)
    return [(above - root * here) % PRIME for above, here in shifted]


def _divide(number: list[int], by: list[int]) -> tuple[list[int], list[int]]:
    """Quotient and remainder of two polynomials; the divisor is not zero."""
    rest, inverse = list(number), pow(by[-1], -1, PRIME)
    quotient = [0] * (len(number) - len(by) + 1)
    for shift in range(len(quotient) - 1, -1, -1):
        factor = rest.pop() * inverse % PRIME
        quotient[shift] = factor
        for place, coefficient in enumerate(by[:-1], start=shift):
            rest[place] = (rest[place] - factor * coefficient) % PRIME
    return quotient, _trimmed(rest)


def _less_product(start: list[int], first: list[int], second: list[int]) -> list[int]:
    """The first polynomial minus the product of the other two."""
    result = start + [0] * (len(first) + len(second) - 1 - len(start))
    for shift, factor in enumerate(first):
        for place, coefficient in enumerate(second, start=shift):
            result[place] = (result[place] - factor * coefficient) % PRIME
    return _trimmed(result)


def _trimmed(polynomial: list[int]) -> list[int]:
    while polynomial and polynomial[-1] == 0:
        polynomial.pop()
    return polynomial


@lru_cache(maxsize=4096)
def _inverse(number: int) -> int:
    return pow(number, -1, PRIME)


def check_share(share: bytes) -> None:
    """Raise DecodeError unless these bytes are an element of the field, in its one encoding."""
    if len(share) != SHARE_BYTES or int.from_bytes(share, "little") >= PRIME:
        raise DecodeError("the bytes are not a share", code="bad-share")


@lru_cache(maxsize=4096)
def lagrange_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """The weights with which values at these points add up to the value at 0.

    w_i = prod_{j != i} x_j / (x_j - x_i). All are inverted at the price of one inversion (Montgomery's trick).
    """
    if len(set(points)) != len(points) or not all(0 < point < PRIME for point in points):
        raise InvalidInput("the points of the shares repeat or contain 0", allowed="distinct points from 1")
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
    """Horner's rule. Points are small, so the value is reduced only now and then."""
    value = 0
    for count, coefficient in enumerate(falling):
        value = value * point + coefficient
        if count % 32 == 31:
            value %= PRIME
    return value % PRIME


def sending_key(pair_key: bytes, me: int, peer: int) -> bytes:
    """The half of a pair's key that seals from me to the peer, and opens what I sealed."""
    return pair_key[:32] if me < peer else pair_key[32:]


def seal_all(
    me: int, keys: Sequence[tuple[int, bytes]], shares: Sequence[SharePair], context: bytes, *, source: Source
) -> list[tuple[int, bytes]]:
    """A box for each receiver (id, key), in their order."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonces = draw_bytes(NONCE_BYTES * len(keys), source=source)
    bound, sealed = _AAD_TAG + context, []
    for number, ((receiver, key), (secret_share, seed_share)) in enumerate(zip(keys, shares, strict=True)):
        nonce = nonces[number * NONCE_BYTES : (number + 1) * NONCE_BYTES]
        aad = bound + _IDS.pack(me, receiver)
        sealed.append((receiver, nonce + AESGCM(key).encrypt(nonce, secret_share + seed_share, aad)))
    return sealed


def open_all(
    me: int, keys: Mapping[int, bytes], boxes: Sequence[tuple[int, bytes]], context: bytes
) -> tuple[dict[int, SharePair], list[int]]:
    """The two shares in each box (sender, box), and the senders of those that they did not seal for me in this session.

    A box that holds no shares is one of these. `keys` has the key of each sender.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    bound, shares, bad = _AAD_TAG + context, dict[int, SharePair](), list[int]()
    for sender, box in boxes:
        aad = bound + _IDS.pack(sender, me)
        try:
            if len(box) != BOX_BYTES:
                raise DecodeError(f"a box of {len(box)} bytes where {BOX_BYTES} are due")
            opened = AESGCM(keys[sender]).decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], aad)
            pair = opened[:SHARE_BYTES], opened[SHARE_BYTES:]
            check_share(pair[0])
            check_share(pair[1])
        except (InvalidTag, DecodeError):
            bad.append(sender)  # audited: bad box
        else:
            shares[sender] = pair
    return shares, bad
