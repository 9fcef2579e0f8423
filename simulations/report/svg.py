"""Marks as SVG inside of a page: it shows without a script, prints sharp, and takes its colours from the style sheet.

What answers to the pointer or the keyboard has the class `hit`, and its text in `data-tip`.
"""

from __future__ import annotations

from fedhist.simulations.report.charts import AnyChart
from fedhist.simulations.report.drawing import draw
from fedhist.simulations.report.escaping import lines, text
from fedhist.simulations.report.marks import Box, Dot, Drawing, Mark, Stroke, Words


def chart_svg(chart: AnyChart) -> str:
    """The chart as an element that can have the focus."""
    about = (
        f'class="chart" tabindex="0" role="group" data-chart="{text(chart.name)}" '
        f'aria-label="{text(chart.title)}. Arrow keys read the values."'
    )
    return svg(draw(chart), about)


def svg(drawing: Drawing, attributes: str) -> str:
    """An element with these attributes, as wide as its place."""
    marks = "".join(map(element, drawing.marks))
    return f'<svg viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" {attributes}>{marks}</svg>'


def element(mark: Mark) -> str:
    """One mark."""
    match mark:
        case Box(look, x, y, width, height, tip):
            size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
            shown = f' data-tip="{lines(*tip)}"' if tip else ""
            return f'<rect class="{look}" {size}{shown}/>'
        case Stroke(look, parts, closed):
            path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in part) for part in parts)
            return f'<path class="{look}" d="{path}{"z" if closed else ""}"/>'
        case Dot(look, x, y, radius):
            return f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'
        case Words(look, x, y, words, anchor):
            return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'
