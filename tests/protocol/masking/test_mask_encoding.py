"""Integers as residues and back, and the width that keeps sums apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import InvalidInput
from tests.support.api import read_residues, residue_bytes, to_integers, to_residues, width_for
from tests.support.refusals import refused


@pytest.mark.parametrize(
    ("largest", "users", "tail", "width"),
    [
        (1, 1, 0, 32),
        (2**31 - 1, 1, 0, 32),
        (2**31, 1, 0, 64),
        (2**21 - 1, 1024, 1023, 32),
        (2**21 - 1, 1024, 1024, 64),
        (2**31, 2**31, 0, 64),
        (2**62, 1, 2**62 - 1, 64),
    ],
)
def test_the_smallest_width_that_holds_every_sum(largest: int, users: int, tail: int, width: int) -> None:
    assert width_for(largest, users, noise_tail=tail) == width


def test_sums_beyond_64_bits_are_refused() -> None:
    with refused(InvalidInput, "sum-too-large", "2^63"):
        width_for(2**62, 2)


@given(st.data())
def test_sums_come_back_even_when_parts_wrap(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([32, 64]))
    users = data.draw(st.integers(1, 20))
    largest = data.draw(st.integers(0, (2 ** (width - 1) - 1) // users))
    assert width_for(largest, users) <= width
    values = data.draw(st.lists(st.integers(-largest, largest), min_size=users, max_size=users))
    mask = data.draw(st.integers(0, 2**width - 1))
    total = to_residues(np.array([values[0]], dtype=np.int64), width)
    total += total.dtype.type(mask)
    for value in values[1:]:
        total += to_residues(np.array([value], dtype=np.int64), width)
    total -= total.dtype.type(mask)
    assert to_integers(total).tolist() == [sum(values)]


@pytest.mark.parametrize("width", [32, 64])
def test_bytes_are_little_endian(width: int) -> None:
    values = np.array([1, -1, 258], dtype=np.int64)
    data = residue_bytes(to_residues(values, width))
    assert data == b"".join(int(value).to_bytes(width // 8, "little", signed=True) for value in values)
    assert to_integers(read_residues(memoryview(data), width)).tolist() == values.tolist()


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40 + 7])
def test_a_value_that_does_not_fit_wraps_around_and_ends_nothing(value: int) -> None:
    residue = to_residues(np.array([value], dtype=np.int64), 32)
    assert int(residue[0]) == value % 2**32


@pytest.mark.parametrize(
    "values", [np.zeros(3), np.zeros((2, 2), dtype=np.int64), np.zeros(3, dtype=np.int32)]
)
def test_only_vectors_of_64_bit_integers(values: np.ndarray) -> None:
    with pytest.raises(InvalidInput):
        to_residues(values, 32)
