"""The charts of a run for papers: the same data as on the page of its report, drawn with matplotlib in our style."""

from __future__ import annotations

from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from fedhist.simulations.figures.style import COLOURS, GREY, figure_text, legend_below, panels, styled
from fedhist.simulations.report.axes import headroom
from fedhist.simulations.report.charts import (
    NOT_PRIVATE,
    AnyChart,
    BarChart,
    BinChart,
    LineChart,
    Rule,
    StackChart,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _RED, _GREEN, _PINK = COLOURS[:4]
_LOOKS = {
    "total": (_BLUE, "-"),
    "score": (_BLUE, "-"),
    "clipping": (_RED, "--"),
    "noise": (_GREEN, ":"),
    "chosen": (_PINK, "o"),
    "best": (COLOURS[4], "D"),
}
_LETTERS = 24
_TITLE_LETTERS = 60
_NUMBERED = [(colour, line) for colour, line in zip(COLOURS, ("-", "--", "-.", ":") * 2, strict=True)]


def draw_chart(chart: AnyChart, kind: str) -> bytes:
    """The chart as the bytes of an SVG or PNG file; the same chart gives the same bytes."""
    height = 3.0 if not isinstance(chart, BarChart) else 0.9 + 0.16 * len(chart.bars)
    with styled(), catch_warnings():
        # A name in a script that the font lacks: an SVG keeps it as text, and a PNG shows boxes.
        filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure, axes = panels(1, 1, width=5.0, height=1.6 if isinstance(chart, StackChart) else height)
        one = axes[0][0]
        match chart:
            case LineChart():
                _lines(one, chart)
            case BinChart():
                _bins(one, chart)
            case BarChart():
                _bars(one, chart)
            case StackChart():
                _stack(one, chart)
                legend_below(figure, [one])
        title = "\n".join(wrap(chart.title, _TITLE_LETTERS))
        one.set_title(title + (f"\n({NOT_PRIVATE})" if chart.truth else ""), loc="left", fontsize=9)
        one.set_xlabel(chart.x_label)
        written = BytesIO()
        about = {"Date": None, "Creator": "fedhist"} if kind == "svg" else {"Software": "fedhist"}
        figure.savefig(written, format=kind, metadata=about)
    return written.getvalue()


def _lines(axes: Axes, chart: LineChart) -> None:
    for place, line in enumerate(chart.lines):
        colour, dashes = _LOOKS.get(line.look) or _NUMBERED[place % len(_NUMBERED)]
        axes.plot(line.xs, line.ys, color=colour, linestyle=dashes, label=line.name)
    for point in chart.points:
        colour, marker = _LOOKS[point.look]
        axes.plot(point.xs, point.ys, color=colour, marker=marker, linestyle="none", label=point.name)
    if chart.log_x:
        _log_axis(axes)
    ys = [y for line in chart.lines for y in line.ys]
    axes.set_ylim(min(0.0, *ys), headroom(ys))
    _rules(axes, chart.rules)
    axes.set_ylabel(chart.y_label)
    axes.legend()


def _bins(axes: Axes, chart: BinChart) -> None:
    axes.stairs(chart.counts, chart.edges, fill=True, color=_BLUE, alpha=0.7)
    _log_axis(axes)
    axes.set_ylabel(chart.y_label)
    _rules(axes, chart.rules)


def _bars(axes: Axes, chart: BarChart) -> None:
    places = range(len(chart.bars))
    values = [bar.value for bar in chart.bars]
    axes.barh(places, values, color=_BLUE, alpha=0.7, label=chart.value_name)
    reach = [(bar.high or bar.value) - bar.value for bar in chart.bars]
    if any(reach):
        axes.errorbar(values, places, xerr=reach, fmt="none", ecolor=GREY, elinewidth=0.8)
    marks = [(bar.mark, place) for place, bar in enumerate(chart.bars) if bar.mark is not None]
    if marks:
        axes.plot(*zip(*marks, strict=True), color=_RED, marker="|", linestyle="none", label=chart.mark_name)
        axes.legend()
    names = [figure_text(bar.label, _LETTERS) for bar in chart.bars]
    axes.set_yticks(list(places), names)
    axes.set_ylim(len(chart.bars) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid(visible=False, axis="y")


def _stack(axes: Axes, chart: StackChart) -> None:
    reached = 0.0
    for place, part in enumerate(chart.parts):
        colour = COLOURS[(1, 0, 2, 3)[place % 4]]
        axes.barh(
            [0], [part.value], left=reached, color=colour, alpha=0.8, label=f"{part.label}: {part.note}"
        )
        reached += part.value
    axes.set_xlim(0, 1.02 * max([reached, *(rule.x for rule in chart.rules)]))
    axes.set_ylim(-0.5, 0.95)
    _rules(axes, chart.rules)
    axes.set_yticks([])
    axes.grid(visible=False)


def _log_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")


def _rules(axes: Axes, rules: tuple[Rule, ...]) -> None:
    low, high = axes.get_xlim()
    for place, rule in enumerate(rules):
        right = rule.x > (low * high) ** 0.5 * 3 if axes.get_xscale() == "log" else rule.x > (low + high) / 2
        axes.axvline(rule.x, color=GREY, linestyle=("--", ":")[place % 2], linewidth=1)
        axes.annotate(
            f" {rule.name} {rule.x:,.4g} ",
            (rule.x, 1 - 0.2 * place),
            xycoords=("data", "axes fraction"),
            va="top",
            ha="right" if right else "left",
            fontsize=7,
        )
