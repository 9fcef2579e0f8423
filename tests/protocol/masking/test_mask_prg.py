"""Masks: the keystream of AES-256-CTR, added and taken off modulo 2^width."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.api import MaskAdder, zeros

KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")


def reference(key: bytes, length: int, width: int) -> np.ndarray:
    """Counter mode by hand: the encrypted big-endian counters 0, 1, 2, ..."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    blocks = b"".join(counter.to_bytes(16, "big") for counter in range(-(-length * width // 128)))
    stream = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)  # noqa: S305
    return np.frombuffer(stream, dtype=f"<u{width // 8}")[:length]


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8191, 16384, 16385, 40000])
def test_it_is_aes_in_counter_mode(length: int, width: int) -> None:
    for key in (KEY, KEY[::-1]):
        residues = zeros(length, width)
        MaskAdder(residues).add(key)
        assert np.array_equal(residues, reference(key, length, width))


@pytest.mark.parametrize("width", [32, 64])
def test_what_is_added_can_be_taken_off_in_any_order(width: int) -> None:
    residues = zeros(20_000, width)
    residues += np.arange(20_000, dtype=residues.dtype)
    expected = residues.copy()
    adder = MaskAdder(residues)
    keys = [bytes([number]) * 32 for number in range(4)]
    for key in keys:
        adder.add(key)
    assert not np.array_equal(residues, expected)
    for key in reversed(keys):
        adder.subtract(key)
    assert np.array_equal(residues, expected)
