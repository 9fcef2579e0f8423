"""Charts as data, and as SVG inside of a page: lines or bars, a legend, and a table of their values.

An SVG shows without a script, prints sharp, and takes its colours from the style sheet. `plot` draws the same
charts with matplotlib.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from fedhist.display.text import visible
from fedhist.protocol.errors import InvalidFile
from fedhist.simulations.report.page import BADGE, table, text

CHARTS_SUFFIX = ".charts.json"

WIDTH, HEIGHT = 400, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 14, 20, 40
_ROW, _NAME_ROW, _LETTER = 17, 14, 11.5 * 0.58
LABEL_LETTERS, _LONG_LETTERS = 28, 58
# The least value of a logarithmic axis, and how far down it goes as a share of its top.
_LEAST, _DEPTH = 1e-12, 1e-4
# Ticks in a shorter range, relative to its values, could be equal as doubles.
_SHORTEST = 1e-9
# Dots are drawn whole, intervals up to this multiple of the largest of them.
_WIDEST = 2.5


@dataclass(frozen=True)
class Line:
    """A line through points, or points alone.

    Args:
        name: in the legend.
        look: of a line, s0 to s7; of points, chosen or best; bins for counts between the xs, the last of them 0.
        xs, ys: rising along x.
        intervals: low and high end around each y, if they are known.
    """

    name: str
    look: str
    xs: Sequence[float]
    ys: Sequence[float]
    intervals: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Rule:
    """A vertical line with a name."""

    name: str
    x: float


@dataclass(frozen=True)
class Bar:
    """A named value, with an interval around it and a value to compare it with if they are known.

    The `best` of several is marked.
    """

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    mark: float | None = None
    best: bool = False


@dataclass(frozen=True)
class LineChart:
    """Lines over one axis, with single points and vertical rules.

    Args:
        name: for the command line and for links into the page.
        title: a sentence that says what the chart shows.
        x_label, y_label: what the axes measure.
        truth: whether it shows anything that was computed from the exact data.
        low_y, high_y: the ends of the y axis; None for those of the values. What lies beyond is cut off.
        x_names: what the places 0, 1, ... along x are called, where x is no number; lines join places without a gap.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    truth: bool
    lines: Sequence[Line]
    points: Sequence[Line] = ()
    rules: Sequence[Rule] = ()
    log_x: bool = True
    log_y: bool = False
    low_y: float | None = None
    high_y: float | None = None
    x_names: Sequence[str] = ()
    height: ClassVar[int] = HEIGHT

    def y_range(self) -> tuple[float, float]:
        """The ends of the y axis."""
        every = [*self.lines, *self.points]
        ys = [y for line in every for y in (*line.ys, *(end for ends in line.intervals for end in ends))]
        high = max(ys) if self.high_y is None else min(max(ys), self.high_y)
        if self.low_y is not None:
            return self.low_y, high
        return (max(min(ys), _DEPTH * high), high) if self.log_y else (min(0.0, *ys), max(0.0, high))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of the values."""
        columns = [_values(line) for line in self.lines]
        names = dict(enumerate(self.x_names))
        rows = [
            [names.get(int(x)) or number(x), *(ys.get(x, "") for ys in columns)]
            for x in sorted({x for ys in columns for x in ys})
        ]
        return [self.x_label, *(line.name for line in self.lines)], rows


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars from the top down, or dots. Long names of dots stand above them.

    Args:
        name, title, x_label, y_label, truth: as of a chart of lines.
        bars: from the top down.
        value_name: what a bar measures.
        mark_name: what its mark is; empty if there are none.
        interval_name: what its whiskers are.
        log_x: whether the axis is logarithmic; all values must be positive, and are dots.
        dots: whether values are dots on any axis.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    truth: bool
    bars: Sequence[Bar]
    value_name: str = "value"
    mark_name: str = ""
    interval_name: str = "95 % interval"
    log_x: bool = False
    dots: bool = False

    @property
    def as_dots(self) -> bool:
        """Whether values are dots: a bar on a logarithmic axis would have no beginning."""
        return self.dots or self.log_x

    @property
    def row(self) -> int:
        """The height of a bar with its name; a long name of a dot stands above it."""
        above = self.dots and max(len(bar.label) for bar in self.bars) > LABEL_LETTERS
        return 2 * _ROW if above else _ROW

    @property
    def height(self) -> int:
        """Of its drawing."""
        return 10 + self.row * len(self.bars) + _BOTTOM

    @property
    def has_intervals(self) -> bool:
        """Whether a bar has whiskers."""
        return any(bar.low is not None for bar in self.bars)

    def x_range(self) -> tuple[float, float]:
        """The ends of the x axis. Intervals that reach far beyond the dots are cut off."""
        values = [bar.value for bar in self.bars]
        ends = [v for bar in self.bars for v in (bar.value, bar.low, bar.high, bar.mark) if v is not None]
        if self.log_x:
            return max(min(ends), min(values) / 3) / 1.1, min(max(ends), _WIDEST * max(values))
        if self.dots:
            return min(0.0, *values), max(0.0, min(max(ends), _WIDEST * max(values)))
        return min(0.0, *ends), max(0.0, *ends)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of the values."""
        intervals = [self.interval_name] if self.has_intervals else []
        marks = [self.mark_name] if self.mark_name else []
        rows = [
            [
                bar.label,
                number(bar.value),
                *([_ends(bar.low, bar.high)] if intervals else []),
                *(["" if bar.mark is None else number(bar.mark)] if marks else []),
            ]
            for bar in self.bars
        ]
        return [self.y_label, self.value_name, *intervals, *marks], rows


