"""A small HTML table for notebooks; everything in it is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedhist.display.visible_text import visible

_CELL = "padding:2px 12px 2px 0;text-align:left;border:none;vertical-align:top"
_SHORT = 60
_LINE, _LINES = "white-space:nowrap", "max-width:44em;overflow-wrap:anywhere"
_WIDTH, _HEIGHT = 180, 14
_BAR, _GROUND = "#5b9bc8", "#8884"


def html_table(title: str, rows: Iterable[Sequence[object]], *, headings: Sequence[str] = ()) -> str:
    """A table with a title; rows of any values."""
    head = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if headings else ""
    return (
        f'<div class="fedhist"><b>{_text(title)}</b><table style="border-collapse:collapse">{top}'
        f"<tbody>{body}</tbody></table></div>"
    )


@dataclass(frozen=True)
class BarLength:
    """A length that is shown as a bar; all are shares of the full width.

    Args:
        length: of the bar.
        whole: whether to show the full width as well.
    """

    length: float
    whole: bool = False


def _cell(value: object) -> str:
    shown = _bar(value) if isinstance(value, BarLength) else _text(value)
    width = _LINE if isinstance(value, BarLength) or len(shown) <= _SHORT else _LINES
    return f'<td style="{_CELL};{width}">{shown}</td>'


def _bar(bar: BarLength) -> str:
    marks = f'<rect width="{_WIDTH}" y="3" height="8" fill="{_GROUND}"/>' if bar.whole else ""
    marks += f'<rect width="{_place(bar.length):.1f}" y="3" height="8" fill="{_BAR}"/>'
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{marks}</svg>'
    )


def _place(share: float) -> float:
    return _WIDTH * min(max(share, 0.0), 1.0)


def _text(value: object) -> str:
    return html.escape(visible(value), quote=True)
