"""Axes: where a value lies, and which values get a tick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_TICKS = 5
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
# Ticks in a shorter range, relative to its values, could be equal as doubles.
_SHORTEST = 1e-9
_SMALLEST = 1e-100
# The least value of a logarithmic axis.
_LEAST = 1e-12


@dataclass(frozen=True)
class Axis:
    """A range of values drawn from `start` to `stop`, linear or logarithmic."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where the value lies; a value outside of the range lies at the nearer end."""
        return self.beyond(min(max(value, self.low), self.high))

    def beyond(self, value: float) -> float:
        """Where the value lies, also outside of the range."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log(max(one, _LEAST)) for one in (low, high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Round values inside of the range, about five of them."""
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)


def linear(low: float, high: float, start: float, stop: float) -> Axis:
    """A linear axis. A range of almost no length is widened to reach zero, or to have a length of one."""
    size = max(abs(low), abs(high))
    if high - low <= _SHORTEST * size:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < _SMALLEST:
        high = low + 1.0
    return Axis(low, high, start, stop)


def logarithmic(low: float, high: float, start: float, stop: float) -> Axis:
    """A logarithmic axis. A range that is one point is widened to a decade."""
    low = max(low, _LEAST)
    return Axis(low, high if high > low else low * 10, start, stop, log=True)


def headroom(ys: Sequence[float]) -> float:
    """The top of an axis: above all values, but at most about three times their median.

    Values far above the others would press the rest to the floor.
    """
    ordered = sorted(ys)
    top = min(ordered[-1], 3 * max(ordered[len(ordered) // 2], ordered[0], 0.0)) * 1.05
    return top if top > 0 else 1.0


def tick_text(value: float) -> str:
    """The number at a tick, written short."""
    if value != 0 and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    if abs(value) >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * unit for unit in _STEPS if power * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    ratio = high / low
    units = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if ratio < 6 else (1.0, 2.0, 5.0) if ratio < 100 else (1.0,)
    every = max(1, math.ceil(len(decades) / (_TICKS + 1)))
    found = [unit * 10.0**decade for decade in decades if decade % every == 0 for unit in units]
    return [tick for tick in found if low * 0.999 <= tick <= high * 1.001] or [low, high]
