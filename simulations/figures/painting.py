"""The charts of pages as figures for papers, drawn with matplotlib.

The one module that draws with matplotlib. Nothing here touches pyplot, so nothing is global.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, BinaryIO
from warnings import catch_warnings, filterwarnings

from fedhist.client.files.new_files import new_file
from fedhist.display.visible_text import visible
from fedhist.simulations.report.charts import (
    COLOURS,
    LABEL_LETTERS,
    SERIES,
    BarChart,
    Chart,
    Line,
    LineChart,
    axis,
    number,
    tick_text,
)
from fedhist.simulations.report.comparison import MAX_CHARTS, Row, comparison_charts
from fedhist.simulations.report.page import NOT_PRIVATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

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

_COLUMNS, _TITLE_LETTERS = 3, 50
_WIDTH, _HEIGHT, _BAR = 4.4, 3.2, 0.17
_INK = {name: light for name, (light, _) in COLOURS.items()}


def painted(charts: Sequence[Chart], *, columns: int = _COLUMNS, heading: Sequence[str] = ()) -> Figure:
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


def write_figure_file(charts: Sequence[Chart], path: Path, *, force: bool, **options: Any) -> None:
    """The charts as a file of the kind that its name ends in; options as for `painted`."""
    with new_file(path, suffixes=FORMATS, force=force) as file:
        save(painted(charts, **options), file, path.suffix.lower().removeprefix("."))


def save_figure(charts: Sequence[Chart], stem: Path, **options: Any) -> tuple[Path, Path]:
    """The charts as stem.svg and stem.png."""
    svg, png = (stem.with_name(f"{stem.name}{suffix}") for suffix in FORMATS)
    for path in (svg, png):
        write_figure_file(charts, path, force=True, **options)
    return svg, png


def draw_comparison(rows: Sequence[Row], stem: Path) -> tuple[Path, Path]:
    """The charts of a comparison beside each other, as stem.svg and stem.png."""
    charts, heading = charts_of(rows)
    return save_figure(charts, stem, heading=heading)


def charts_of(rows: Sequence[Row]) -> tuple[list[Chart], list[str]]:
    """The charts of a comparison that a figure has room for, and what its heading says of the others."""
    charts = comparison_charts(rows)
    left_out = [f"the first {MAX_CHARTS} of {len(charts)} charts"] if len(charts) > MAX_CHARTS else []
    return charts[:MAX_CHARTS], left_out or ([] if charts else ["no combination has a loss"])


def _paint(axes: Axes, chart: Chart) -> None:
    """The chart with its title, the names of its axes and its legend."""
    if isinstance(chart, LineChart):
        _paint_lines(axes, chart)
    else:
        _paint_bars(axes, chart)
    axes.grid(
        visible=True, axis="both" if isinstance(chart, LineChart) else "x", color=_INK["faint"], linewidth=0.7
    )
    axes.set_xlabel(visible(chart.x_label))
    handles, names = axes.get_legend_handles_labels()
    rows = -(-len(handles) // 2) if len(handles) > 1 else 0
    if rows:
        shown = [visible(name) for name in names]
        axes.legend(handles, shown, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7.5)
    title = fill(visible(chart.title), _TITLE_LETTERS) + (f"\n({NOT_PRIVATE})" if chart.truth else "")
    axes.set_title(title, loc="left", fontsize=9.5, pad=6 + 13 * rows)


def _paint_lines(axes: Axes, chart: LineChart) -> None:
    from matplotlib.transforms import ScaledTranslation

    low, high = chart.y_range()
    up = axis(low, high * 1.05, 0, 1, log=chart.log_y)
    xs = [x for line in chart.lines for x in line.xs]
    across = axis(min(xs), max(xs), 0, 1, log=chart.log_x)
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    for place, line in enumerate(chart.lines):
        # Intervals of different lines at the same x stand beside each other.
        shift = 4 * (place - (len(chart.lines) - 1) / 2) if line.intervals else 0
        aside = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
        _paint_line(axes, line, axes.transData + aside)
    for point in chart.points:
        look = {"chosen": ("o", "purple"), "best": ("D", "gold")}[point.look]
        axes.plot(point.xs, point.ys, look[0], color=_INK[look[1]], label=point.name, zorder=5, clip_on=False)
    for rule in chart.rules:
        axes.axvline(
            rule.x, color=_INK["purple"], linestyle="--", linewidth=1, label=f"{rule.name} {number(rule.x)}"
        )
    low, high, room = across.low, across.high, 0.05
    by = (high / low) ** room if chart.log_x else 1.0
    more = 0.0 if chart.log_x else room * (high - low)
    axes.set_xlim(low / by - more, high * by + more)
    axes.set_ylim(up.low, up.high)
    axes.set_xticks(across.ticks(), map(tick_text, across.ticks()))
    axes.set_yticks(up.ticks(), map(tick_text, up.ticks()))
    axes.minorticks_off()
    axes.set_ylabel(visible(chart.y_label))


def _paint_line(axes: Axes, line: Line, transform: Transform) -> None:
    if line.look == "bins":
        axes.stairs(line.ys[:-1], line.xs, fill=True, color=_INK["bar"], label=line.name)
        return
    name, dashes = SERIES[int(line.look.removeprefix("s"))]
    dots = "o" if line.intervals or len(line.xs) == 1 else ""
    style = (0, tuple(dash / 1.6 for dash in dashes)) if dashes else "-"
    axes.plot(
        line.xs,
        line.ys,
        color=_INK[name],
        linestyle=style,
        linewidth=1.6,
        marker=dots,
        markersize=4,
        label=line.name,
        transform=transform,
    )
    for x, ends in zip(line.xs, line.intervals, strict=False):
        axes.plot([x, x], ends, color=_INK[name], linewidth=1, marker="_", markersize=5, transform=transform)


def _paint_bars(axes: Axes, chart: BarChart) -> None:
    places, values = range(len(chart.bars)), [bar.value for bar in chart.bars]
    low, high = chart.x_range()
    across = axis(low, high, 0, 1, log=chart.log_x)
    axes.set_xscale("log" if chart.log_x else "linear")
    if chart.as_dots:
        best = [place for place in places if chart.bars[place].best]
        axes.plot(values, places, "o", color=_INK["bar"], label=chart.value_name)
        axes.plot([values[place] for place in best], best, "D", color=_INK["gold"], zorder=4)
    else:
        axes.barh(places, values, height=0.6, color=_INK["bar"], label=chart.value_name)
    ends = [
        (place, bar) for place, bar in enumerate(chart.bars) if bar.low is not None and bar.high is not None
    ]
    for at, (place, bar) in enumerate(ends):
        name = chart.interval_name if at == 0 else None
        axes.plot([bar.low, bar.high], [place, place], color=_INK["ink"], linewidth=1, marker="|", label=name)  # type: ignore[arg-type]  # neither is None
    marks = [(bar.mark, place) for place, bar in enumerate(chart.bars) if bar.mark is not None]
    if marks:
        axes.plot(
            *zip(*marks, strict=True),
            "|",
            color=_INK["orange"],
            markersize=9,
            markeredgewidth=2,
            label=chart.mark_name,
        )
    axes.set_yticks(places, [visible(bar.label, LABEL_LETTERS) for bar in chart.bars])
    axes.set_ylim(len(chart.bars) - 0.5, -0.5)
    axes.set_xlim(across.low, across.high + (0 if chart.log_x else 0.03 * (across.high - across.low)))
    axes.set_xticks(across.ticks(), map(tick_text, across.ticks()))
    axes.minorticks_off()
