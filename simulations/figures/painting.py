"""Charts as figures for papers: the marks of a report's charts, painted with matplotlib, with title and legend.

The one module that draws with matplotlib. Nothing here touches pyplot, so nothing is global.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, BinaryIO
from warnings import catch_warnings, filterwarnings

from fedhist.client.files.new_files import new_file
from fedhist.display.visible_text import visible
from fedhist.simulations.report.charts import NOT_PRIVATE, AnyChart, BarChart, LineChart
from fedhist.simulations.report.comparison_charts import MAX_CHARTS, comparison_charts
from fedhist.simulations.report.drawing import SWATCH_WIDTH, WIDTH, draw, legend
from fedhist.simulations.report.marks import (
    COLOURS,
    LOOKS,
    Box,
    Dot,
    Drawing,
    Look,
    Mark,
    Point,
    Stroke,
    Words,
    text_width,
)
from fedhist.simulations.report.methods import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

FORMATS = (".svg", ".png")
RC: Any = {
    "font.family": "DejaVu Sans",
    "svg.fonttype": "none",
    "svg.hashsalt": "fedhist",
    "savefig.dpi": 150,
}
"""Settings of matplotlib while something is drawn: its own font, SVG text that stays text, ids without chance."""

Placed = tuple[Drawing, Point]
_UNITS_AN_INCH = 96
_POINTS_A_UNIT = 72 / _UNITS_AN_INCH
_TITLE_LETTERS = 50
_TITLE_ROW, _LEGEND_ROW = 16, 18
_GAP = 12
_COLUMNS = 3


def write_figure(
    charts: Sequence[AnyChart],
    file: BinaryIO,
    kind: str,
    *,
    columns: int = _COLUMNS,
    heading: Sequence[str] = (),
) -> None:
    """The charts in rows, under the lines of a heading, as "svg" or "png". The same charts give the same bytes."""
    save(painted(charts, columns=columns, heading=heading), file, kind)


def painted(charts: Sequence[AnyChart], *, columns: int = _COLUMNS, heading: Sequence[str] = ()) -> Figure:
    """The charts in rows, under the lines of a heading, as a figure that belongs to no window and to no pyplot."""
    from matplotlib import rc_context

    with rc_context(RC):
        return _painted(charts, max(1, min(len(charts), columns)), heading)


def save(figure: Figure, file: BinaryIO, kind: str) -> None:
    """The figure as "svg" or "png"; the same figure gives the same bytes."""
    from matplotlib import rc_context

    about = {"Date": None, "Creator": "fedhist"} if kind == "svg" else {"Software": "fedhist"}
    with rc_context(RC), catch_warnings():
        # A name in a script that the font lacks: an SVG keeps it as text, and a PNG shows boxes.
        filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure.savefig(file, format=kind, metadata=about)


def write_figure_file(charts: Sequence[AnyChart], path: Path, *, force: bool, **options: Any) -> None:
    """The charts as a file of the kind that its name ends in; options as for `write_figure`."""
    with new_file(path, suffixes=FORMATS, force=force) as file:
        write_figure(charts, file, path.suffix.lower().removeprefix("."), **options)


def save_figure(
    charts: Sequence[AnyChart], stem: Path, *, columns: int = _COLUMNS, heading: Sequence[str] = ()
) -> tuple[Path, Path]:
    """The charts as stem.svg and stem.png."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    for path in (svg, png):
        write_figure_file(charts, path, force=True, columns=columns, heading=heading)
    return svg, png


def draw_comparison(rows: Sequence[Row], stem: Path) -> tuple[Path, Path]:
    """The charts of a comparison beside each other, as stem.svg and stem.png."""
    charts, heading = charts_of(rows)
    return save_figure(charts, stem, heading=heading)


def charts_of(rows: Sequence[Row]) -> tuple[list[LineChart | BarChart], list[str]]:
    """The charts of a comparison that a figure has room for, and what its heading says of the others."""
    charts = comparison_charts(rows)
    left_out = [f"the first {MAX_CHARTS} of {len(charts)} charts"] if len(charts) > MAX_CHARTS else []
    return charts[:MAX_CHARTS], left_out or ([] if charts else ["no combination has a loss"])


