"""Charts as marks: axes, ticks, lines, bars and names, each at its place. No chart is drawn anywhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fedhist.display.visible_text import visible
from fedhist.simulations.report.axes import Axis, headroom, linear, logarithmic, tick_text
from fedhist.simulations.report.charts import (
    AnyChart,
    Bar,
    BarChart,
    BinChart,
    LineChart,
    Rule,
    StackChart,
    number,
)
from fedhist.simulations.report.marks import LOOKS, Box, Dot, Drawing, Mark, Point, Stroke, Words, text_width

WIDTH = 400
SWATCH_WIDTH, SWATCH_HEIGHT = 28, 14
_HEIGHT = 260
_LEFT, _RIGHT, _BOTTOM = 42, 14, 40
_NAME_ROW = 14
_ROW = 17
_ABOVE_BARS = 10
# How far down a logarithmic axis goes, as a share of its top.
_DEPTH = 1e-4
_LABEL_LETTERS, _LONG_LETTERS = 24, 58
_SHIFT = 5
# An interval is drawn up to this multiple of the largest value.
_WIDEST = 2.5


def draw(chart: AnyChart) -> Drawing:
    """The chart without its title and legend."""
    match chart:
        case LineChart():
            height, marks = _HEIGHT, _line_chart(chart)
        case BinChart():
            height, marks = _HEIGHT, _bin_chart(chart)
        case BarChart():
            height, marks = _ABOVE_BARS + _row_of(chart) * len(chart.bars) + _BOTTOM, _bar_chart(chart)
        case StackChart():
            height, marks = 138, _stack_chart(chart)
    return Drawing(WIDTH, height, tuple(marks))


def legend(chart: AnyChart) -> list[tuple[str, Drawing]]:
    """A name and a sample of each look, where a chart has several."""
    match chart:
        case LineChart():
            lines = chart.lines if len(chart.lines) > 1 else ()
            shown: list[tuple[str, list[Mark]]] = [
                (line.name, [_horizontal(f"line {line.look}", 1, 27, 7)]) for line in lines
            ]
            shown += [(point.name, [_point(point.look, 14, 7)]) for point in chart.points]
        case BarChart():
            shown = list(_bar_legend(chart))
        case StackChart():
            shown = [
                (f"{p.label}: {p.note}", [Box(f"part{n % 4}", 4, 2, 20, 10)])
                for n, p in enumerate(chart.parts)
            ]
        case _:
            shown = []
    return [(name, Drawing(SWATCH_WIDTH, SWATCH_HEIGHT, tuple(marks))) for name, marks in shown]


def _bar_legend(chart: BarChart) -> Iterator[tuple[str, list[Mark]]]:
    intervals = any(bar.low is not None for bar in chart.bars)
    if chart.mark_name or intervals:
        yield chart.value_name, [Dot("bar", 14, 7, 4) if chart.as_dots else Box("bar", 4, 2, 20, 10)]
    if intervals:
        yield chart.interval_name, [_whisker("whisker", (4, 7), (24, 7))]
    if chart.mark_name:
        yield chart.mark_name, [_vertical("mark", 14, 0, SWATCH_HEIGHT)]
    if any(bar.best for bar in chart.bars):
        yield "the best private method", [_point("best", 14, 7)]


def _line_chart(chart: LineChart) -> Iterator[Mark]:
    xs = sorted({x for line in chart.lines for x in line.xs})
    inset = _SHIFT * len(chart.lines) / 2 if chart.side_by_side else 0
    across = (logarithmic if chart.log_x else linear)(xs[0], xs[-1], _LEFT + inset, WIDTH - _RIGHT - inset)
    up = _upwards(chart)
    yield from _frame(chart, across, up, inset=inset)
    for x in chart.ticks:
        yield _vertical("tick-mark", across.place(x), up.start, up.start + 4)
    yield from _rules(chart.rules, across, up)
    for line, shift in zip(chart.lines, _shifts(chart, across, xs), strict=True):
        points = [
            (across.place(x) + shift, up.beyond(max(y, up.low)))
            for x, y in zip(line.xs, line.ys, strict=True)
        ]
        yield Stroke(f"line {line.look}", _below(points, up.stop))
        for (x, _), (low, high) in zip(points, line.intervals, strict=False):
            yield _whisker(f"interval {line.look}", (x, up.place(low)), (x, up.place(high)))
        if line.intervals or len(points) == 1 or chart.side_by_side:
            yield from (Dot(f"dot {line.look}", x, max(y, up.stop), 3.5) for x, y in points)
    for point in chart.points:
        for x, y in zip(point.xs, point.ys, strict=True):
            yield _point(point.look, across.place(x), up.place(y))
    places = [across.place(x) for x in xs]
    edges = [across.start, *((a + b) / 2 for a, b in pairwise(places)), across.stop]
    for x, (left, right) in zip(xs, pairwise(edges), strict=True):
        yield _hit(left, up.stop, right - left, up.start - up.stop, *_tip_at(chart, x))


def _top(chart: LineChart | BinChart) -> float:
    """Where the plot begins: below the name of its y axis, and the names of its rules."""
    return 20 + _NAME_ROW * min(len(chart.rules), 2)


def _shifts(chart: LineChart, across: Axis, xs: Sequence[float]) -> list[float]:
    """How far the marks of each line stand beside their x."""
    count = len(chart.lines)
    if not chart.side_by_side:
        return [0.0] * count
    places = [across.place(x) for x in xs]
    room = min((b - a for a, b in pairwise(places)), default=WIDTH) * 0.7
    step = min(_SHIFT, room / count)
    return [step * (place - (count - 1) / 2) for place in range(count)]


def _upwards(chart: LineChart) -> Axis:
    ys = [y for line in (*chart.lines, *chart.points) for y in line.ys]
    start, stop = _HEIGHT - _BOTTOM, _top(chart)
    ends = [end for line in chart.lines for interval in line.intervals for end in interval]
    # Intervals that reach far beyond the values, or below zero, are cut off.
    if chart.log_y:
        top = max([*ys, *ends])
        if chart.side_by_side:
            top = 1.15 * min(top, _WIDEST * max(ys))
        least = min((y for y in ys if y > _DEPTH * top), default=top) / 3
        return logarithmic(chart.low_y or max(min([*ys, *ends]), least), top, start, stop)
    if chart.side_by_side and ends:
        return linear(0.0, 1.03 * min(max([*ys, *ends]), _WIDEST * max(ys)), start, stop)
    if chart.whole_y or ends:
        return linear(min(0.0, *ys), (1.3 if ends else 1.05) * max(0.0, *ys), start, stop)
    return linear(min(0.0, *ys), headroom(ys), start, stop)


def _tip_at(chart: LineChart, x: float) -> Iterator[str]:
    names = [point.name for point in chart.points if x in point.xs]
    yield f"{chart.x_label.split(' (')[0]} {number(x)}" + (f" ({', '.join(names)})" if names else "")
    for line in chart.lines:
        if x in line.xs:
            place = list(line.xs).index(x)
            interval = f" ({' to '.join(map(number, line.intervals[place]))})" if line.intervals else ""
            yield f"{line.name} {number(line.ys[place])}{interval}"


def _bin_chart(chart: BinChart) -> Iterator[Mark]:
    across = logarithmic(chart.edges[0], chart.edges[-1], _LEFT, WIDTH - _RIGHT)
    up = linear(0, max(chart.counts) * 1.05, _HEIGHT - _BOTTOM, _top(chart))
    yield from _frame(chart, across, up)
    threshold = chart.rules[0].x if chart.rules else math.inf
    bins = list(zip(chart.edges, chart.edges[1:], chart.counts, strict=False))
    for low, high, count in bins:
        left, width, top = across.place(low), across.place(high) - across.place(low), up.place(count)
        look = "bar above" if low >= threshold else "bar"
        yield Box(look, left + 0.5, top, max(width - 1, 0.5), up.start - top)
    yield from _rules(chart.rules, across, up)
    for low, high, count in bins:
        left, width = across.place(low), across.place(high) - across.place(low)
        tip = (f"{number(low)} to {number(high)} counts", f"{count:,} users")
        yield _hit(left, up.stop, width, up.start - up.stop, *tip)


def _row_of(chart: BarChart) -> int:
    """The height of a bar with its name."""
    return _ROW if max(len(bar.label) for bar in chart.bars) <= _LABEL_LETTERS or not chart.dots else 2 * _ROW


def _bar_chart(chart: BarChart) -> Iterator[Mark]:
    high = _row_of(chart)
    above = high > _ROW
    names = [visible(bar.label, _LABEL_LETTERS) for bar in chart.bars]
    room = max(text_width(name, LOOKS["label"].size) for name in names)
    start = 16 if above else min(max(12 + room, 60), WIDTH / 2)
    stop, bottom = WIDTH - _RIGHT - 8, _ABOVE_BARS + high * len(chart.bars)
    across = _along(chart, start, stop)
    yield from _axis_below(chart, across, bottom, grid_from=_ABOVE_BARS)
    for row, bar in enumerate(chart.bars):
        top = _ABOVE_BARS + (row + 1) * high - _ROW
        middle = top + _ROW / 2
        if above:
            yield Words("label", start, top - 1, visible(bar.label, _LONG_LETTERS))
        else:
            yield Words("label", start - 6, middle + 4, names[row], "end")
        if not chart.as_dots:
            left, right = sorted((across.place(0), across.place(bar.value)))
            yield Box("bar", left, top + 3, max(right - left, 0.5), _ROW - 6)
        if bar.low is not None and bar.high is not None:
            yield _whisker("whisker", (across.place(bar.low), middle), (across.place(bar.high), middle))
        if chart.as_dots:
            x = across.place(bar.value)
            yield _point("best", x, middle) if bar.best else Dot("bar", x, middle, 4)
        if bar.mark is not None:
            yield _vertical("mark", across.place(bar.mark), top + 1.5, top + _ROW - 1.5)
    for row, bar in enumerate(chart.bars):
        yield _hit(0, _ABOVE_BARS + row * high, WIDTH, high, *_tip_of(chart, bar))


def _along(chart: BarChart, start: float, stop: float) -> Axis:
    values = [bar.value for bar in chart.bars]
    ends = [v for bar in chart.bars for v in (bar.value, bar.low, bar.high, bar.mark) if v is not None]
    high = min(max(ends), _WIDEST * max(values)) if chart.dots else max(ends)
    if chart.log_x:
        return logarithmic(max(min(ends), min(values) / 3) / 1.1, high, start, stop)
    if chart.dots:
        return linear(min(0.0, *values), max(0.0, high), start, stop)
    return linear(min(0.0, *ends), max(0.0, *ends), start, stop)


def _tip_of(chart: BarChart, bar: Bar) -> Iterator[str]:
    yield bar.label
    yield f"{chart.value_name} {number(bar.value)}" + (f" {chart.unit}" if chart.unit else "")
    if bar.low is not None and bar.high is not None:
        even = math.isclose(bar.high - bar.value, bar.value - bar.low, rel_tol=1e-6)
        reach = f"± {number(bar.high - bar.value)}" if even else f"{number(bar.low)} to {number(bar.high)}"
        yield f"{chart.interval_name}: {reach}"
    if bar.mark is not None:
        yield f"{chart.mark_name} {number(bar.mark)}"


def _stack_chart(chart: StackChart) -> Iterator[Mark]:
    most = max([sum(part.value for part in chart.parts), *(rule.x for rule in chart.rules)])
    across = linear(0, most * 1.06, 16, WIDTH - 16)
    top, bottom = 50, 90
    yield from _axis_below(chart, across, bottom + 4, grid_from=top)
    reached = 0.0
    hits = []
    for place, part in enumerate(chart.parts):
        left, right = across.place(reached), across.place(reached + part.value)
        yield Box(f"part{place % 4}", left, top, max(right - left, 1), bottom - top)
        name = visible(part.label, _LABEL_LETTERS)
        if right - left > text_width(name, LOOKS["in-bar"].size) + 4:
            yield Words("in-bar", (left + right) / 2, top + 24, name, "middle")
        tip = (f"{part.label}: {part.note}", f"epsilon {number(part.value)}")
        hits.append(_hit(left, top, max(right - left, 6), bottom - top, *tip))
        reached += part.value
    yield from _rules(sorted(chart.rules, key=lambda rule: rule.x), across, Axis(0, 1, bottom, top))
    yield from hits


def _frame(chart: AnyChart, across: Axis, up: Axis, *, inset: float = 0.0) -> Iterator[Mark]:
    """Both axes with their ticks and names; lines reach beyond the axis by the inset."""
    left, right = across.start - inset, across.stop + inset
    yield from _axis_below(chart, across, up.start, beyond=inset)
    for tick in up.ticks():
        y = up.place(tick)
        yield _horizontal("gridline", left, right, y)
        yield Words("tick", left - 5, y + 3.5, tick_text(tick), "end")
    yield Words("axis-name", 4, 11, chart.y_label)


def _axis_below(
    chart: AnyChart, across: Axis, y: float, *, grid_from: float | None = None, beyond: float = 0.0
) -> Iterator[Mark]:
    yield _horizontal("axis", across.start - beyond, across.stop + beyond, y)
    taken = -math.inf
    for tick in across.ticks():
        x, name = across.place(tick), tick_text(tick)
        half = text_width(name, LOOKS["tick"].size) / 2
        if grid_from is not None:
            yield _vertical("gridline", x, grid_from, y)
        if x - half > taken:
            yield Words("tick", x, y + 15, name, "middle")
            taken = x + half + 4
    yield Words("axis-name", (across.start + across.stop) / 2, y + 31, chart.x_label, "middle")


def _rules(rules: Sequence[Rule], across: Axis, up: Axis) -> Iterator[Mark]:
    """Vertical rules with their names above the chart, on the first row where no rule or name is in the way."""
    places = [across.place(rule.x) for rule in rules]
    names: list[tuple[float, float, float]] = []
    for place, (rule, x) in enumerate(zip(rules, places, strict=True)):
        name = f"{rule.name} {number(rule.x)}"
        width = text_width(name, LOOKS["rule-name"].size)
        sides = [("start", x + 4, x + 4 + width), ("end", x - 4 - width, x - 4)]
        fitting = [side for side in sides if side[1] >= 0 and side[2] <= WIDTH] or sides
        # On the side where no other rule goes through the name, if there is one.
        anchor, left, right = min(fitting, key=lambda side: sum(side[1] < one < side[2] for one in places))
        y = up.stop - 4
        while any(row == y and left < end and start < right for start, end, row in names):
            y -= _NAME_ROW
        names.append((left, right, y))
        yield _vertical(f"rule{place % 2}", x, y - 8, up.start)
        yield Words("rule-name", left if anchor == "start" else right, y, name, anchor)


def _hit(x: float, y: float, width: float, height: float, *tip: str) -> Box:
    return Box("hit", x, y, max(width, 0.5), height, tip)


def _horizontal(look: str, left: float, right: float, y: float) -> Stroke:
    return Stroke(look, (((left, y), (right, y)),))


def _vertical(look: str, x: float, top: float, bottom: float) -> Stroke:
    return Stroke(look, (((x, top), (x, bottom)),))


def _whisker(look: str, low: Point, high: Point) -> Stroke:
    """An interval with a cap across each end."""
    dx, dy = (3, 0) if low[0] == high[0] else (0, 3)
    caps = tuple(((x - dx, y - dy), (x + dx, y + dy)) for x, y in (low, high))
    return Stroke(look, ((low, high), *caps))


def _point(look: str, x: float, y: float) -> Mark:
    if look == "chosen":
        return Dot("point chosen", x, y, 5)
    return Stroke(f"point {look}", (((x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)),), closed=True)


def _below(points: Sequence[Point], top: float) -> tuple[tuple[Point, ...], ...]:
    """The parts of a line below the top of its chart, cut where it passes it."""
    parts: list[list[Point]] = [[]]
    for place, (x, y) in enumerate(points):
        if place and (y < top) != (points[place - 1][1] < top):
            before_x, before_y = points[place - 1]
            parts[-1].append((before_x + (x - before_x) * (top - before_y) / (y - before_y), top))
            if y < top:
                parts.append([])
        if y >= top:
            parts[-1].append((x, y))
    return tuple(tuple(part) for part in parts if part)
