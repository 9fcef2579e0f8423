"""The figures of `fedhist paper`, from the rows of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.simulations.report.charts import (
    CHARTS_SUFFIX,
    Bar,
    BarChart,
    Chart,
    Line,
    LineChart,
    write_charts,
)
from fedhist.simulations.report.comparison import Row
from fedhist.simulations.report.page import SERIES
from fedhist.simulations.report.plot import painted, write_both

Files = tuple[Path, Path]
_MAX_POINTS = 400
_MANY_ITEMS = 200


def draw_numbers(rows: Sequence[Row], stem: Path) -> Files:
    """Our numbers with the printed ones marked, a chart for each column of the table."""
    shown = [row for row in rows if row["ours"] is not None]
    return _save([_numbers(column, these) for (column,), these in _grouped(shown, "column")], stem)


def _numbers(column: str, rows: Sequence[Row]) -> BarChart:
    return BarChart(
        name=column,
        title=column,
        x_label="relative loss: mean, 95 % of three runs",
        y_label="set",
        truth=False,
        bars=tuple(
            Bar(
                f"{row['data']} {row['d']:,}, {row['reading']}",
                row["ours"],
                row["runs_low"],
                row["runs_high"],
                mark=float(row["paper"]),
            )
            for row in rows
        ),
        value_name="ours, by reading",
        interval_name="95 % of three runs",
        mark_name="printed in the paper",
        log_x=True,
    )


def draw_bound(rows: Sequence[Row], stem: Path) -> Files:
    """For each set the error and its bound along C, and their ratio."""
    charts = []
    for (data,), these in _grouped(rows, "data"):
        error = _line("true error (3 runs)", 0, these, "C", "error", "error_low", "error_high")
        bound = _line("bound V(C)", 1, these, "C", "bound")
        ratio = _line("V(C) / true error", 2, these, "C", "ratio")
        charts += [
            _chart(data, "threshold C", "relative l1 error", error, bound, log_x=False),
            _chart(f"{data}: ratio", "threshold C", ratio.name, ratio, log_x=False, log_y=False),
        ]
    return _save(charts, stem, columns=2)


def draw_bounded(rows: Sequence[Row], stem: Path) -> Files:
    """The loss of every method along d, a chart for each set."""
    charts = []
    for (data,), of_set in _grouped(rows, "data"):
        lines = [
            _line(method, number, these, "d", "loss", "low", "high")
            for number, ((method,), these) in enumerate(_grouped(of_set, "method"))
        ]
        charts.append(_chart(data, "items d", "relative loss", *lines))
    return _save(charts, stem, columns=2)


def draw_sparsity(
    curves: Mapping[str, Integers], rows: Sequence[Row], meanings: Mapping[str, str], stem: Path
) -> Files:
    """Distinct items by rank, then bars for each set and number of items."""
    lines = []
    for number, (name, distinct) in enumerate(curves.items()):
        # All of the head, and ever fewer of the tail: on a logarithmic axis neighbours fall on the same point.
        ranks = np.unique(np.geomspace(1, len(distinct), _MAX_POINTS).astype(np.int64))
        counts = np.maximum(distinct[ranks - 1], 0.8)
        lines.append(Line(name, f"s{number % len(SERIES)}", ranks.tolist(), counts.tolist()))
    most = [1, max(len(distinct) for distinct in curves.values())]
    lines.append(Line(f"{_MANY_ITEMS} items", "s7", most, [_MANY_ITEMS] * 2))
    charts: list[Chart] = [_chart("distinct items of a user", "rank of the user", "distinct items", *lines)]
    for (data, size), these in _grouped(rows, "data", "d"):
        bars = tuple(Bar(row["method"], row["loss"], row["low"], row["high"]) for row in these)
        title = f"{data}, d = {size:,}"
        charts.append(BarChart(title, title, "relative loss", "method", truth=False, bars=bars))
    return _save(charts, stem, heading=[f"{name}: {text}" for name, text in meanings.items()])


def draw_debias(rows: Sequence[Row], stem: Path) -> Files:
    """Clipped and debiased losses along alpha, a chart for each reading."""
    charts = []
    for (data, bound), these in _grouped(rows, "data", "bound"):
        clipped = _line("clipped", 1, these, "alpha", "clipped", "clipped_low", "clipped_high")
        debiased = _line("debiased", 0, these, "alpha", "debiased", "low", "high")
        title = f"{data} count a user, {bound} C"
        along = "alpha: the larger, the more alike users are"
        charts.append(_chart(title, along, "relative error of the count", clipped, debiased))
    return _save(charts, stem, columns=2)


def draw_beyond(rows: Sequence[Row], stem: Path) -> Files:
    """Our methods against the best of the paper's on every set: ratios of losses, those where we lose included."""
    groups = _grouped(rows, "domain", "method")
    return _save([_ratios(domain, method, these) for (domain, method), these in groups], stem)


def _ratios(domain: str, method: str, rows: Sequence[Row]) -> BarChart:
    several = len({row["C_m"] for row in rows}) > 1
    bars = []
    for row in rows:
        name = f"{row['data']} {row['items']:,}" + (f", C_m {row['C_m']:,g}" if several else "")
        unclear = "" if row["result"] in ("better", "worse") else "≈ "
        low = high = None
        if row["gap_low"] is not None:
            # The interval of the paired difference, in units of the paper's loss.
            reach = (row["gap_high"] - row["gap"]) / row["its_loss"]
            low, high = row["ratio"] - reach, row["ratio"] + reach
        bars.append(Bar(unclear + name, row["ratio"], low, high, mark=1.0))
    return BarChart(
        name=f"{domain}-{method}",
        title=f"{domain} domain, {method}: our loss / best loss of the paper's",
        x_label="left of 1: ours is better; ≈: no difference found",
        y_label="set",
        truth=False,
        bars=tuple(bars),
        value_name="ratio",
        interval_name="95 % interval of the difference",
        mark_name="equal",
        log_x=True,
    )


def _save(charts: Sequence[Chart], stem: Path, *, columns: int = 3, heading: Sequence[str] = ()) -> Files:
    """The figure, and beside it its charts for the folder's page."""
    write_charts(charts, heading, stem.with_name(f"{stem.name}{CHARTS_SUFFIX}"))
    return write_both(painted(charts, columns=columns, heading=heading), stem)


def _grouped(rows: Sequence[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """The rows by the values of these columns, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.items())


def _line(name: str, number: int, rows: Sequence[Row], *columns: str) -> Line:
    """The columns x and y and, for an interval, low and high; a single trial has none."""
    x, y, *interval = columns
    ordered = sorted(rows, key=lambda row: float(row[x]))
    ends = [(row[interval[0]], row[interval[1]]) for row in ordered] if interval else []
    return Line(
        name,
        f"s{number % len(SERIES)}",
        [row[x] for row in ordered],
        [row[y] for row in ordered],
        [] if any(None in pair for pair in ends) else ends,
    )


def _chart(
    title: str, x_label: str, y_label: str, *lines: Line, log_x: bool = True, log_y: bool = True
) -> LineChart:
    return LineChart(title, title, x_label, y_label, truth=False, lines=lines, log_x=log_x, log_y=log_y)
