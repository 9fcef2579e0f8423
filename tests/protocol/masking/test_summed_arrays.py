"""Arrays as vectors of whole numbers, and sums of these as arrays."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fedhist import InvalidInput, RoundFailed
from tests.support.api import Layout, Part, layout_parts, to_integers, to_residues, width_for, zeros

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def summed(layout: Layout, nodes: list[Any], weights: list[int] | None = None) -> tuple[Any, int]:
    """What a masked sum gives: vectors added up modulo 2^width."""
    width = width_for(layout.largest, len(nodes))
    total = zeros(layout.length, width)
    for place, arrays in enumerate(nodes):
        vector, _ = layout.to_vector(arrays, None if weights is None else weights[place])
        assert np.abs(vector).max() <= layout.largest
        total += to_residues(vector, width)
    return layout.from_vector(to_integers(total), nodes=len(nodes))


@st.composite
def whole_numbers(draw: st.DrawFn) -> tuple[list[Any], int]:
    dtype, shape = draw(st.sampled_from(INTEGERS)), draw(arrays_of.array_shapes(min_dims=0, max_side=3))
    count = draw(st.integers(1, 4))
    nodes = [{"r": {"a": draw(arrays_of.arrays(dtype, shape))}} for _ in range(count)]
    return nodes, draw(st.integers(1, 2**60))


@given(whole_numbers())
def test_sums_of_whole_numbers_are_exact_where_all_are_within_the_bound(case: tuple[list[Any], int]) -> None:
    nodes, bound = case
    sums, weight = summed(Layout(layout_parts(nodes[0]), bound, bits=0), nodes)
    found = sums["r"]["a"]
    clamped = [[max(-bound, min(bound, int(value))) for value in node["r"]["a"].flat] for node in nodes]
    assert found.dtype == np.int64 and found.shape == nodes[0]["r"]["a"].shape and weight == len(nodes)
    assert found.ravel().tolist() == [sum(column) for column in zip(*clamped, strict=True)]


@st.composite
def floats(draw: st.DrawFn) -> tuple[list[Any], list[int], float, int]:
    bound, bits = draw(st.sampled_from([0.3, 1.0, 7.5, 1000.0])), draw(st.integers(2, 30))
    dtype = np.dtype(draw(st.sampled_from(FLOATS)))
    values = st.floats(-4 * bound, 4 * bound, width=64).map(dtype.type)
    count = draw(st.integers(1, 4))
    nodes = [{"r": {"a": draw(arrays_of.arrays(dtype, (3,), elements=values))}} for _ in range(count)]
    return nodes, draw(st.lists(st.integers(0, 50), min_size=count, max_size=count)), bound, bits


@given(floats())
def test_floats_are_within_half_a_step_for_each_unit_of_weight(case: Any) -> None:
    """Against exact fractions; the sums here are small enough for a float to hold them exactly."""
    nodes, weights, bound, bits = case
    parts, half = layout_parts(nodes[0]), Fraction(1, 2 ** (bits + 1))
    for given_weights, applied in ((None, [1] * len(nodes)), (weights, [min(w, 40) for w in weights])):
        layout = Layout(parts, bound, bits, None if given_weights is None else 40)
        sums, weight = summed(layout, nodes, given_weights)
        assert weight == sum(applied)
        for place, found in enumerate(sums["r"]["a"].tolist()):
            exact = sum(
                factor * max(-Fraction(bound), min(Fraction(bound), Fraction(float(node["r"]["a"][place]))))
                for factor, node in zip(applied, nodes, strict=True)
            )
            assert abs(Fraction(found) - exact) <= weight * half


def test_the_error_is_as_large_as_promised_and_no_smaller() -> None:
    """Every node just below half a step above a multiple: the bound is not slack by a factor."""
    layout = Layout((Part("r", "a", "float", (1,)),), 1.0, bits=4)
    nodes = [{"r": {"a": np.array([2.0**-5 - 2.0**-30])}}] * 10
    sums, _ = summed(layout, nodes)
    assert sums["r"]["a"].tolist() == [0.0]


def test_arrays_of_both_kinds_in_several_records() -> None:
    node = {
        "model": {"w": np.array([[0.5, -0.25]]), "seen": np.array([7])},
        "more": {"b": np.float64(1.0) * np.ones(())},
    }
    sums, weight = summed(Layout(layout_parts(node), 8, bits=10, max_weight=9), [node, node], [2, 3])
    assert weight == 5
    assert sums["model"]["w"].tolist() == [[2.5, -1.25]] and sums["model"]["seen"].tolist() == [35]
    assert sums["more"]["b"].shape == () and sums["more"]["b"] == 5.0


@pytest.mark.parametrize(
    ("value", "steps", "clamped"),
    [(1e300, 16, 1), (-np.finfo(np.float64).max, -16, 1), (1.0, 16, 0), (1.01, 16, 1)],
)
def test_what_is_clamped_is_counted(value: float, steps: int, clamped: int) -> None:
    layout = Layout((Part("r", "a", "float", (1,)),), 1.0, bits=4)
    vector, count = layout.to_vector({"r": {"a": np.array([value])}})
    assert (vector.tolist(), count) == ([steps], clamped)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_ends_of_every_type_are_clamped_and_counted(dtype: str) -> None:
    ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype=dtype)
    layout = Layout((Part("r", "a", "int", (2,)),), 100, bits=0)
    vector, count = layout.to_vector({"r": {"a": ends}})
    assert vector.tolist() == [max(int(ends[0]), -100), 100]
    assert count == sum(abs(int(end)) > 100 for end in ends)


class TestSumsThatHonestNodesCanNotHave:
    LAYOUT = Layout((Part("r", "a", "float", (1,)),), 1.0, bits=4, max_weight=5)

    @pytest.mark.parametrize("vector", [[-1, 0], [16, 0], [2, 33], [2, -33], [0, 1]])
    def test_they_are_refused(self, vector: list[int]) -> None:
        with pytest.raises(RoundFailed, match="did not keep to the protocol"):
            self.LAYOUT.from_vector(np.array(vector), nodes=3)

    @pytest.mark.parametrize("vector", [[15, 240], [2, -32], [0, 0]])
    def test_the_edges_are_not(self, vector: list[int]) -> None:
        assert self.LAYOUT.from_vector(np.array(vector), nodes=3)[1] == vector[0]


@pytest.mark.parametrize("weight", [None, -1, 1.5, True, "3"])
def test_a_weight_that_is_none(weight: Any) -> None:
    layout = Layout((Part("r", "a", "int", (1,)),), 1, bits=0, max_weight=5)
    with pytest.raises(InvalidInput, match="weight"):
        layout.to_vector({"r": {"a": np.array([1])}}, weight)


def test_no_error_shows_a_value() -> None:
    layout = Layout((Part("r", "a", "float", (2,)),), 1.0, bits=4)
    for array in (np.array([0.123456, np.nan]), np.array([0.123456] * 3), np.array([123456, 1])):
        with pytest.raises(InvalidInput) as error:
            layout.to_vector({"r": {"a": array}})
        assert "123456" not in str(error.value)
