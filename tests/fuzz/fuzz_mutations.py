"""Damage to bytes and to JSON documents, drawn from a seeded generator: the same seed, the same inputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

# Ends of the ranges of lengths, counts and offsets, in 1 to 8 bytes.
_EDGES = tuple(
    value.to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for value in (0, 1, (1 << 8 * width - 1) - 1, 1 << 8 * width - 1, (1 << 8 * width) - 1)
    for order in ("little", "big")
)
_ODD_NUMBERS = (
    0, -1, 1, 0.5, -0.0, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**400, 1e308, 5e-324, 1e-300,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
_ODD_TEXTS = ("", "\x00", "\ud800", "é", "closed", "open", "1e999", "NaN", "a" * 2000, "/", "'", '"')


def mutated(seeds: Sequence[bytes], random: Random) -> bytes:
    """One of the valid inputs with one to four things wrong with it, or in a while no such thing at all."""
    if random.random() < 0.02:
        return random.randbytes(random.randrange(300))
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        _damage(data, seeds, random)
    return bytes(data)


def _damage(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    place = random.randrange(len(data) + 1)
    # Headers and trailers are where lengths stand: half of the damage goes there.
    if random.random() < 0.25:
        place = min(random.randrange(64), len(data))
    elif random.random() < 0.33:
        place = max(len(data) - random.randrange(64), 0)
    stretch = random.choice((1, 1, 2, 4, 8, 40))
    match random.randrange(8):
        case 0 if place < len(data):
            data[place] ^= 1 << random.randrange(8)
        case 1:
            data[place : place + 1] = random.randbytes(1)
        case 2:
            data[place:place] = random.randbytes(stretch)
        case 3:
            del data[place : place + stretch]
        case 4:
            del data[place:]
        case 5:
            data[place:place] = data[place : place + 4 * stretch]
        case 6:
            other = random.choice(seeds)
            cut = random.randrange(len(other) + 1)
            data[place:] = other[cut:]
        case _:
            edge = random.choice(_EDGES)
            data[place : place + len(edge)] = edge


def mutated_document(document: Any, random: Random) -> Any:
    """A copy of a JSON document with one or two values replaced, removed, moved or nested."""
    copy = json.loads(json.dumps(document))
    for _ in range(random.choice((1, 1, 2))):
        copy = _changed(copy, random)
    return copy


def _changed(value: Any, random: Random) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        match random.randrange(8):
            case 0:
                del value[key]
            case 1:
                value[str(odd_value(random)) if random.random() < 0.1 else "other"] = value[key]
            case 2:
                value[key] = value[random.choice(list(value))]
            case _:
                value[key] = _changed(value[key], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        value[place] = _changed(value[place], random)
        return value
    if isinstance(value, float | int) and abs(value) < 1e30 and random.random() < 0.5:
        return value * random.choice((-1, 0, 2, 1e-3, 1e3, 1e30))
    return odd_value(random)


def odd_value(random: Random) -> Any:
    """A value of any of JSON's types."""
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(_ODD_NUMBERS)
        case 3 | 4:
            return random.choice(_ODD_TEXTS)
        case 5:
            return random.choice((None, True, False))
        case 6:
            return [odd_value(random) for _ in range(random.randrange(3))]
        case _:
            return {str(odd_value(random)): odd_value(random) for _ in range(random.randrange(3))}


def document_text(document: Any, random: Random) -> str:
    """A document as text, at times with damage to the text itself, or nested without end."""
    text = json.dumps(document)
    match random.randrange(12):
        case 0:
            return mutated([text.encode()], random).decode("utf-8", errors="replace")
        case 1:
            return "[" * 100_000
        case 2:
            return text.replace("1", "1" * random.choice((2, 400, 5000)), 1)
    return text
