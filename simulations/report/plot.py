"""The charts of pages as figures of matplotlib: for papers, for notebooks, and for `fedhist figure`.

The one module that draws with matplotlib. Nothing here touches pyplot, so nothing is global.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, BinaryIO
from warnings import catch_warnings, filterwarnings

from fedhist.display.text import visible
from fedhist.protocol.errors import InvalidInput
from fedhist.server.disk import new_file
from fedhist.simulations.report.charts import (
    LABEL_LETTERS,
    Axis,
    BarChart,
    Chart,
    Line,
    LineChart,
    Rule,
    axis,
    number,
    tick_text,
)
from fedhist.simulations.report.comparison import (
    MAX_CHARTS,
    Row,
    comparison_charts,
    comparison_table,
    is_experiment,
)
from fedhist.simulations.report.page import COLOURS, NOT_PRIVATE, SERIES
from fedhist.simulations.report.run import CHART_NAMES, RunData, drawn_from, read_run, run_charts, run_of
from fedhist.simulations.simulation import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Scales = dict[str, tuple[Axis, tuple[float, float]]]
"""The axes x and y, each with the limits of what is shown."""

FORMATS = (".svg", ".png")
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedhist",
    "savefig.dpi": 150,
}
"""Settings of matplotlib while something is drawn: its own font, SVG text that stays text, ids without chance."""

_TITLE_LETTERS = 50
_WIDTH, _HEIGHT, _BAR = 4.4, 3.2, 0.17
_INK = {name: light for name, (light, _) in COLOURS.items()}
_COMPARISON = {"data", "method", "selector", "private", "loss_mean", "loss_low", "loss_high"}
_PREDICTION = {"epsilon", "relative_loss", "clipping_error", "noise_error", "threshold", "recall"}


def draw(what: object, name: str | None = None) -> Figure:
    """A chart of a run by its name, or the charts of a comparison or a prediction."""
    if isinstance(what, Result):
        return painted([_run_chart(run_of(what, "result"), name)])
    if isinstance(what, str | Path):
        if name is None and is_experiment(Path(what)):
            return comparison_figure(comparison_table(Path(what)))
        with drawn_from(Path(what)):
            return painted([_run_chart(read_run(Path(what)), name)])
    if name is not None:
        raise InvalidInput(
            f"a chart by name of a {type(what).__name__}",
            allowed="a Result, or the path of a result folder",
        )
    rows = _rows(what)
    columns = set(rows[0]) if rows else set()
    if columns >= _COMPARISON:
        return comparison_figure(rows)
    if columns >= _PREDICTION:
        totals = "best_split_of" in columns
        epsilons = [row["best_split_of" if totals else "epsilon"] for row in rows]
        return painted(plan_ahead_charts(epsilons, rows, totals=totals))
    raise InvalidInput(
        "the data frame is no comparison and no prediction, or has no rows",
        allowed="what fedhist.compare or fedhist.predict returned, with all its columns",
        code="not-a-comparison",
    )


def _run_chart(run: RunData, name: str | None) -> Chart:
    """The chart of this name; InvalidInput if this run has nothing to show in it."""
    charts, name = run_charts(run), name or "released"
    if name not in CHART_NAMES:
        raise InvalidInput(
            f"there is no chart {name!r}", allowed=", ".join(CHART_NAMES), code="unknown-chart"
        )
    if name not in charts:
        raise InvalidInput(
            f"this run has nothing to show in the chart {name!r}",
            allowed=", ".join(charts),
            advice="curve, scores, chances, users and seconds need an evaluated run, in a folder its simulation.json; "
            "times depend on the data, and over an open domain sizes depend on the data, too",
            code="chart-without-data",
        )
    return charts[name]


def _rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of any kind of frame; what is missing is None."""
    import narwhals

    read = narwhals.from_native(frame, eager_only=True, pass_through=True)
    if not isinstance(read, narwhals.DataFrame):
        raise InvalidInput(
            f"a figure of a {type(frame).__name__}",
            allowed="a Result, the path of a result folder, or what fedhist.compare or fedhist.predict returned",
            code="nothing-to-draw",
        )
    rows = read.rows(named=True)
    return [{name: None if _missing(value) else value for name, value in row.items()} for row in rows]


