"""Bins with public edges: what a text of edges stands for, and what the bins are called."""

from __future__ import annotations

import math
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from fedhist.protocol.errors import InvalidInput

MAX_BINS = 1_000_000


def edges_of(text: str, *, name: str = "--bins") -> list[float]:
    """The edges that a text stands for: numbers with commas between them, or START:STOP:STEP.

    Args:
        text: the edges.
        name: of the setting that holds it, for the error.
    """
    wrong = InvalidInput(
        f"{name} is {text!r}",
        allowed="rising numbers with commas between them, or START:STOP:STEP with whole steps from START to STOP, "
        f"up to {MAX_BINS:,} bins",
        advice="for example 0,10,20,inf or 0:100:10",
        code="bad-bins",
    )
    try:
        if ":" not in text:
            numbers = [Decimal(part.strip()) for part in text.split(",")]
            if (
                any(number.is_finite() and math.isinf(float(number)) for number in numbers)
                or len(numbers) > MAX_BINS
            ):
                raise wrong
            return [float(number) for number in numbers]
        start, stop, step = (Decimal(part.strip()) for part in text.split(":"))
        if not (start.is_finite() and stop.is_finite() and step.is_finite() and step > 0 and stop > start):
            raise wrong
        number = (stop - start) / step
        if number != number.to_integral_value() or number > MAX_BINS:
            raise wrong
        # Steps of a decimal number: three steps of 0.1 are 0.3, which floats miss.
        return [float(start + step * place) for place in range(int(number) + 1)]
    except (InvalidOperation, ValueError, OverflowError):
        raise wrong from None


def checked_edges(edges: Collection[float]) -> tuple[float, ...]:
    """The edges of bins as floats, if they are two or more rising numbers."""
    allowed = "two or more rising numbers, for example 0, 10, 20; the first may be -inf and the last inf"
    if isinstance(edges, str | bytes) or not hasattr(edges, "__len__"):
        raise InvalidInput(
            "the bins are no list of edges",
            allowed=allowed,
            advice="a number of bins alone would have to be fitted to the data, which is not private",
            code="not-a-list-of-edges",
        )
    try:
        values = tuple(float(edge) for edge in edges)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            "an edge of the bins is not a number", allowed=allowed, code="edge-not-a-number"
        ) from None
    if len(values) < 2:
        raise InvalidInput(
            "the bins have fewer than two edges",
            allowed=allowed,
            advice="a number of bins alone would have to be fitted to the data, which is not private",
            code="too-few-edges",
        )
    for number, (low, high) in enumerate(pairwise(values), 1):
        if not low < high:  # not a number compares as false
            raise InvalidInput(
                f"edge {number + 1} of the bins is {high:g}, after {low:g}",
                allowed=allowed,
                advice="sort the edges",
                code="edges-not-rising",
            )
    return values


def bin_labels(edges: Collection[float]) -> list[str]:
    """What the bins are called: [0, 10), [10, 20)."""
    texts = [_edge_text(float(edge)) for edge in edges]
    opening = ["(" if edge == -math.inf else "[" for edge in edges]
    return [f"{bracket}{low}, {high})" for bracket, low, high in zip(opening, texts, texts[1:], strict=False)]


def _edge_text(edge: float) -> str:
    """The shortest text that reads as the same number: 10 for 10.0."""
    return str(int(edge)) if edge.is_integer() and abs(edge) < 1e15 else repr(edge)