Chart = LineChart | BarChart


def number(value: float) -> str:
    """A number as people read it: four significant digits, and commas between thousands."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def _values(line: Line) -> dict[float, str]:
    """The values of a line with their intervals, by x."""
    values = {x: number(y) for x, y in zip(line.xs, line.ys, strict=True)}
    for x, (low, high) in zip(line.xs, line.intervals, strict=False):
        values[x] += f" ({_ends(low, high)})"
    return values


def write_charts(charts: Sequence[Chart], heading: Sequence[str], path: Path) -> None:
    """Write the charts as a file beside the figure that was made of them, and the lines that stand above them."""
    document = {"heading": list(heading), "charts": [asdict(chart) for chart in charts]}
    path.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="ascii")


def read_charts(path: Path) -> tuple[list[Chart], list[str]]:
    """The charts and the lines above them. InvalidFile if the file is damaged."""
    try:
        document = json.loads(path.read_bytes())
        return [_chart(record) for record in document["charts"]], [str(line) for line in document["heading"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged(path) from None


def damaged(path: Path) -> InvalidFile:
    """For a file of a result folder that can't be used."""
    return InvalidFile(
        f"{path} is missing or damaged",
        allowed="the file as a run wrote it",
        advice="run it again",
        code="damaged-result",
    )


def _chart(record: dict[str, Any]) -> Chart:
    parts: dict[str, Callable[..., object]] = {"lines": Line, "points": Line, "rules": Rule, "bars": Bar}
    made: dict[str, Any] = {
        name: [parts[name](**one) for one in value] if name in parts else value
        for name, value in record.items()
    }
    return BarChart(**made) if "bars" in made else LineChart(**made)


