"""Figures: files that open, that are the same each time, and series that can be told apart without colour."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tests.builders import python
from tests.support.api import (
    comparison_charts,
    comparison_figure,
    draw_beyond,
    draw_bound,
    draw_bounded,
    draw_debias,
    draw_numbers,
    draw_sparsity,
    write_both,
)
from tests.support.api import plot_module as plot

SVG = "{http://www.w3.org/2000/svg}"


def compared(selector="oracle", **others):
    row = {
        "data": "words", "items": 100, "epsilon": 1.0, "epsilon_select": 0.1, "max_threshold": 150.0, "delta": 1e-6,
        "delta_select": 1e-6, "threshold": None, "release": None, "selector": selector,
        "private": selector != "oracle", "loss_mean": 0.2, "loss_low": 0.1, "loss_high": 0.3,
    }  # fmt: skip
    return row | others


COMPARED = [
    compared(name, items=d, loss_mean=0.01 * d, loss_low=0.001 * d, loss_high=0.02 * d)
    for name in ("dpsgd", "oracle")
    for d in (10, 100)
]
NUMBERS = [
    {
        "data": "a", "d": d, "reading": r, "column": c, "paper": "0.01", "ours": 0.02,
        "runs_low": 0.01, "runs_high": 0.03,
    }
    for d in (50, 100)
    for r in ("numbers", "text")
    for c in ("best C", "median")
]  # fmt: skip
BOUND = [
    {"data": "a", "C": c, "bound": 3 / c, "ratio": 3}
    | {"error": 1 / c, "error_low": 0.5 / c, "error_high": 2 / c}
    for c in (10, 100)
]
LOSSES = [
    {"data": "a", "d": d, "method": m, "loss": 0.1, "low": 0.05, "high": 0.2}
    for d in (10, 100)
    for m in ("TQ", "PQ")
]
DEBIASED = [
    {
        "data": "mean 1", "bound": b, "alpha": a, "clipped": 0.1, "clipped_low": 0.0, "clipped_high": 0.2,
        "debiased": 0.05, "low": 0.01, "high": 0.1,
    }
    for b in ("private", "exact")
    for a in (0.1, 10.0)
]  # fmt: skip
BEYOND = [
    {
        "data": "a", "domain": domain, "items": 10, "C_m": 150.0, "method": "ours", "ratio": ratio, "gap": 0.1,
        "gap_low": 0.05, "gap_high": 0.15, "its_loss": 0.5, "result": result,
    }
    for domain in ("closed", "open")
    for ratio, result in ((0.5, "better"), (1.2, "worse"), (1.0, "not different"))
]  # fmt: skip
DRAWN = {
    "comparison": lambda stem: write_both(comparison_figure(COMPARED), stem),
    "one value each": lambda stem: write_both(comparison_figure([compared(), compared("dpsgd")]), stem),
    "one trial": lambda stem: write_both(comparison_figure([compared(loss_low=None, loss_high=None)]), stem),
    "numbers": lambda stem: draw_numbers(NUMBERS, stem),
    "bound": lambda stem: draw_bound(BOUND, stem),
    "bounded": lambda stem: draw_bounded(LOSSES, stem),
    "sparsity": lambda stem: draw_sparsity({"a": np.array([9, 5, 0])}, LOSSES, {"TQ": "t", "PQ": "p"}, stem),
    "debias": lambda stem: draw_debias(DEBIASED, stem),
    "beyond": lambda stem: draw_beyond(BEYOND, stem),
}


@pytest.mark.parametrize("name", DRAWN)
def test_each_is_valid_and_the_same_bytes_again(name, tmp_path):
    svg, png = DRAWN[name](tmp_path / "one")
    again = DRAWN[name](tmp_path / "two")
    assert [path.name for path in (svg, png)] == ["one.svg", "one.png"]
    root = ET.parse(svg).getroot()  # noqa: S314 - our own file
    assert root.tag == f"{SVG}svg"
    assert any(
        "loss" in (text.text or "") or "error" in (text.text or "") for text in root.iter(f"{SVG}text")
    )
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (svg.read_bytes(), png.read_bytes()) == tuple(path.read_bytes() for path in again)


def test_charts_that_do_not_fit_are_mentioned(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "MAX_CHARTS", 2)
    drawn = comparison_figure([compared(data=f"set {number}") for number in range(5)])
    svg, _ = write_both(drawn, tmp_path / "one")
    assert "the first 2 of 5 charts" in svg.read_text()


@pytest.mark.parametrize(
    ("rows", "x_label", "drawn"),
    [
        # Only the selector fixed has a threshold given: one is no axis.
        (
            [compared(name, items=d) for name in ("dpsgd", "oracle") for d in (10, 20)]
            + [compared("fixed", items=d, threshold=50.0) for d in (10, 20)],
            "items d",
            {"dpsgd": [10, 20], "oracle (not private)": [10, 20], "fixed": [10, 20]},
        ),
        # Several are one, along which the others are level.
        (
            [compared("dpsgd"), *(compared("fixed", threshold=c) for c in (10.0, 50.0))],
            "threshold C",
            {"dpsgd": [10, 50], "fixed": [10, 50]},
        ),
        # Beside another axis they are methods.
        (
            [compared("fixed", items=d, threshold=c) for d in (10, 20) for c in (5.0, 50.0)],
            "items d",
            {"fixed, C 5": [10, 20], "fixed, C 50": [10, 20]},
        ),
        (
            [compared("dpsgd", delta_select=delta) for delta in (1e-6, 1e-4)],
            "delta of the choice",
            {"dpsgd": [1e-6, 1e-4]},
        ),
        # A selector that lacks some values has a line through the others.
        (
            [compared("dpsgd", items=10), compared("dpsgd", items=20), compared(items=20)],
            "items d",
            {"dpsgd": [10, 20], "oracle (not private)": [20]},
        ),
    ],
    ids=["one threshold", "thresholds", "thresholds beside items", "a delta", "missing values"],
)
def test_what_varies_is_the_axis_or_tells_methods_apart(rows, x_label, drawn):
    (chart,) = comparison_charts(rows)
    assert chart.x_label == x_label
    assert {line.name: line.xs for line in chart.lines} == drawn


def test_drawing_leaves_no_state_behind_and_nothing_loads_before_it(tmp_path):
    code = (
        "import sys\n"
        "import io\n"
        "from fedhist.simulations.paper import figures\n"
        "from fedhist.simulations.report import plot\n"
        "from fedhist.simulations.report.charts import Line, LineChart\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from matplotlib import rcParams\n"
        "before = {name: rcParams[name] for name in plot.RC}\n"
        "chart = LineChart('c', 't', 'x', 'y', truth=False, lines=(Line('a', 's0', [1, 2], [1, 2]),))\n"
        "plot.save(plot.painted([chart]), io.BytesIO(), 'svg')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert {name: rcParams[name] for name in plot.RC} == before\n"
    )
    python("-c", code, cwd=tmp_path)
