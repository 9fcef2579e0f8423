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
_LONG_TEXT = 900
_TILES_A_ROW = 5
_REFLOWED = 12
"""A table of at most this number of rows is shown row by row on a phone; a longer one scrolls sideways."""


@dataclass(frozen=True)
class Tile:
    """One number at the top of a page."""

    name: str
    value: str
    note: str = ""
    truth: bool = False


def tiles(shown: Iterable[Tile]) -> str:
    """The numbers at the top, in rows of about the same length: none stands alone in its row."""
    drawn = [*map(_tile, shown)]
    rows = -(-len(drawn) // _TILES_A_ROW) or 1
    return (
        f'<dl class="tiles" style="--columns: {-(-len(drawn) // rows)}">{"".join(drawn)}</dl>'
        if drawn
        else ""
    )


def _tile(tile: Tile) -> str:
    words = " class=words" if len(tile.value) > _LONG_VALUE else ""
    return (
        f'<div class="tile{" truth" if tile.truth else ""}"><dt>{text(tile.name)}</dt>'
        f"<dd{words}>{text(tile.value)}<small>{text(tile.note)}</small>{BADGE if tile.truth else ''}</dd></div>"
    )


@dataclass(frozen=True)
class Card:
    """One of the answers on the first screen.

    Args:
        title: the question, in a few words.
        value: the answer in a number or a few words.
        said: sentences, each a paragraph; those in `truth` come from the exact data.
        truth: sentences that are not private.
    """

    title: str
    value: str
    said: Sequence[str]
    truth: Sequence[str] = ()


def cards(shown: Iterable[Card]) -> str:
    """The first screen: what a reader wants to know, side by side."""
    return f'<div class="cards">{"".join(map(_card, shown))}</div>'


def _card(card: Card) -> str:
    said = "".join(f"<p>{text(one, _LONG_TEXT)}</p>" for one in card.said)
    known = "".join(f'<p class="truth">{text(one, _LONG_TEXT)} {BADGE}</p>' for one in card.truth)
    told = f'<h2>{text(card.title)}</h2><p class="big">{text(card.value)}</p>'
    return f'<section class="card">{told}{said}{known}</section>'


def head(kind: str, name: str, headline: str, *kinds: str) -> str:
    """The beginning of a page: its name, one sentence that says it all, and what to beware of, as HTML."""
    marks = f"<p class=kinds>{' '.join(kinds)}</p>" if kinds else ""
    return (
        f'<header><p class="kicker">{text(kind)}</p><h1><bdi>{text(name)}</bdi></h1>'
        f'<p class="headline">{text(headline, _LONG_TEXT)}</p>{marks}</header>'
    )


def section(identity: str, title: str, *content: str, lead: str = "") -> str:
    """A section with a heading that can be linked to."""
    said = f'<p class="lead">{text(lead, _LONG_TEXT)}</p>' if lead else ""
    return f'<section id="{identity}"><h2>{text(title)}</h2>{said}{"".join(content)}</section>'


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", numeric: int = 1
) -> str:
    """A table whose columns from `numeric` on are numbers.

    On a phone a short one of several columns shows each row as a list of names and values; a long one scrolls.
    """
    listed = list(rows)
    reflow = len(headings) > 3 and len(listed) <= _REFLOWED

    kinds = [" class=number" if place >= numeric else "" for place in range(len(headings))]
    heads = "".join(
        f'<th scope="col"{kind}>{text(name)}</th>' for name, kind in zip(headings, kinds, strict=True)
    )
    named = [f'{kind} data-head="{text(name)}"' for name, kind in zip(headings, kinds, strict=True)]

    def cells(row: Sequence[object]) -> str:
        about = named if reflow else kinds
        return "".join(f"<td{one}><bdi>{text(cell)}</bdi></td>" for one, cell in zip(about, row, strict=True))

    said = f"<caption>{text(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{cells(row)}</tr>" for row in listed)
    return (
        f'<div class="scroll" tabindex="0"><table{" class=reflow" if reflow else ""}>{said}'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(chart: AnyChart) -> str:
    """A chart with its title and legend, a badge if it is not private, and its values as a table."""
    names = "".join(
        f"<li>{svg(sample, 'class=swatch aria-hidden=true')}{text(name)}</li>"
        for name, sample in legend(chart)
    )
    listed = f'<ul class="legend">{names}</ul>' if names else ""
    return (
        f'<figure class="panel" id="chart-{text(chart.name)}"><figcaption>{text(chart.title)}'
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
            heads += [chart.interval_name] if chart.bars[0].high is not None else []
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
    if bar.low is not None and bar.high is not None:
        row.append(f"{number(bar.low)} to {number(bar.high)}")
    if chart.mark_name:
        row.append("" if bar.mark is None else number(bar.mark))
    return row
