"""The charts of a comparison: a panel for each set of users, with the loss of every method and its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from fedhist.simulations.report.charts import SERIES, Bar, BarChart, Chart, Line, LineChart
from fedhist.simulations.report.methods import AXES, Row, measure_of, method_names, varied_numbers

MAX_CHARTS = 12
_LOG_RATIO = 8
# An interval is drawn up to this multiple of the largest mean.
_WIDEST = 2.5
_WITH_NONE = ("threshold", "delta", "delta_select", "total_delta")
"""Numbers that some methods do not have: their rows belong to all values."""


def comparison_charts(rows: Sequence[Row]) -> list[Chart]:
    """A chart for each data set, and for each value of all that varies but one number, which is the x axis.

    Where no number varies, every method is a dot in a row of its own. A row without a number, such as the threshold
    that only the selector fixed is given, belongs to all values of it. A row without a loss is not drawn.
    """
    by_data: dict[str, list[Row]] = {}
    for row in rows:
        # The mean and the interval of the loss that methods are ranked by.
        ranked = {**row, **{end: row.get(f"{measure_of(row)}_{end}") for end in ("mean", "low", "high")}}
        if ranked["mean"] is not None:
            by_data.setdefault(str(row["data"]), []).append(ranked)
    charts: list[Chart] = []
    for these in by_data.values():
        charts += _of_data(these, len(charts))
    return charts


def _of_data(rows: Sequence[Row], before: int) -> list[Chart]:
    along, *rest = varied_numbers(rows) or [""]
    # Beside another number, a threshold tells methods apart.
    others = [name for name in rest if name != "threshold"]
    names = dict(zip(map(id, rows), method_names(rows, without=(along, *others)), strict=True))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        for values in product(*(_belongs(row, name, rows) for name in others)):
            groups.setdefault(values, []).append(row | {"called": names[id(row)]})  # type: ignore[operator]  # a dict
    what = "Mean relative loss" if measure_of(rows[0]) == "loss" else "Mean relative loss of the estimates"
    charts = []
    for place, (values, group) in enumerate(groups.items(), before + 1):
        named = [f"{AXES[one]} {value:,g}" for one, value in zip(others, values, strict=True)]
        title = f"{what}, {', '.join([str(rows[0]['data']), *named])}"
        charts.append((_lines if along else _bars)(f"loss-{place}", title, group, along))
    return charts


def _belongs(row: Row, name: str, rows: Sequence[Row]) -> list[Any]:
    """The values of a number that the row stands for."""
    value = row.get(name)
    if value or (value is not None and name not in _WITH_NONE):
        return [value]
    return sorted({one[name] for one in rows if one.get(name)})


def _lines(name: str, title: str, rows: Sequence[Row], along: str) -> Chart:
    methods: dict[str, dict[float, Row]] = {}
    for row in rows:
        methods.setdefault(row["called"], {}).update(dict.fromkeys(_belongs(row, along, rows), row))
    means = {
        method: sum(float(row["mean"]) for row in found.values()) / len(found)
        for method, found in methods.items()
    }
    kept = sorted(sorted(methods, key=means.__getitem__)[: len(SERIES)], key=list(methods).index)
    if len(kept) < len(methods):
        title += f"; the {len(kept)} best of {len(methods)} methods"
    lines = [_line(method, f"s{place}", methods[method]) for place, method in enumerate(kept)]
    xs, drawn = sorted({x for line in lines for x in line.xs}), [y for line in lines for y in line.ys]
    return LineChart(
        name,
        title,
        AXES[along],
        _label(rows),
        truth=True,
        lines=lines,
        log_x=xs[0] > 0 and xs[-1] >= _LOG_RATIO * xs[0],
        log_y=_spread_out(drawn),
        low_y=min(drawn) / 3 if _spread_out(drawn) else 0.0,
        high_y=_WIDEST * max(drawn),
    )


def _line(method: str, look: str, found: dict[float, Row]) -> Line:
    rows = sorted(found.items())
    ends = [
        (row["mean"], row["mean"]) if row["low"] is None else (row["low"], row["high"]) for _, row in rows
    ]
    single = all(row["low"] is None for _, row in rows)
    return Line(method, look, [x for x, _ in rows], [row["mean"] for _, row in rows], [] if single else ends)


def _bars(name: str, title: str, rows: Sequence[Row], along: str) -> Chart:
    return BarChart(
        name,
        title,
        _label(rows),
        "method",
        truth=True,
        bars=[
            Bar(row["called"], row["mean"], row["low"], row["high"], best=row.get("result") == "best")
            for row in sorted(rows, key=lambda row: float(row["mean"]))
        ],
        value_name="mean relative loss",
        interval_name="95 % interval of the mean",
        log_x=_spread_out([row["mean"] for row in rows]),
        dots=True,
    )


def _label(rows: Sequence[Row]) -> str:
    single = all(row["low"] is None for row in rows)
    return "relative loss of a single trial" if single else "relative loss, mean and 95 % interval"


def _spread_out(losses: Sequence[float]) -> bool:
    """Whether the losses need a logarithmic axis."""
    return bool(min(losses) > 0 and max(losses) > _LOG_RATIO * min(losses))
