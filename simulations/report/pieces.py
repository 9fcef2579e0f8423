"""The pieces of a page: tiles, tables, figures. All text goes through `escaping`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedhist.simulations.report.charts import (
    NOT_PRIVATE,
    AnyChart,
    BarChart,
    BinChart,
    LineChart,
    StackChart,
    number,
)
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.svg import draw, legend

BADGE = f'<span class="badge">{NOT_PRIVATE}</span>'
_LONG_VALUE = 12
_SWATCH = {
    "line": '<path class="{look}" d="M1 7H27"/>',
    "point chosen": '<circle class="{look}" cx="14" cy="7" r="5"/>',
    "point best": '<path class="{look}" d="M14 1l6 6l-6 6l-6 -6z"/>',
    "bar": '<rect class="{look}" x="4" y="2" width="20" height="10"/>',
    "mark": '<path class="{look}" d="M14 0V14"/>',
}


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
    """A chart with its title, legend, the same values as a table, and a mark if they are not private."""
    names = "".join(f"<li>{_swatch(look)}{text(name)}</li>" for name, look in legend(chart))
    listed = f'<ul class="legend">{names}</ul>' if names else ""
    return (
        f'<figure class="panel" id="chart-{chart.name}"><figcaption>{text(chart.title)}'
        f"{BADGE if chart.truth else ''}</figcaption>{listed}{draw(chart)}"
        f"<details><summary>Values</summary>{_values(chart)}</details></figure>"
    )


def _swatch(look: str) -> str:
    shape = _SWATCH.get(look) or _SWATCH[look.partition(" ")[0]]
    return f'<svg class="swatch" viewBox="0 0 28 14" aria-hidden="true">{shape.format(look=look)}</svg>'


def _values(chart: AnyChart) -> str:
    match chart:
        case LineChart():
            heads = [chart.x_label, *(line.name for line in chart.lines)]
            columns = [list(chart.lines[0].xs), *(list(line.ys) for line in chart.lines)]
            return table(heads, [[number(v) for v in row] for row in zip(*columns, strict=True)], numeric=0)
        case BinChart():
            rows = zip(chart.edges, chart.edges[1:], chart.counts, strict=False)
            heads = ["from", "to", chart.y_label]
            return table(heads, [[number(a), number(b), f"{n:,}"] for a, b, n in rows], numeric=0)
        case BarChart():
            heads = [chart.y_label, chart.value_name]
            heads += ["± 95 %"] if chart.bars[0].high is not None else []
            heads += [chart.mark_name] if chart.mark_name else []
            return table(heads, [_bar_row(chart, place) for place in range(len(chart.bars))])
        case StackChart():
            return table(
                ["round", "mechanism", "epsilon"],
                [[part.label, part.note, number(part.value)] for part in chart.parts],
                numeric=2,
            )


def _bar_row(chart: BarChart, place: int) -> list[str]:
    bar = chart.bars[place]
    row = [bar.label, number(bar.value)]
    if bar.high is not None:
        row.append(number(bar.high - bar.value))
    if chart.mark_name:
        row.append("" if bar.mark is None else number(bar.mark))
    return row
