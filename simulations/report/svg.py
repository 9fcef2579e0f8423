"""Charts as SVG: drawn here, so that the page shows them without a script and prints them sharp.

Colours and dashes are classes of the style sheet, which knows light, dark and paper. Everything that answers to the
pointer or the keyboard is an element of class `hit` with its text in `data-tip`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

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
from fedhist.simulations.report.escaping import lines, text

WIDTH = 480
_HEIGHT = 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 20, 40
_ROW = 17
_LABEL_WIDTH = 112
_LABEL_LETTERS = 17


def draw(chart: AnyChart) -> str:
    """The chart as an svg element."""
    match chart:
        case LineChart():
            return _line_chart(chart)
        case BinChart():
            return _bin_chart(chart)
        case BarChart():
            return _bar_chart(chart)
        case StackChart():
            return _stack_chart(chart)


def legend(chart: AnyChart) -> list[tuple[str, str]]:
    """Names with the class of their look, for whatever needs telling apart."""
    match chart:
        case LineChart():
            shown = [(line.name, f"line {line.look}") for line in chart.lines] if len(chart.lines) > 1 else []
            return shown + [(point.name, f"point {point.look}") for point in chart.points]
        case BarChart(mark_name=mark) if mark:
            return [(chart.value_name, "bar"), (mark, "mark")]
        case _:
            return []


def _line_chart(chart: LineChart) -> str:
    xs = list(chart.lines[0].xs)
    ys = [y for line in (*chart.lines, *chart.points) for y in line.ys]
    make = logarithmic if chart.log_x else linear
    across = make(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
    up = linear(min(0.0, *ys), headroom(ys), _HEIGHT - _BOTTOM, _TOP)
    clip = f"clip-{text(chart.name)}"
    parts = [_clip(clip, across, up), _frame(chart, across, up)]
    parts += [f'<path class="tick-mark" d="M{across.place(x):.1f} {up.start:.1f}v4"/>' for x in chart.ticks]
    parts += _rules(chart.rules, across, up)
    for line in chart.lines:
        points = " ".join(
            f"{across.place(x):.1f},{up.beyond(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True)
        )
        parts.append(f'<polyline class="line {line.look}" clip-path="url(#{clip})" points="{points}"/>')
    for point in chart.points:
        parts += [
            _point(point.look, across.place(x), up.place(y)) for x, y in zip(point.xs, point.ys, strict=True)
        ]
    tips = []
    for place, x in enumerate(xs):
        names = [p.name for p in chart.points if x in p.xs]
        said = [f"{chart.x_label.split(' (')[0]} {number(x)}" + (f" ({', '.join(names)})" if names else "")]
        said += [f"{line.name} {number(line.ys[place])}" for line in chart.lines]
        tips.append(lines(*said))
    parts += _hits([across.place(x) for x in xs], tips, across, up)
    return _svg(chart, _HEIGHT, parts)


def _bin_chart(chart: BinChart) -> str:
    across = logarithmic(chart.edges[0], chart.edges[-1], _LEFT, WIDTH - _RIGHT)
    up = linear(0, max(chart.counts) * 1.05, _HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(chart, across, up)]
    threshold = chart.rules[0].x if chart.rules else float("inf")
    for low, high, count in zip(chart.edges, chart.edges[1:], chart.counts, strict=False):
        left, right, top = across.place(low), across.place(high), up.place(count)
        look = "bar above" if low >= threshold else "bar"
        parts.append(
            f'<rect class="{look}" x="{left + 0.5:.1f}" y="{top:.1f}" width="{max(right - left - 1, 0.5):.1f}" '
            f'height="{up.start - top:.1f}"/>'
        )
    parts += _rules(chart.rules, across, up)
    for low, high, count in zip(chart.edges, chart.edges[1:], chart.counts, strict=False):
        left, right = across.place(low), across.place(high)
        tip = lines(f"{number(low)} to {number(high)} counts", f"{count:,} users")
        parts.append(_hit(left, up.stop, right - left, up.start - up.stop, tip))
    return _svg(chart, _HEIGHT, parts)


def _bar_chart(chart: BarChart) -> str:
    ends = [v for b in chart.bars for v in (b.value, b.low, b.high, b.mark) if v is not None]
    height = _TOP + _ROW * len(chart.bars) + _BOTTOM
    across = linear(min(0.0, *ends), max(0.0, *ends), _LABEL_WIDTH, WIDTH - _RIGHT - 8)
    up = Axis(0, len(chart.bars), height - _BOTTOM, _TOP)
    parts = [_frame(chart, across, up, rows=True)]
    zero = across.place(0)
    for row, bar in enumerate(chart.bars):
        top = _TOP + row * _ROW
        middle = top + _ROW / 2
        left, right = sorted((zero, across.place(bar.value)))
        parts.append(
            f'<text class="label" x="{_LABEL_WIDTH - 6}" y="{middle + 4:.1f}">{text(bar.label, _LABEL_LETTERS)}</text>'
            f'<rect class="bar" x="{left:.1f}" y="{top + 3}" width="{max(right - left, 0.5):.1f}" height="{_ROW - 6}"/>'
        )
        if bar.low is not None and bar.high is not None:
            parts.append(_whisker(across.place(bar.low), across.place(bar.high), middle))
        if bar.mark is not None:
            parts.append(f'<path class="mark" d="M{across.place(bar.mark):.1f} {top + 1.5}v{_ROW - 3}"/>')
    for row, bar in enumerate(chart.bars):
        unit = f" {chart.unit}" if chart.unit else ""
        said = [bar.label, f"{chart.value_name} {number(bar.value)}{unit}"]
        if bar.high is not None:
            said.append(f"{chart.interval_name}: {_interval(bar)}")
        if bar.mark is not None:
            said.append(f"{chart.mark_name} {number(bar.mark)}")
        parts.append(_hit(0, _TOP + row * _ROW, WIDTH, _ROW, lines(*said)))
    return _svg(chart, height, parts)


def _interval(bar: Bar) -> str:
    """Plus and minus where both sides are alike, else from and to."""
    if bar.low is None or bar.high is None:
        return ""
    if math.isclose(bar.high - bar.value, bar.value - bar.low, rel_tol=1e-6):
        return f"± {number(bar.high - bar.value)}"
    return f"{number(bar.low)} to {number(bar.high)}"


def _stack_chart(chart: StackChart) -> str:
    most = max([sum(part.value for part in chart.parts), *(rule.x for rule in chart.rules)])
    across = linear(0, most * 1.06, 16, WIDTH - 16)
    top, bottom = 46, 86
    up = Axis(0, 1, bottom, top)
    parts = [_axis_below(chart, across, bottom + 4, grid_from=top)]
    reached = 0.0
    hits = []
    for place, part in enumerate(chart.parts):
        left, right = across.place(reached), across.place(reached + part.value)
        parts.append(
            f'<rect class="part part{place % 4}" x="{left:.1f}" y="{top}" width="{max(right - left, 1):.1f}" '
            f'height="{bottom - top}"/>'
        )
        if right - left > 7 * len(part.label):
            middle, label = (left + right) / 2, text(part.label, _LABEL_LETTERS)
            parts.append(f'<text class="in-bar" x="{middle:.1f}" y="{top + 24}">{label}</text>')
        tip = lines(f"{part.label}: {part.note}", f"epsilon {number(part.value)}")
        hits.append(_hit(left, top, max(right - left, 6), bottom - top, tip))
        reached += part.value
    parts += _rules(chart.rules, across, up, spread=True)
    return _svg(chart, 130, [*parts, *hits])


def _svg(chart: AnyChart, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" tabindex="0" role="group" '
        f'aria-label="{text(chart.title)}. Arrow keys read the values." data-chart="{text(chart.name)}">'
        + "".join(parts)
        + "</svg>"
    )


def _frame(chart: AnyChart, across: Axis, up: Axis, *, rows: bool = False) -> str:
    """Both axes with their ticks and names; without the upright one where rows have names of their own."""
    parts = [_axis_below(chart, across, up.start, grid_from=up.stop if rows else None)]
    if not rows:
        for tick in up.ticks():
            y = up.place(tick)
            parts.append(
                f'<path class="gridline" d="M{across.start:.1f} {y:.1f}H{across.stop:.1f}"/>'
                f'<text class="tick end" x="{across.start - 5:.1f}" y="{y + 3.5:.1f}">{tick_text(tick)}</text>'
            )
        parts.append(f'<text class="axis-name" x="4" y="{_TOP - 8}">{text(chart.y_label)}</text>')
    return "".join(parts)


def _axis_below(chart: AnyChart, across: Axis, y: float, *, grid_from: float | None) -> str:
    parts = [f'<path class="axis" d="M{across.start:.1f} {y:.1f}H{across.stop:.1f}"/>']
    for tick in across.ticks():
        x = across.place(tick)
        if grid_from is not None:
            parts.append(f'<path class="gridline" d="M{x:.1f} {grid_from:.1f}V{y:.1f}"/>')
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{y + 15:.1f}">{tick_text(tick)}</text>')
    middle = (across.start + across.stop) / 2
    parts.append(
        f'<text class="axis-name middle" x="{middle:.1f}" y="{y + 31:.1f}">{text(chart.x_label)}</text>'
    )
    return "".join(parts)


def _rules(rules: Sequence[Rule], across: Axis, up: Axis, *, spread: bool = False) -> list[str]:
    """Vertical rules with their names above; `spread` puts the names on two heights."""
    drawn = []
    for place, rule in enumerate(rules):
        x = across.place(rule.x)
        high = up.stop - 5 - (16 * place if spread else 0)
        anchor = "end" if x > WIDTH * 0.72 else "start"
        shift = -3 if anchor == "end" else 3
        drawn.append(
            f'<path class="rule rule{place}" d="M{x:.1f} {high:.1f}V{up.start:.1f}"/>'
            f'<text class="rule-name {anchor}" x="{x + shift:.1f}" y="{high + 5:.1f}">'
            f"{text(rule.name)} {number(rule.x)}</text>"
        )
    return drawn


def _hits(places: Sequence[float], tips: Sequence[str], across: Axis, up: Axis) -> list[str]:
    """One area for each place, from halfway to the one before to halfway to the next."""
    between = [(a + b) / 2 for a, b in pairwise(places)]
    edges = [across.start, *between, across.stop]
    return [
        _hit(edges[i], up.stop, edges[i + 1] - edges[i], up.start - up.stop, tip)
        for i, tip in enumerate(tips)
    ]


def _hit(x: float, y: float, width: float, height: float, tip: str) -> str:
    return (
        f'<rect class="hit" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" '
        f'data-tip="{tip}"/>'
    )


def _clip(name: str, across: Axis, up: Axis) -> str:
    """Lines that leave the top of a chart end there."""
    width, height = across.stop - across.start, up.start - up.stop
    return (
        f'<clipPath id="{name}"><rect x="{across.start - 2:.1f}" y="{up.stop:.1f}" width="{width + 4:.1f}" '
        f'height="{height + 2:.1f}"/></clipPath>'
    )


def _point(look: str, x: float, y: float) -> str:
    if look == "chosen":
        return f'<circle class="point chosen" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    return f'<path class="point {look}" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>'


def _whisker(low: float, high: float, y: float) -> str:
    return (
        f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}'
        f'M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6"/>'
    )