def _painted(charts: Sequence[AnyChart], columns: int, heading: Sequence[str]) -> Figure:
    drawn: list[Placed] = [
        (_title(words), (_GAP, _GAP + place * _TITLE_ROW)) for place, words in enumerate(heading)
    ]
    top: float = _GAP + len(heading) * _LEGEND_ROW
    for first in range(0, len(charts), columns):
        bottoms = []
        for place, chart in enumerate(charts[first : first + columns]):
            panel, bottom = _panel(chart, _GAP + place * (WIDTH + _GAP), top)
            drawn += panel
            bottoms.append(bottom)
        top = max(bottoms) + _GAP
    return _paint(drawn, columns * (WIDTH + _GAP) + _GAP, top)


def _panel(chart: AnyChart, left: float, top: float) -> tuple[list[Placed], float]:
    """The chart under its title and legend, and where it ends."""
    titles = [*wrap(chart.title, _TITLE_LETTERS), *([f"({NOT_PRIVATE})"] if chart.truth else [])]
    panel = [(_title(words), (left, top + place * _TITLE_ROW)) for place, words in enumerate(titles)]
    x, y = left, top + len(titles) * _TITLE_ROW + 4
    samples = legend(chart)
    for name, sample in samples:
        width = SWATCH_WIDTH + 2 * _GAP + text_width(name, LOOKS["label"].size)
        if x > left and x + width > left + WIDTH:
            x, y = left, y + _LEGEND_ROW
        words = Words("label", SWATCH_WIDTH + 6, 11, name)
        panel.append((Drawing(width, sample.height, (*sample.marks, words)), (x, y)))
        x += width
    if samples:
        y += _LEGEND_ROW
    drawing = draw(chart)
    return [*panel, (drawing, (left, y))], y + drawing.height


def _title(words: str) -> Drawing:
    return Drawing(WIDTH, _TITLE_ROW, (Words("title", 0, 12, words),))


def _paint(drawn: Sequence[Placed], width: float, height: float) -> Figure:
    from matplotlib.transforms import Affine2D

    from fedhist.simulations.figures.shown_figure import ShownFigure

    figure = ShownFigure(figsize=(width / _UNITS_AN_INCH, height / _UNITS_AN_INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    for drawing, at in drawn:
        for mark in drawing.marks:
            _paint_mark(axes, mark, Affine2D().translate(*at) + axes.transData)
    return figure


def _paint_mark(axes: Axes, mark: Mark, transform: Transform) -> None:
    from matplotlib.patches import Circle, Polygon, Rectangle

    if mark.look == "hit":
        return
    look = LOOKS[mark.look]
    style = _patch_style(look) | {"transform": transform}
    match mark:
        case Box(_, x, y, width, height):
            axes.add_artist(Rectangle((x, y), width, height, **style))
        case Stroke(_, lines, closed):
            for points in lines:
                axes.add_artist(Polygon(points, closed=closed, **style))
        case Dot(_, x, y, radius):
            axes.add_artist(Circle((x, y), radius, **style))
        case Words(_, x, y, text, anchor):
            place = {"start": "left", "middle": "center", "end": "right"}[anchor]
            how: dict[str, Any] = {"ha": place, "fontsize": look.size * _POINTS_A_UNIT, "parse_math": False}
            how |= {"color": _colour(look.fill)}
            axes.text(x, y, visible(text), transform=transform, **how)


def _patch_style(look: Look) -> dict[str, Any]:
    return {
        "facecolor": _colour(look.fill),
        "edgecolor": _colour(look.stroke),
        "linewidth": look.width * _POINTS_A_UNIT,
        # matplotlib multiplies dashes by the width of the line.
        "linestyle": (0, [dash / look.width for dash in look.dashes]) if look.dashes else "-",
        "alpha": look.opacity,
    }


def _colour(name: str) -> str:
    """On light paper; none for no name."""
    return COLOURS[name][0] if name else "none"
