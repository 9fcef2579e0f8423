"""Charts at the edges of what they may be given: single values, zeros, negative ones, enormous ones."""

from __future__ import annotations

import html
import io
import re
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api import (
    SERIES,
    Bar,
    BarChart,
    Chart,
    Line,
    LineChart,
    Rule,
    axis_over,
    draw_chart,
    number,
    painted,
    save_drawing,
    text,
    visible,
)

VALUES = st.floats(-1e12, 1e12, allow_nan=False)
POSITIVE = st.floats(1e-6, 1e12)
INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
COMMON = {"title": "t", "x_label": "x", "y_label": "y", "truth": False}


def bars(values: list[float]) -> BarChart:
    made = tuple(Bar(f"<{i}>", v, v - 1, v + 1, v / 2) for i, v in enumerate(values))
    return BarChart(name="bars", bars=made, mark_name="true", **COMMON)


def lines(points: list[tuple[float, float]], *, log_y: bool) -> LineChart:
    xs, ys = map(list, zip(*sorted(points), strict=True))
    ys = [abs(y) + 1 for y in ys] if log_y else ys
    line = Line("loss", "s0", xs, ys, [(y - 1, y + 1) for y in ys])
    chosen = Line("chosen", "chosen", xs[:1], ys[:1])
    rules = (Rule("r", xs[0]),)
    return LineChart(name="c", lines=(line,), points=(chosen,), rules=rules, log_y=log_y, **COMMON)


def bins(counts: list[int]) -> LineChart:
    edges = [float(2**place) for place in range(len(counts) + 1)]
    line = Line("users", "bins", edges, [*counts, 0])
    return LineChart(name="b", lines=(line,), rules=(Rule("threshold", 3.0),), **COMMON)


def windows(values: list[float]) -> LineChart:
    """Values at places with names, every third of which is missing."""
    places = [place for place in range(len(values)) if place % 3]
    line = Line("estimate", "s0", places, [values[place] for place in places])
    names = [f"<week {place}>" for place in range(len(values))]
    return LineChart(name="w", lines=(line,), log_x=False, x_names=names, **COMMON)


CHARTS = st.one_of(
    st.lists(VALUES, min_size=1, max_size=8).map(bars),
    st.builds(
        lines,
        st.lists(st.tuples(POSITIVE, VALUES), min_size=1, max_size=8, unique_by=lambda point: point[0]),
        log_y=st.booleans(),
    ),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=10).map(bins),
    st.lists(VALUES, min_size=2, max_size=9).map(windows),
)
LOOKS = {
    "chart", "plot", "axis", "gridline", "bar", "whisker", "mark", "rule0", "rule1", "line", "interval", "dot", "point",
    "chosen", "best", "tick", "label", *(f"s{number}" for number in range(len(SERIES))),
}  # fmt: skip


def elements(chart: Chart) -> list[ElementTree.Element]:
    """All elements of its drawing, without the samples of the legend."""
    (drawing,) = re.findall(r"<svg[^>]*class=\"chart\".*</svg>", draw_chart(chart), re.DOTALL)
    return list(ElementTree.fromstring(drawing).iter())  # noqa: S314 - our own drawing


@given(CHARTS)
def test_any_chart_is_drawn_on_its_sheet_in_looks_that_there_are(chart: Chart) -> None:
    found = elements(chart)
    assert {look for element in found for look in element.attrib.get("class", "").split()} <= LOOKS
    sheet, *_ = found
    plots = [element for element in found if element.attrib.get("class") == "plot"]
    inside = {id(element) for plot in plots for element in plot.iter() if element is not plot}
    room = max(map(float, sheet.attrib["viewBox"].split()))
    places = [
        float(element.attrib[name])
        for element in found
        # What leaves the plot is cut off by it.
        if id(element) not in inside
        for name in ("x", "y", "width", "height", "cx", "cy")
        if name in element.attrib
    ]
    assert places
    assert all(-10 < place < room + 10 for place in places)


@given(CHARTS)
def test_the_table_has_every_value(chart: Chart) -> None:
    heads, rows = chart.table()
    assert all(len(row) == len(heads) for row in rows)
    told = {cell.split(" (")[0] for row in rows for cell in row}
    if isinstance(chart, BarChart):
        assert {number(bar.value) for bar in chart.bars} <= told
    else:
        assert {number(y) for line in chart.lines for y in line.ys} <= told


def test_a_line_that_leaves_the_chart_is_cut_by_its_plot() -> None:
    line = Line("loss", "s0", [1.0, 2.0, 3.0], [1.0, 100.0, 1.0])
    chart = LineChart(name="c", lines=(line,), log_x=False, high_y=3.0, **COMMON)
    (plot,) = [one for one in elements(chart) if one.attrib.get("class") == "plot"]
    assert [one.attrib["class"] for one in plot] == ["line s0"]
    x, y, width, height = (float(plot.attrib[name]) for name in ("x", "y", "width", "height"))
    assert [float(one) for one in plot.attrib["viewBox"].split()] == [x, y, width, height]


@pytest.mark.parametrize("values", [[0.0], [-3.0, -1.0], [1e-9], [1e15, 1.0], [5.0] * 30])
def test_figures_at_the_edges(values: list[float]) -> None:
    file = io.BytesIO()
    save_drawing(painted([bars(values)]), file, "svg")
    assert file.getvalue().startswith(b"<?xml")


@given(st.one_of(st.tuples(VALUES, VALUES, st.just(False)), st.tuples(POSITIVE, POSITIVE, st.booleans())))
def test_ticks_lie_inside_of_an_axis(ends: tuple[float, float, bool]) -> None:
    a, b, log = ends
    axis = axis_over(min(a, b), max(a, b), 0, 100, log=log)
    assert 1 <= len(axis.ticks()) <= 20
    assert all(-1 <= axis.place(tick) <= 101 for tick in axis.ticks())


@given(st.text())
def test_nothing_invisible_is_left_in_a_text_and_nothing_visible_is_lost(given_text: str) -> None:
    shown = visible(given_text, 10**6)
    assert not INVISIBLE & {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"}
    plain = [c for c in given_text if unicodedata.category(c) not in INVISIBLE]
    assert [c for c in shown if c in plain][: len(plain)] or not plain
    assert html.unescape(text(given_text, 10**6)) == shown
    assert not set('<>"') & set(text(given_text))
