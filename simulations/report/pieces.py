"""The pieces of a page: tiles, tables, figures. All text goes through `escaping`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedhist.simulations.report.charts import (
    NOT_PRIVATE,
    AnyChart,
    Bar,
    BarChart,
    BinChart,
    Line,
    LineChart,
    StackChart,
    number,
)
from fedhist.simulations.report.drawing import legend
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.svg import chart_svg, svg

BADGE = f'<span class="badge">{NOT_PRIVATE}</span>'
_LONG_VALUE = 12


@dataclass(frozen=True)
class Tile:
    """One number at the top of a page."""

    name: str
    value: str
    note: str = ""
    truth: bool = False


def tiles(shown: Iterable[Tile]) -> str:
    """The numbers at the top."""
    return f'<dl class="tiles">{"".join(map(_tile, shown))}</dl>'


def _tile(tile: Tile) -> str:
    words = " class=words" if len(tile.value) > _LONG_VALUE else ""
    return (
        f'<div class="tile{" truth" if tile.truth else ""}"><dt>{text(tile.name)}{BADGE if tile.truth else ""}</dt>'
        f"<dd{words}>{text(tile.value)}<small>{text(tile.note)}</small></dd></div>"
    )


def section(identity: str, title: str, *content: str, lead: str = "") -> str:
    """A section with a heading that can be linked to."""
    said = f'<p class="lead">{text(lead, 600)}</p>' if lead else ""
    return f'<section id="{identity}"><h2>{text(title)}</h2>{said}{"".join(content)}</section>'


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", numeric: int = 1
) -> str:
    """A table whose columns from `numeric` on are numbers."""

    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if place >= numeric else ''}><bdi>{text(cell)}</bdi></{tag}>"
            for place, cell in enumerate(row)
        )

    said = f"<caption>{text(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table>{said}<thead><tr>{cells(headings, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figure(chart: AnyChart) -> str:
    """A chart with its title and legend, a badge if it is not private, and its values as a table."""
    names = "".join(
        f"<li>{svg(sample, 'class=swatch aria-hidden=true')}{text(name)}</li>"
        for name, sample in legend(chart)
    )
    listed = f'<ul class="legend">{names}</ul>' if names else ""
    return (
        f'<figure class="panel" id="chart-{chart.name}"><figcaption>{text(chart.title)}'
        f"{BADGE if chart.truth else ''}</figcaption>{listed}{chart_svg(chart)}"
        f"<details><summary>Values</summary>{_values(chart)}</details></figure>"
    )


def _values(chart: AnyChart) -> str:
    match chart:
        case LineChart():
            heads = [chart.x_label, *(line.name for line in chart.lines)]
            columns = [_texts(line) for line in chart.lines]
            rows = [
                [number(x), *(ys.get(x, "") for ys in columns)]
                for x in sorted({x for ys in columns for x in ys})
            ]
            return table(heads, rows, numeric=0)
        case BinChart():
            bins = zip(chart.edges, chart.edges[1:], chart.counts, strict=False)
            heads = ["from", "to", chart.y_label]
            return table(heads, [[number(a), number(b), f"{n:,}"] for a, b, n in bins], numeric=0)
        case BarChart():
            heads = [chart.y_label, chart.value_name]
            heads += ["± 95 %"] if chart.bars[0].high is not None else []
            heads += [chart.mark_name] if chart.mark_name else []
            return table(heads, [_bar_row(chart, bar) for bar in chart.bars])
        case StackChart():
            return table(
                ["round", "mechanism", "epsilon"],
                [[part.label, part.note, number(part.value)] for part in chart.parts],
                numeric=2,
            )


def _texts(line: Line) -> dict[float, str]:
    """The values of a line with their intervals, by x."""
    values = {x: number(y) for x, y in zip(line.xs, line.ys, strict=True)}
    ends = dict(zip(line.xs, line.intervals, strict=False))
    return {x: f"{y} ({' to '.join(map(number, ends[x]))})" if x in ends else y for x, y in values.items()}


def _bar_row(chart: BarChart, bar: Bar) -> list[str]:
    row = [bar.label, number(bar.value)]
    if bar.high is not None:
        row.append(number(bar.high - bar.value))
    if chart.mark_name:
        row.append("" if bar.mark is None else number(bar.mark))
    return row
