"""A small table in HTML, for notebooks: everything in it is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from fedhist.display.visible_text import visible

_CELL = "padding:2px 12px 2px 0;text-align:left;border:none;vertical-align:top"
_BAR = "display:inline-block;height:.8em;background:#5b9bc8;vertical-align:baseline"


def html_table(title: str, rows: Iterable[Sequence[object]], *, headings: Sequence[str] = ()) -> str:
    """A table with a title; rows of any values."""
    head = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in headings)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{_cell(value)}</td>' for value in row) + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if headings else ""
    return (
        f'<div class="fedhist"><b>{_text(title)}</b><table style="border-collapse:collapse">{top}'
        f"<tbody>{body}</tbody></table></div>"
    )


class Proportion(float):
    """A number from 0 to 1 that is shown as a bar."""


def _cell(value: object) -> str:
    if isinstance(value, Proportion):
        width = 10 * min(max(value, 0.0), 1.0)
        return f'<span style="{_BAR};width:{width:.2f}em"></span>'
    return _text(value)


def _text(value: object) -> str:
    return html.escape(visible(value), quote=True)
