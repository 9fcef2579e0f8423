"""The charts of `fedhist compare`: the loss of every selector, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fedhist.simulations.report.charts import Bar, BarChart, Line, LineChart
from fedhist.simulations.report.marks import SERIES

Row = Mapping[str, Any]
AXES = {
    "items": "items d",
    "epsilon_select": "epsilon of the choice",
    "epsilon": "epsilon of the histogram",
    "max_threshold": "largest threshold C_m",
    "delta": "delta of the histogram",
    "delta_select": "delta of the choice",
    "threshold": "threshold C",
}
"""What a comparison may vary, and what its axis is called."""

MAX_CHARTS = 12
_LOG_RATIO = 8
# A selector has the same look in every comparison, of its domain or of both.
_LOOKS = {
    "weighted-quantile": 0,
    "exponential-v": 0,
    "dpsgd": 1,
    "oracle": 2,
    "output-perturbation": 3,
    "exponential-sharp": 3,
    "m-quantile": 4,
    "median": 4,
    "quantile": 5,
    "p90": 5,
    "fixed": 6,
}


def comparison_charts(rows: Sequence[Row]) -> list[LineChart | BarChart]:
    """A chart for each data set and what else varies; along x the first setting that varies, else a bar a selector.

    A row without a setting, such as the threshold that only the selector fixed is given, belongs to all its values: it
    is a level line where the setting is the x axis, and in every chart where charts differ in it.
    """
    varied = [name for name in AXES if len(_values(rows, name)) > 1]
    others = [name for name in ("data", "release", *varied[1:]) if len(_values(rows, name)) > 1]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        belongs = ([row[name]] if row[name] is not None else _values(rows, name) for name in others)
        for values in product(*belongs):
            groups.setdefault(values, []).append(row)
    charts = []
    for place, (values, group) in enumerate(groups.items()):
        named = ", ".join(
            value if isinstance(value, str) else f"{AXES[name]} {value:,g}"
            for name, value in zip(others, values, strict=True)
        )
        name, title = f"loss-{place + 1}", f"Mean relative loss, {named or rows[0]['data']}"
        charts.append(_lines(name, title, group, varied[0]) if varied else _bars(name, title, group))
    return charts


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The different values of a column, in order of appearance, without None."""
    return list(dict.fromkeys(row[name] for row in rows if row[name] is not None))


def _lines(name: str, title: str, rows: Sequence[Row], along: str) -> LineChart:
    xs = sorted(_values(rows, along))
    lines = []
    for number, selector in enumerate(dict.fromkeys(row["selector"] for row in rows)):
        found: dict[float, Row] = {}
        for row in (row for row in rows if row["selector"] == selector):
            found |= dict.fromkeys(xs if row[along] is None else [row[along]], row)
        mine = [found[x] for x in xs if x in found]
        lines.append(
            Line(
                name=_called(mine[0]),
                look=f"s{_LOOKS.get(selector, number) % SERIES}",
                xs=[x for x in xs if x in found],
                ys=[row["loss_mean"] for row in mine],
                intervals=_intervals(mine),
            )
        )
    return LineChart(
        name=name,
        title=title,
        x_label=AXES[along],
        y_label="relative loss, mean and 95 % interval",
        truth=True,
        lines=tuple(lines),
        log_x=xs[0] > 0 and xs[-1] >= _LOG_RATIO * xs[0],
        log_y=_spread_out(rows),
    )


def _bars(name: str, title: str, rows: Sequence[Row]) -> BarChart:
    ordered = sorted(rows, key=lambda row: float(row["loss_mean"]))
    return BarChart(
        name=name,
        title=title,
        x_label="relative loss, mean and 95 % interval",
        y_label="selector",
        truth=True,
        bars=tuple(Bar(_called(row), row["loss_mean"], row["loss_low"], row["loss_high"]) for row in ordered),
        value_name="mean relative loss",
        interval_name="95 % interval of the mean",
        log_x=_spread_out(rows),
    )


def _intervals(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The ends of the intervals; none if a row has none, as after a single trial."""
    ends = [(row["loss_low"], row["loss_high"]) for row in rows]
    return [] if any(None in pair for pair in ends) else ends


def _called(row: Row) -> str:
    return str(row["selector"]) if row["private"] else f"{row['selector']} (not private)"


def _spread_out(rows: Sequence[Row]) -> bool:
    """Whether the losses need a logarithmic axis."""
    losses = [row["loss_mean"] for row in rows]
    return bool(min(losses) > 0 and max(losses) > _LOG_RATIO * min(losses))