@dataclass(frozen=True)
class Axis:
    """A range of values drawn from `start` to `stop`, linear or logarithmic."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def inside(self, value: float) -> float:
        """Where the value lies; a value outside of the range lies at the nearer end."""
        return self.place(min(max(value, self.low), self.high))

    def place(self, value: float) -> float:
        """Where the value lies, also outside of the range."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log(max(one, _LEAST)) for one in (low, high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Round values inside of the range, about five of them."""
        if self.log and self.high >= 6 * self.low:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            units, every = ((1, 2, 5), 1) if last - first <= 2 else ((1,), max(1, (last - first) // 5))
            found = [unit * 10.0**power for power in range(first, last + 1, every) for unit in units]
            return [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * unit for unit in (1.0, 2.0, 2.5, 5.0, 10.0) if power * unit >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def axis(low: float, high: float, start: float, stop: float, *, log: bool = False) -> Axis:
    """An axis over this range; one of almost no length is widened to a decade, to zero, or to a length of one."""
    if log:
        low = max(low, _LEAST)
        return Axis(low, high if high > low * (1 + _SHORTEST) else low * 10, start, stop, log)
    if high - low <= _SHORTEST * max(abs(low), abs(high)):
        low, high = min(low, 0.0), max(high, 0.0)
    return Axis(low, high if high - low >= 1e-100 else low + 1.0, start, stop)


def tick_text(value: float) -> str:
    """The number at a tick, written short."""
    if value != 0 and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def figure(chart: Chart) -> str:
    """A chart with its title and legend, a badge if it is not private, and its values as a table."""
    drawn = _line_marks(chart) if isinstance(chart, LineChart) else _bar_marks(chart)
    about = f'class="chart" role="img" aria-label="{text(chart.title)}. The table below has the values."'
    heads, rows = chart.table()
    return (
        f'<figure class="panel" id="chart-{text(chart.name)}"><figcaption>{text(chart.title)}'
        f"{BADGE if chart.truth else ''}</figcaption>{legend(chart)}"
        f'<svg viewBox="0 0 {WIDTH} {chart.height}" {about}>{"".join(drawn)}</svg>'
        f"<details><summary>Values</summary>{table(heads, rows)}</details></figure>"
    )


def legend(chart: Chart) -> str:
    """A name and a sample of each look, where a chart has several."""
    if isinstance(chart, LineChart):
        lines = chart.lines if len(chart.lines) > 1 else ()
        shown = [(line.name, _path(f"line {line.look}", "M1 7H27")) for line in lines]
        shown += [(point.name, _point(point.look, 14, 7)) for point in chart.points]
    else:
        value = _dot("bar", 14, 7) if chart.as_dots else _box("bar", 4, 2, 20, 10)
        shown = [(chart.value_name, value)] if chart.mark_name or chart.has_intervals else []
        shown += [(chart.interval_name, _whisker("whisker", 7, 4, 24))] if chart.has_intervals else []
        shown += [(chart.mark_name, _path("mark", "M14 0V14"))] if chart.mark_name else []
        shown += (
            [("the best private method", _point("best", 14, 7))]
            if any(bar.best for bar in chart.bars)
            else []
        )
    names = (
        f'<li><svg viewBox="0 0 28 14" class="swatch" aria-hidden="true">{drawn}</svg>{text(name)}</li>'
        for name, drawn in shown
    )
    return f'<ul class="legend">{"".join(names)}</ul>' if shown else ""


def _line_marks(chart: LineChart) -> Iterator[str]:
    xs = sorted({x for line in chart.lines for x in line.xs} | set(range(len(chart.x_names))))
    # Marks of different lines at the same x stand beside each other.
    apart = any(line.intervals for line in chart.lines)
    step = min(5.0, 240 / len(xs) / len(chart.lines)) if apart else 0.0
    inset = step * len(chart.lines) / 2
    across = axis(xs[0], xs[-1], _LEFT + inset, WIDTH - _RIGHT - inset, log=chart.log_x)
    low, high = chart.y_range()
    top, bottom = _TOP + _NAME_ROW * len(chart.rules), HEIGHT - _BOTTOM
    up = axis(low, high * 1.05, bottom, top, log=chart.log_y)
    yield _text("tick", 4, 11, chart.y_label)
    for tick in up.ticks():
        yield _path("gridline", f"M{_LEFT} {up.place(tick):.1f}H{WIDTH - _RIGHT}")
        yield _text("tick", _LEFT - 5, up.place(tick) + 3.5, tick_text(tick), "end")
    yield _path("axis", f"M{_LEFT} {bottom}H{WIDTH - _RIGHT}")
    every = -(-len(chart.x_names) // 6) or 1
    names = [(float(place), name) for place, name in enumerate(chart.x_names)][::every]
    yield from _ticks_below(
        across, bottom, chart.x_label, names or [(tick, tick_text(tick)) for tick in across.ticks()]
    )
    yield f'<svg class="plot" x="{_LEFT}" y="{top}" width="{WIDTH - _RIGHT - _LEFT}" height="{bottom - top}" '
    yield f'viewBox="{_LEFT} {top} {WIDTH - _RIGHT - _LEFT} {bottom - top}">'
    for place, line in enumerate(chart.lines):
        shift = step * (place - (len(chart.lines) - 1) / 2)
        points = [
            (across.place(x) + shift, up.place(max(y, up.low))) for x, y in zip(line.xs, line.ys, strict=True)
        ]
        if line.look == "bins":
            steps = [
                f"{a:.1f} {y:.1f}L{b:.1f} {y:.1f}L{b:.1f} {bottom}" for (a, y), (b, _) in pairwise(points)
            ]
            yield _path("bar", f"M{points[0][0]:.1f} {bottom}L{'L'.join(steps)}z")
            continue
        # Places with names are joined where they follow each other.
        gaps = [bool(chart.x_names) and b - a > 1 for a, b in pairwise(line.xs)]
        joined = zip(points, [True, *gaps], strict=True)
        yield _path(f"line {line.look}", "".join(f"{'LM'[gap]}{x:.1f} {y:.1f}" for (x, y), gap in joined))
        for (x, _), (least, most) in zip(points, line.intervals, strict=False):
            yield _whisker(f"interval {line.look}", x, up.inside(least), up.inside(most), upright=True)
        if line.intervals or len(points) == 1:
            yield from (_dot(f"dot {line.look}", x, y, 3.5) for x, y in points)
    yield "</svg>"
    for place, rule in enumerate(chart.rules):
        x, row = across.inside(rule.x), _TOP + _NAME_ROW * (place + 1) - 4
        yield _path(f"rule{place % 2}", f"M{x:.1f} {row - 8}V{bottom}")
        shift, anchor = (-4, "end") if x > WIDTH * 0.6 else (4, "start")
        yield _text("label", x + shift, row, f"{rule.name} {number(rule.x)}", anchor)
    for point in chart.points:
        for x, y in zip(point.xs, point.ys, strict=True):
            yield _point(point.look, across.inside(x), up.inside(y))


def _bar_marks(chart: BarChart) -> Iterator[str]:
    row, above = chart.row, chart.row > _ROW
    names = [visible(bar.label, _LONG_LETTERS if above else LABEL_LETTERS) for bar in chart.bars]
    start = 16.0 if above else min(max(12 + max(map(_text_width, names)), 60), WIDTH / 2)
    bottom = 10 + row * len(chart.bars)
    across = axis(*chart.x_range(), start, WIDTH - _RIGHT - 8, log=chart.log_x)
    for tick in across.ticks():
        yield _path("gridline", f"M{across.place(tick):.1f} 10V{bottom}")
    yield _path("axis", f"M{start:.1f} {bottom}H{across.stop}")
    yield from _ticks_below(
        across, bottom, chart.x_label, [(tick, tick_text(tick)) for tick in across.ticks()]
    )
    for place, (name, bar) in enumerate(zip(names, chart.bars, strict=True), 1):
        middle, x = 10 + place * row - _ROW / 2, across.inside(bar.value)
        yield (
            _text("label", start, middle - 9.5, name)
            if above
            else _text("label", start - 6, middle + 4, name, "end")
        )
        if not chart.as_dots:
            left, right = sorted((across.inside(0.0), x))
            yield _box("bar", left, middle - 5.5, max(right - left, 0.5), 11)
        if bar.low is not None and bar.high is not None:
            yield _whisker("whisker", middle, across.inside(bar.low), across.inside(bar.high))
        if chart.as_dots:
            yield _point("best", x, middle) if bar.best else _dot("bar", x, middle)
        if bar.mark is not None:
            yield _path("mark", f"M{across.inside(bar.mark):.1f} {middle - 7}v14")


def _ticks_below(across: Axis, y: float, label: str, names: Sequence[tuple[float, str]]) -> Iterator[str]:
    """The names at these places, except for those that would lie on the one before, and what the axis measures."""
    taken = -math.inf
    for value, name in names:
        x, half = across.place(value), _text_width(name) / 2
        if x - half > taken:
            yield _text("tick", x, y + 15, name, "middle")
            taken = x + half + 4
    yield _text("tick", (across.start + across.stop) / 2, y + 31, label, "middle")


def _text_width(name: str) -> float:
    """About how wide a name is, in units: a little more than it takes in the usual fonts."""
    return _LETTER * sum(1.8 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)


def _text(look: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'


def _path(look: str, places: str) -> str:
    return f'<path class="{look}" d="{places}"/>'


def _box(look: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _dot(look: str, x: float, y: float, radius: float = 4) -> str:
    return f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def _whisker(look: str, at: float, low: float, high: float, *, upright: bool = False) -> str:
    """An interval with a cap across each end."""
    if upright:
        return _path(
            look, f"M{at:.1f} {low:.1f}V{high:.1f}M{at - 3:.1f} {low:.1f}h6M{at - 3:.1f} {high:.1f}h6"
        )
    return _path(look, f"M{low:.1f} {at:.1f}H{high:.1f}M{low:.1f} {at - 3:.1f}v6M{high:.1f} {at - 3:.1f}v6")


def _point(look: str, x: float, y: float) -> str:
    """A round one is chosen, a square on its corner is the best."""
    if look == "chosen":
        return _dot("point chosen", x, y, 5)
    return _path(f"point {look}", f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z")
