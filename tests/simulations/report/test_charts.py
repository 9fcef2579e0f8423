"""Charts at the edges of what they may be given: single values, zeros, negative ones, enormous ones."""

from __future__ import annotations

import html
import io
import json
import unicodedata
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api import (
    LOOKS,
    AnyChart,
    Axis,
    Bar,
    BarChart,
    BinChart,
    Line,
    LineChart,
    Rule,
    StackChart,
    Stroke,
    chart_svg,
    linear,
    logarithmic,
    number,
    script_json,
    text,
    tick_text,
    visible,
    write_figure,
)
from tests.support.api import draw_chart as draw

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


def bins(counts: list[int]) -> BinChart:
    edges = tuple(float(2**place) for place in range(len(counts) + 1))
    return BinChart(name="b", edges=edges, counts=tuple(counts), rules=(Rule("threshold", 3.0),), **COMMON)


def stack(parts: list[float]) -> StackChart:
    made = tuple(Bar("select", part, note="x") for part in parts)
    return StackChart(name="s", parts=made, rules=(Rule("total", sum(parts)),), **COMMON)


CHARTS = st.one_of(
    st.lists(VALUES, min_size=1, max_size=8).map(bars),
    st.builds(
        lines,
        st.lists(st.tuples(POSITIVE, VALUES), min_size=1, max_size=8, unique_by=lambda point: point[0]),
        log_y=st.booleans(),
    ),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=10).map(bins),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=5).map(stack),
)


@given(CHARTS)
def test_any_chart_is_drawn_on_its_sheet_in_looks_that_there_are(chart: AnyChart) -> None:
    drawing = draw(chart)
    assert {mark.look for mark in drawing.marks} <= {*LOOKS, "hit"}
    found = [
        float(element.attrib[name])
        for element in ElementTree.fromstring(chart_svg(chart)).iter()  # noqa: S314 - our own drawing
        for name in ("x", "y", "width", "height", "cx", "cy")
        if name in element.attrib
    ]
    assert found
    assert all(-10 < place < max(drawing.width, drawing.height) + 10 for place in found)


def test_a_line_is_cut_where_it_leaves_the_chart() -> None:
    line = Line("loss", "s0", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 1.0, 100.0, 1.0, 1.0, 1.0])
    chart = LineChart(name="c", lines=(line,), log_x=False, **COMMON)
    (drawn,) = (mark for mark in draw(chart).marks if mark.look == "line s0")
    assert isinstance(drawn, Stroke)
    up, down = drawn.lines
    assert [len(up), len(down)] == [3, 4]
    assert up[-1][1] == down[0][1] == min(y for part in drawn.lines for _, y in part)


@pytest.mark.parametrize("values", [[0.0], [-3.0, -1.0], [1e-9], [1e15, 1.0], [5.0] * 30])
def test_figures_at_the_edges(values: list[float]) -> None:
    file = io.BytesIO()
    write_figure([bars(values)], file, "svg")
    assert file.getvalue().startswith(b"<?xml")


@given(VALUES, VALUES)
def test_ticks_lie_inside_of_a_linear_axis(a: float, b: float) -> None:
    axis = linear(min(a, b), max(a, b), 0, 100)
    ticks = axis.ticks()
    room = 1e-6 * (axis.high - axis.low)
    assert 1 <= len(ticks) <= 12
    assert all(axis.low - room <= tick <= axis.high + room for tick in ticks)


@given(POSITIVE, POSITIVE)
def test_ticks_lie_inside_of_a_logarithmic_axis(a: float, b: float) -> None:
    axis = logarithmic(min(a, b), max(a, b), 0, 100)
    assert 1 <= len(axis.ticks()) <= 20
    assert all(-1 <= axis.place(tick) <= 101 for tick in axis.ticks())


def test_places_on_an_axis() -> None:
    assert [linear(0, 10, 0, 100).place(value) for value in (-5, 0, 5, 10, 20)] == [0, 0, 50, 100, 100]
    assert logarithmic(1, 100, 0, 100).place(10) == pytest.approx(50)
    assert Axis(0, 10, 0, 100).beyond(20) == 200


@pytest.mark.parametrize(
    ("written", "value", "shown"),
    [
        *(
            (tick_text, *pair)
            for pair in ((0, "0"), (1500, "1.5k"), (0.25, "0.25"), (2e6, "2e6"), (1e-4, "1e-4"))
        ),
        *((number, *pair) for pair in ((0, "0"), (1234.5, "1,234"), (0.123456, "0.1235"), (-12.5, "-12.5"))),
    ],
)
def test_numbers_are_short(written: Callable[[float], str], value: float, shown: str) -> None:
    assert written(value) == shown


@given(st.text())
def test_nothing_invisible_is_left_in_a_text_and_nothing_visible_is_lost(given_text: str) -> None:
    shown = visible(given_text, 10**6)
    assert not INVISIBLE & {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"}
    plain = [c for c in given_text if unicodedata.category(c) not in INVISIBLE]
    assert [c for c in shown if c in plain][: len(plain)] or not plain
    assert html.unescape(text(given_text, 10**6)) == shown
    assert not set('<>"') & set(text(given_text))


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_data_in_a_script_is_read_back_and_can_end_nothing(value: Any) -> None:
    written = script_json(value)
    assert json.loads(written) == value
    assert not set("<>&\u2028\u2029") & set(written)
