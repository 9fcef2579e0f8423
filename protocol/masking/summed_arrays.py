"""Arrays of numbers as the vector of a masked sum, and the sum of such vectors as arrays again.

A value is a number of *steps*: whole numbers have steps of 1, floats steps of 2^-bits. Nobody's values are beyond a
public bound: a node clamps what is, because a refusal would tell the server that there is such a value. So sums can't
overflow, see `encoding`.

Error of a float within the bound: rounding to the nearest step moves it by at most 2^-(bits+1), and scaling by a power
of two moves it by nothing, since bound 2^bits is at most 2^52. A weight is a whole number that multiplies steps, so a
weighted sum is within (sum of weights) 2^-(bits+1) of the exact one, and the weighted mean within 2^-(bits+1), before
the result is rounded to a 64-bit float. Sums of whole numbers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.protocol.histograms import Integers

AnyArray = npt.NDArray[Any]
Arrays = Mapping[str, Mapping[str, AnyArray]]
"""Arrays by the name of their record and their own name in it."""

MAX_BITS = 40
MAX_PARTS = 100_000
MAX_WEIGHT = 1 << 32
_MOST_STEPS = {"float": 1 << 52, "int": 1 << 62}
_KIND_OF = {"i": "int", "u": "int", "f": "float"}
_FLOAT_BYTES = 8


@dataclass(frozen=True)
class Part:
    """One array of the vector: where it belongs, whether its values are whole numbers or floats, and its shape."""

    record: str
    name: str
    kind: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of its values."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How arrays become one vector of whole numbers.

    Args:
        parts: the arrays, in the order of the vector.
        bound: the largest absolute value. Larger ones are clamped to it.
        bits: floats are rounded to multiples of 2^-bits.
        max_weight: the largest weight of a node; larger ones are clamped to it. None for a sum without weights.
    """

    parts: tuple[Part, ...]
    bound: int | float
    bits: int
    max_weight: int | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def length(self) -> int:
        """The number of values in the vector: those of all arrays, after the weight where there is one."""
        return sum(part.size for part in self.parts) + (self.max_weight is not None)

    @property
    def largest(self) -> int:
        """The largest absolute value of one node's vector."""
        steps, weight = max(self.steps(part.kind) for part in self.parts), self.max_weight or 1
        return max(steps, 1) * weight

    def steps(self, kind: str) -> int:
        """The bound in steps."""
        return round(math.ldexp(self.bound, self.bits)) if kind == "float" else math.floor(self.bound)

    def to_vector(self, arrays: Arrays, weight: int | None = None) -> tuple[Integers, int]:
        """One node's arrays as a vector, and how many numbers had to be clamped.

        InvalidInput if arrays are missing or of another shape or type, or if a value is not a finite number. It says
        where, and shows no value.
        """
        _check_names(self.parts, arrays)
        clamped, factor, pieces = 0, 1, []
        if self.max_weight is not None:
            factor = _weight(weight)
            clamped += factor > self.max_weight
            factor = min(factor, self.max_weight)
            pieces.append(np.array([factor], dtype=np.int64))
        for part in self.parts:
            values = arrays[part.record][part.name]
            _check_array(part, values)
            steps, beyond = self._steps_of(part, values)
            clamped += beyond
            pieces.append(steps * factor)
        return np.concatenate(pieces), clamped

    def from_vector(self, vector: Integers, *, nodes: int) -> tuple[dict[str, dict[str, AnyArray]], int]:
        """The sums of the nodes' arrays, and the sum of their weights: without weights, the number of nodes.

        RoundFailed if honest nodes can't have such a sum. That one is not found does not mean that all were honest.
        """
        weight, place = nodes, 0
        if self.max_weight is not None:
            weight, place = int(vector[0]), 1
            _within(0 <= weight <= nodes * self.max_weight)
        sums: dict[str, dict[str, AnyArray]] = {}
        for part in self.parts:
            steps = vector[place : place + part.size].reshape(part.shape)
            place += part.size
            most = self.steps(part.kind) * weight
            _within(bool((steps <= most).all() and (steps >= -most).all()))
            sums.setdefault(part.record, {})[part.name] = (
                steps if part.kind == "int" else np.ldexp(steps.astype(np.float64), -self.bits)
            )
        return sums, weight

    def _steps_of(self, part: Part, values: AnyArray) -> tuple[Integers, int]:
        """The array's values in steps, flat, and how many of them were beyond the bound."""
        flat = values.reshape(-1)
        if part.kind == "float":
            exact = flat.astype(np.float64)
            if not np.isfinite(exact).all():
                raise InvalidInput(f"{_place(part)} has values that are not finite", allowed="finite numbers")
            bound = float(self.bound)
            beyond = int(np.count_nonzero(np.abs(exact) > bound))
            steps = np.rint(np.ldexp(np.clip(exact, -bound, bound), self.bits))
            return steps.astype(np.int64), beyond
        most = self.steps("int")
        # Unsigned 64-bit numbers first: they may have no signed twin. A limit must fit the type that it limits.
        if flat.dtype.kind == "u":
            beyond = int(np.count_nonzero(flat > min(most, int(np.iinfo(flat.dtype).max))))
            return np.minimum(flat.astype(np.uint64), np.uint64(most)).astype(np.int64), beyond
        whole = flat.astype(np.int64)
        return np.clip(whole, -most, most), int(np.count_nonzero((whole > most) | (whole < -most)))


