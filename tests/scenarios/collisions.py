"""How to find a name that shares all cells with another one, for the linear hash that tables once had.

That hash was two sums of a name's 32-bit words with public 64-bit coefficients, modulo 2^64. Names of 32 bytes have
eight words, so the differences that change neither sum are a lattice of determinant 2^128 in eight dimensions: it has
vectors with entries near 2^16, and reduction finds them at once.
"""

from __future__ import annotations

import hashlib
import struct
from fractions import Fraction
from itertools import combinations

import numpy as np

NAME_BYTES = 32
_MODULUS = 2**64


def old_coefficients(capacity: int, salt: bytes) -> list[tuple[int, int]]:
    """The coefficients of the old hash for names of up to 32 bytes: of the length, then of each word."""
    words = 1 + NAME_BYTES // 4
    stream = hashlib.shake_256(b"fedhist/1/iblt" + struct.pack("<QQ", capacity, NAME_BYTES) + salt)
    drawn = struct.unpack(f"<{2 * words + 5}Q", stream.digest(8 * (2 * words + 5)))
    return list(zip(drawn[: 2 * words : 2], drawn[1 : 2 * words : 2], strict=True))


def words_of(name: str) -> list[int]:
    """The old key of a text: its length, and its bytes as words."""
    data = name.encode()
    return [len(data), *struct.unpack(f"<{NAME_BYTES // 4}I", data.ljust(NAME_BYTES, b"\0"))]


def old_sums(name: str, coefficients: list[tuple[int, int]]) -> tuple[int, ...]:
    """What decided all of a name's cells and its check."""
    words = words_of(name)
    return tuple(
        sum(w * c[side] for w, c in zip(words, coefficients, strict=True)) % _MODULUS for side in (0, 1)
    )


def colliding_name(target: str, coefficients: list[tuple[int, int]]) -> str:
    """A text of 32 ASCII characters, control characters among them, with the same sums as the target."""
    rows, first, second, inverse = _solved(coefficients[1:])
    basis = np.array(_reduced(rows), dtype=object)
    due = [
        (sum_ - NAME_BYTES * c) % _MODULUS
        for sum_, c in zip(old_sums(target, coefficients), coefficients[0], strict=True)
    ]
    centre = [0x40404040] * (NAME_BYTES // 4)
    start = list(centre)
    missing = [
        (due[side] - sum(w * c[side] for w, c in zip(centre, coefficients[1:], strict=True))) % _MODULUS
        for side in (0, 1)
    ]
    start[first] += sum(a * b for a, b in zip(inverse[0], missing, strict=True)) % _MODULUS
    start[second] += sum(a * b for a, b in zip(inverse[1], missing, strict=True)) % _MODULUS
    near = _near(np.array(start, dtype=object) - centre, basis) + centre
    steps = np.stack(np.meshgrid(*[np.arange(-2, 3)] * len(centre)), axis=-1).reshape(-1, len(centre))
    words = near.astype(np.int64) + steps @ basis.astype(np.int64)
    ascii_only = (
        ((words & 0x80808080) == 0).all(axis=1) & (words > 0).all(axis=1) & (words < 2**31).all(axis=1)
    )
    (found, *_) = words[ascii_only].tolist()
    return struct.pack(f"<{len(found)}I", *found).decode()


def _solved(coefficients: list[tuple[int, int]]) -> tuple[list[list[int]], int, int, list[list[int]]]:
    """A basis of the differences that change no sum, and the two words that are solved for, with the inverse."""
    for first, second in combinations(range(len(coefficients)), 2):
        (a, c), (b, d) = coefficients[first], coefficients[second]
        determinant = (a * d - b * c) % _MODULUS
        if determinant % 2:
            break
    scale = pow(determinant, -1, _MODULUS)
    inverse = [[d * scale, -b * scale], [-c * scale, a * scale]]
    rows = []
    for place, sums in enumerate(coefficients):
        row = [0] * len(coefficients)
        if place in (first, second):
            row[place] = _MODULUS
        else:
            row[place] = 1
            for solved, line in zip((first, second), inverse, strict=True):
                row[solved] = -sum(x * y for x, y in zip(line, sums, strict=True)) % _MODULUS
        rows.append(row)
    return rows, first, second, inverse


def _dot(one: list[Fraction] | list[int], other: list[Fraction] | list[int]) -> Fraction:
    return sum((Fraction(a) * b for a, b in zip(one, other, strict=True)), Fraction(0))


def _orthogonal(rows: list[list[int]]) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """Gram and Schmidt's vectors and factors."""
    vectors: list[list[Fraction]] = []
    factors: list[list[Fraction]] = []
    for row in rows:
        vector = list(map(Fraction, row))
        line = [_dot(row, v) / _dot(v, v) for v in vectors]
        for factor, v in zip(line, vectors, strict=True):
            vector = [a - factor * b for a, b in zip(vector, v, strict=True)]
        vectors.append(vector)
        factors.append(line)
    return vectors, factors


def _reduced(rows: list[list[int]]) -> list[list[int]]:
    """Lenstra, Lenstra and Lovasz's reduction, in exact fractions: slow, and fast enough for eight rows."""
    rows, place = [list(row) for row in rows], 1
    vectors, factors = _orthogonal(rows)
    while place < len(rows):
        for other in range(place - 1, -1, -1):
            times = round(factors[place][other])
            if times:
                rows[place] = [a - times * b for a, b in zip(rows[place], rows[other], strict=True)]
                vectors, factors = _orthogonal(rows)
        last = factors[place][place - 1]
        if _dot(vectors[place], vectors[place]) >= (Fraction(3, 4) - last**2) * _dot(
            vectors[place - 1], vectors[place - 1]
        ):
            place += 1
        else:
            rows[place - 1], rows[place] = rows[place], rows[place - 1]
            vectors, factors = _orthogonal(rows)
            place = max(place - 1, 1)
    return rows


def _near(point: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The point less a vector of the lattice near it (Babai's nearest plane)."""
    rows = basis.tolist()
    vectors, _ = _orthogonal(rows)
    left = point.copy()
    for row, vector in zip(reversed(rows), reversed(vectors), strict=True):
        times = round(_dot(left.tolist(), vector) / _dot(vector, vector))
        left = left - times * np.array(row, dtype=object)
    return left
