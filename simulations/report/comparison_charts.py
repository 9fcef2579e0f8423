"""The charts of a comparison: a panel for each set of users, with the loss of every method and its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from fedhist.simulations.report.charts import Bar, BarChart, Line, LineChart
from fedhist.simulations.report.marks import SERIES
from fedhist.simulations.report.methods import AXES, Row, measure_of, method_names, varied_numbers

MAX_CHARTS = 12
_LOG_RATIO = 8
_WITH_NONE = ("threshold", "delta", "delta_select", "total_delta")
"""Numbers that some methods do not have: their rows belong to all values."""

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
    """A chart for each data set, and for each value of all that varies but one number, which is the x axis.

    Where no number varies, every method is a dot in a row of its own. A row without a number, such as the threshold
    that only the selector fixed is given, belongs to all values of it. A row without a loss is not drawn.
    """
    drawn = [row for row in map(_ranked, rows) if row["mean"] is not None]
    charts: list[LineChart | BarChart] = []
    for name in dict.fromkeys(row["data"] for row in drawn):
        charts += _of_data([row for row in drawn if row["data"] == name], len(charts))
    return charts


def _ranked(row: Row) -> dict[str, Any]:
    """The row with the mean and the interval of the loss that methods are ranked by."""
    stem = measure_of(row)
    return {**row, **{end: row.get(f"{stem}_{end}") for end in ("mean", "low", "high")}}


def _of_data(rows: Sequence[Row], before: int) -> list[LineChart | BarChart]:
    along, *rest = varied_numbers(rows) or [""]
    # Beside another number, a threshold tells methods apart.
    others = [name for name in rest if name != "threshold"]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        for values in product(*(_belongs(row, name, rows) for name in others)):
            groups.setdefault(values, []).append(row)
    charts = []
    for place, (values, group) in enumerate(groups.items(), before + 1):
        named = [f"{AXES[one]} {value:,g}" for one, value in zip(others, values, strict=True)]
        what = (
            "Mean relative loss" if measure_of(rows[0]) == "loss" else "Mean relative loss of the estimates"
        )
        title = f"{what}, {', '.join([str(rows[0]['data']), *named])}"
        names = dict(zip(map(id, rows), method_names(rows, without=(along, *others)), strict=True))
        called = [names[id(row)] for row in group]
        draw = _lines if along else _bars
        charts.append(draw(f"loss-{place}", title, group, called, along))
    return charts


def _belongs(row: Row, name: str, rows: Sequence[Row]) -> list[Any]:
    """The values of a number that the row stands for."""
    value = row.get(name)
    if value or (value is not None and name not in _WITH_NONE):
        return [value]
    return sorted({one[name] for one in rows if one.get(name)})


def _lines(name: str, title: str, rows: Sequence[Row], called: Sequence[str], along: str) -> LineChart:
    methods: dict[str, dict[float, Row]] = {}
    for row, method in zip(rows, called, strict=True):
        methods.setdefault(method, {}).update(dict.fromkeys(_belongs(row, along, rows), row))
    means = {method: _mean(list(found.values())) for method, found in methods.items()}
    kept = sorted(methods, key=lambda method: means[method])[:SERIES]
    left_out = "" if len(kept) == len(methods) else f"; the {SERIES} best of {len(methods)} methods"
    looks = _looks([method for method in methods if method in kept], methods)
    lines = []
    for method in looks:
        found = methods[method]
        xs = sorted(found)
        mine = [found[x] for x in xs]
        ys = [row["mean"] for row in mine]
        lines.append(Line(method, looks[method], xs, ys, _intervals(mine)))
    drawn = [row for line in lines for row in methods[line.name].values()]
    xs = sorted({x for line in lines for x in line.xs})
    return LineChart(
        name=name,
        title=title + left_out,
        x_label=AXES[along],
        y_label=_label(drawn),
        truth=True,
        lines=tuple(lines),
        log_x=xs[0] > 0 and xs[-1] >= _LOG_RATIO * xs[0],
        log_y=_spread_out(drawn),
        side_by_side=True,
    )


def _looks(kept: Sequence[str], methods: dict[str, dict[float, Row]]) -> dict[str, str]:
    """The look of each method: its selector's own if it has that to itself, else the next that is free."""
    selectors = {method: str(next(iter(methods[method].values()))["selector"]) for method in kept}
    taken: dict[str, int] = {}
    for method, selector in selectors.items():
        if selector in _LOOKS and _LOOKS[selector] not in taken.values():
            taken[method] = _LOOKS[selector]
    for method in kept:
        if method not in taken:
            taken[method] = next(number for number in range(SERIES) if number not in taken.values())
    return {method: f"s{taken[method]}" for method in kept}


def _bars(name: str, title: str, rows: Sequence[Row], called: Sequence[str], along: str) -> BarChart:
    ordered = sorted(zip(rows, called, strict=True), key=lambda pair: float(pair[0]["mean"]))
    return BarChart(
        name=name,
        title=title,
        x_label=_label(rows),
        y_label="method",
        truth=True,
        bars=tuple(
            Bar(method, row["mean"], row["low"], row["high"], best=row.get("result") == "best")
            for row, method in ordered
        ),
        value_name="mean relative loss",
        interval_name="95 % interval of the mean",
        log_x=_spread_out(rows),
        dots=True,
    )


def _intervals(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The ends of the intervals; a row of a single trial has none, and its ends are its mean."""
    if all(row["low"] is None for row in rows):
        return []
    return [(row["mean"], row["mean"]) if row["low"] is None else (row["low"], row["high"]) for row in rows]


def _label(rows: Sequence[Row]) -> str:
    single = all(row["low"] is None for row in rows)
    return "relative loss of a single trial" if single else "relative loss, mean and 95 % interval"


def _mean(rows: Sequence[Row]) -> float:
    return sum(float(row["mean"]) for row in rows) / len(rows)


def _spread_out(rows: Sequence[Row]) -> bool:
    """Whether the losses need a logarithmic axis."""
    losses = [row["mean"] for row in rows]
    return bool(min(losses) > 0 and max(losses) > _LOG_RATIO * min(losses))