def layout_parts(arrays: Arrays) -> tuple[Part, ...]:
    """The parts of a layout for arrays like these."""
    return tuple(
        Part(record, name, kind_of(array, f"{record}/{name}"), tuple(array.shape))
        for record, named in arrays.items()
        for name, array in named.items()
    )


def kind_of(array: AnyArray, place: str) -> str:
    """Whether the array has whole numbers or floats; InvalidInput if neither."""
    kind = _KIND_OF.get(array.dtype.kind)
    if kind is None or array.dtype.itemsize > _FLOAT_BYTES:
        raise InvalidInput(
            f"the array {place} has the type {array.dtype}", allowed="integers and floats of up to 64 bits"
        )
    return kind


def _check(layout: Layout) -> None:
    places = {(part.record, part.name) for part in layout.parts}
    weight, bound = layout.max_weight, layout.bound
    for holds, problem, allowed in (
        (0 < len(layout.parts) <= MAX_PARTS, f"{len(layout.parts)} arrays to sum", f"1 to {MAX_PARTS:,}"),
        (len(places) == len(layout.parts), "two arrays have the same name", "one array of each name"),
        (layout.length > (weight is not None), "arrays without any value", "at least one value"),
        (
            not isinstance(bound, bool) and math.isfinite(bound) and bound > 0,
            f"the bound is {bound!r}",
            "a finite number above 0",
        ),
        (
            type(layout.bits) is int and 0 <= layout.bits <= MAX_BITS,
            f"bits is {layout.bits!r}",
            f"a whole number from 0 to {MAX_BITS}",
        ),
        (
            weight is None or (type(weight) is int and 1 <= weight <= MAX_WEIGHT),
            f"max_weight is {weight!r}",
            f"a whole number from 1 to {MAX_WEIGHT:,}",
        ),
    ):
        if not holds:
            raise InvalidInput(problem, allowed=allowed)
    for kind in {part.kind for part in layout.parts}:
        if kind not in _MOST_STEPS:
            raise InvalidInput(f"an array of {kind!r}", allowed=" or ".join(sorted(_MOST_STEPS)))
        if not 1 <= layout.steps(kind) <= _MOST_STEPS[kind]:
            raise InvalidInput(
                f"the bound {bound!r} is {layout.steps(kind):,} steps of an array of {kind}s",
                allowed=f"1 to {_MOST_STEPS[kind]:,} steps",
                advice="change the bound, or for floats bits",
            )


def _check_names(parts: Sequence[Part], arrays: Arrays) -> None:
    due = {(part.record, part.name) for part in parts}
    came = {(record, name) for record, named in arrays.items() for name in named}
    if came != due:
        missing = ", ".join(sorted("/".join(place) for place in due - came)) or "none"
        more = ", ".join(sorted("/".join(place) for place in came - due)) or "none"
        raise InvalidInput(
            f"the arrays are not those that were asked for: missing are {missing}, not asked for {more}",
            allowed="exactly the array records of the question",
        )


def _check_array(part: Part, values: AnyArray) -> None:
    if kind_of(values, _place(part)) != part.kind or values.shape != part.shape:
        raise InvalidInput(
            f"the array {_place(part)} has the type {values.dtype} and the shape {values.shape}",
            allowed=f"{part.kind}s of the shape {part.shape}",
        )


def _place(part: Part) -> str:
    return f"{part.record}/{part.name}"


def _weight(weight: int | None) -> int:
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        raise InvalidInput("the weight is missing or not a whole number of 0 or more", allowed="0 or more")
    return weight


def _within(holds: bool) -> None:
    if not holds:
        raise RoundFailed(
            "the masked sum is beyond what nodes within the bound can reach: some node did not keep to the protocol"
        )