def _missing(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def comparison_figure(rows: Sequence[Row]) -> Figure:
    """The charts of a comparison beside each other, as many as there is room for."""
    charts = comparison_charts(rows)
    heading = [] if charts else ["no combination has a loss"]
    if len(charts) > MAX_CHARTS:
        heading = [f"the first {MAX_CHARTS} of {len(charts)} charts"]
    return painted(charts[:MAX_CHARTS], heading=heading)


def plan_ahead_charts(
    epsilons: Sequence[float],
    rows: Sequence[Row],
    *,
    totals: bool,
    target: Row | None = None,
    split: Row | None = None,
) -> list[LineChart]:
    """Error and its parts over epsilon, the thresholds, and the split if one was asked for.

    Args:
        epsilons: of the histogram, or with `totals` of both rounds.
        rows: a prediction for each, as `row_of` has them.
        totals: what the epsilons are.
        target: what `epsilon_for` says of the error that was asked for, marked, or of the least one out of reach.
        split: what `split_total` says of one total between the rounds.
    """
    along = "total epsilon, best split" if totals else "epsilon of the histogram"
    noise = "noise alone" if rows[0]["recall"] is None else "noise and withheld keys"
    names = {"relative_loss": "predicted error", "clipping_error": "clipping alone", "noise_error": noise}
    reached = []
    if target is not None:
        least, at = target["row"]["relative_loss"], target["epsilon"] or target["least_at_epsilon"]
        missed = "" if target["reached"] else f" is out of reach; least is {least:.3g}"
        named = f"{target['error']:g}{missed} at epsilon {at:.3g}"
        reached.append(Line(named, "chosen", [at], [least]))
    error = LineChart(
        name="error",
        title="Predicted error by epsilon",
        x_label=along,
        y_label="relative error",
        truth=False,
        lines=[
            Line(name, f"s{place}", epsilons, [row[column] for row in rows])
            for place, (column, name) in enumerate(names.items())
        ],
        points=reached,
        log_y=True,
    )
    ends = [(row["threshold_low"], row["threshold_high"]) for row in rows]
    threshold = LineChart(
        name="threshold",
        title="Mean threshold by epsilon, with 9 of 10 choices",
        x_label=along,
        y_label="threshold (counts)",
        truth=False,
        lines=[Line("mean threshold", "s0", epsilons, [row["threshold"] for row in rows], ends)],
        log_y=max(high for _, high in ends) > 3 * min(low for low, _ in ends),
    )
    if split is None:
        return [error, threshold]
    tried = split["tried"]
    parts = LineChart(
        name="split",
        title=f"Predicted error by split: between the rules within {split['flat_within']:.0%} of the best",
        x_label=f"share of round 1 in a total epsilon of {split['total_epsilon']:g}",
        y_label="predicted relative error",
        truth=False,
        lines=[
            Line(
                "predicted error", "s0", *([one[key] for one in tried] for key in ("share", "relative_loss"))
            )
        ],
        points=[Line("best", "best", [split["best_share"]], [split["row"]["relative_loss"]])],
        rules=[Rule("from", split["flat_from"]), Rule("to", split["flat_to"])],
    )
    return [error, threshold, parts]


def painted(charts: Sequence[Chart], *, columns: int = 3, heading: Sequence[str] = ()) -> Figure:
    """The charts in rows, under the lines of a heading, as a figure that belongs to no window and to no pyplot."""
    from matplotlib import rc_context

    columns = max(1, min(len(charts), columns))
    rows = [charts[first : first + columns] for first in range(0, len(charts), columns)]
    heights = [
        max(1.2 + _BAR * len(chart.bars) if isinstance(chart, BarChart) else _HEIGHT for chart in row)
        for row in rows
    ]
    with rc_context(RC):
        size = (_WIDTH * columns, sum(heights) + 0.25 * len(heading) + 0.1)
        figure: Figure = _shown_figure()(figsize=size, layout="constrained")
        if heading:
            figure.suptitle("\n".join(map(visible, heading)), fontsize=9)
        places = figure.add_gridspec(max(len(rows), 1), columns, height_ratios=heights or None)
        for place, chart in enumerate(charts):
            _paint(figure.add_subplot(places[place // columns, place % columns]), chart)
    return figure


@cache
def _shown_figure() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A matplotlib figure like any other: `savefig`, `axes` and so on work as usual."""

        def _repr_png_(self) -> bytes:
            """How a notebook shows it. Where pyplot's own display is active, that one shows it instead."""
            file = BytesIO()
            save(self, file, "png")
            return file.getvalue()

    return ShownFigure


def save(figure: Figure, file: BinaryIO, kind: str) -> None:
    """The figure as "svg" or "png"; the same figure gives the same bytes."""
    from matplotlib import rc_context

    about = {"Date": None, "Creator": "fedhist"} if kind == "svg" else {"Software": "fedhist"}
    with rc_context(RC), catch_warnings():
        # A name in a script that the font lacks: an SVG keeps it as text, and a PNG shows boxes.
        filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure.savefig(file, format=kind, metadata=about)


def write_figure(figure: Figure, path: Path, *, force: bool) -> None:
    """The figure as a file of the kind that its name ends in."""
    with new_file(path, suffixes=FORMATS, force=force) as file:
        save(figure, file, path.suffix.lower().removeprefix("."))


def write_both(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """The figure as stem.svg and stem.png."""
    svg, png = (stem.with_name(f"{stem.name}{suffix}") for suffix in FORMATS)
    for path in (svg, png):
        write_figure(figure, path, force=True)
    return svg, png


def _paint(axes: Axes, chart: Chart) -> None:
    """The chart with its title, the names of its axes and its legend."""
    scales = _paint_lines(axes, chart) if isinstance(chart, LineChart) else _paint_bars(axes, chart)
    axes.grid(visible=True, axis="both" if "y" in scales else "x", color=_INK["faint"], linewidth=0.7)
    for way, (scale, limits) in scales.items():
        axes.set(**{f"{way}scale": "log" if scale.log else "linear", f"{way}ticks": scale.ticks()})
        axes.set(**{f"{way}ticklabels": map(tick_text, scale.ticks()), f"{way}lim": limits})
    axes.minorticks_off()
    axes.set_xlabel(visible(chart.x_label))
    handles, names = axes.get_legend_handles_labels()
    rows = -(-len(handles) // 2) if len(handles) > 1 else 0
    if rows:
        shown = [visible(name) for name in names]
        axes.legend(handles, shown, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7.5)
    title = fill(visible(chart.title), _TITLE_LETTERS) + (f"\n({NOT_PRIVATE})" if chart.truth else "")
    axes.set_title(title, loc="left", fontsize=9.5, pad=6 + 13 * rows)


def _paint_lines(axes: Axes, chart: LineChart) -> _Scales:
    low, high = chart.y_range()
    up = axis(low, high * 1.05, 0, 1, log=chart.log_y)
    xs = [x for line in chart.lines for x in line.xs]
    across = axis(min(xs), max(xs), 0, 1, log=chart.log_x)
    for place, line in enumerate(chart.lines):
        # Intervals of different lines at the same x stand beside each other.
        _paint_line(axes, line, aside=4 * (place - (len(chart.lines) - 1) / 2) if line.intervals else 0)
    for point in chart.points:
        marker, ink = {"chosen": ("o", "purple"), "best": ("D", "gold")}[point.look]
        axes.plot(point.xs, point.ys, marker, color=_INK[ink], label=point.name, zorder=5, clip_on=False)
    for rule in chart.rules:
        name = f"{rule.name} {number(rule.x)}"
        axes.axvline(rule.x, color=_INK["purple"], linestyle="--", linewidth=1, label=name)
    axes.set_ylabel(visible(chart.y_label))
    by = (across.high / across.low) ** 0.05 if chart.log_x else 1.0
    more = 0.0 if chart.log_x else 0.05 * (across.high - across.low)
    return {"x": (across, (across.low / by - more, across.high * by + more)), "y": (up, (up.low, up.high))}


def _paint_line(axes: Axes, line: Line, *, aside: float) -> None:
    from matplotlib.transforms import ScaledTranslation

    if line.look == "bins":
        axes.stairs(line.ys[:-1], line.xs, fill=True, color=_INK["bar"], label=line.name)
        return
    name, dashes = SERIES[int(line.look.removeprefix("s"))]
    drawn: dict[str, Any] = {
        "color": _INK[name],
        "transform": axes.transData + ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans),
    }
    dots = "o" if line.intervals or len(line.xs) == 1 else ""
    style = (0, tuple(dash / 1.6 for dash in dashes)) if dashes else "-"
    axes.plot(
        line.xs, line.ys, linestyle=style, linewidth=1.6, marker=dots, markersize=4, label=line.name, **drawn
    )
    for x, ends in zip(line.xs, line.intervals, strict=False):
        axes.plot([x, x], ends, linewidth=1, marker="_", markersize=5, **drawn)


def _paint_bars(axes: Axes, chart: BarChart) -> _Scales:
    places, values = range(len(chart.bars)), [bar.value for bar in chart.bars]
    if chart.as_dots:
        best = [place for place in places if chart.bars[place].best]
        axes.plot(values, places, "o", color=_INK["bar"], label=chart.value_name)
        axes.plot([values[place] for place in best], best, "D", color=_INK["gold"], zorder=4)
    else:
        axes.barh(places, values, height=0.6, color=_INK["bar"], label=chart.value_name)
    name: str | None = chart.interval_name
    for place, bar in enumerate(chart.bars):
        if bar.low is not None and bar.high is not None:
            axes.plot(
                [bar.low, bar.high], [place] * 2, color=_INK["ink"], linewidth=1, marker="|", label=name
            )
            name = None
    marks = {place: bar.mark for place, bar in enumerate(chart.bars) if bar.mark is not None}
    if marks:
        look: Any = {"color": _INK["orange"], "markersize": 9, "markeredgewidth": 2}
        axes.plot([*marks.values()], [*marks], "|", label=chart.mark_name, **look)
    axes.set_yticks(places, [visible(bar.label, LABEL_LETTERS) for bar in chart.bars])
    axes.set_ylim(len(chart.bars) - 0.5, -0.5)
    across = axis(*chart.x_range(), 0, 1, log=chart.log_x)
    more = 0 if chart.log_x else 0.03 * (across.high - across.low)
    return {"x": (across, (across.low, across.high + more))}
