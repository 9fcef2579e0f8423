"""The frame and the pieces of every page: one file that holds all that it shows and fetches nothing.

All text goes through `text`; everything else here is HTML.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

from fedhist.display.visible_text import LONGEST_LABEL, visible

NOT_PRIVATE = "not private, simulation only"
BADGE = f'<span class="badge">{NOT_PRIVATE}</span>'
_LONG_VALUE, _LONG_TEXT = 12, 900
_TILES_A_ROW = 5
_REFLOWED = 12
"""A table of at most this number of rows is shown row by row on a phone; a longer one scrolls sideways."""


def text(value: object, most: int = LONGEST_LABEL) -> str:
    """For the content of an element, or between the quotes of an attribute."""
    return html.escape(visible(value, most), quote=True)


def fill(*, title: str, body: str, styles: str) -> str:
    """The whole document. `body` and `styles` are as they are to be; the title is escaped here."""
    return Template(asset("template.html")).substitute(
        title=text(title), style=f"{styles}\n{asset('report.css')}", body=body, script=asset("report.js")
    )


@cache
def asset(name: str) -> str:
    """A file beside the pages' code."""
    return files("fedhist.simulations.report").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Tile:
    """One number at the top of a page."""

    name: str
    value: str
    note: str = ""
    truth: bool = False


def tiles(shown: Iterable[Tile]) -> str:
    """The numbers at the top, in rows of about the same length: none stands alone in its row."""
    drawn = [
        f'<div class="tile"><dt>{text(tile.name)}</dt><dd{" class=words" if len(tile.value) > _LONG_VALUE else ""}>'
        f"{text(tile.value)}<small>{text(tile.note)}</small>{BADGE if tile.truth else ''}</dd></div>"
        for tile in shown
    ]
    rows = -(-len(drawn) // _TILES_A_ROW) or 1
    return (
        f'<dl class="tiles" style="--columns: {-(-len(drawn) // rows)}">{"".join(drawn)}</dl>'
        if drawn
        else ""
    )


def card(title: str, value: str, said: Iterable[str], exact: Iterable[str] = ()) -> str:
    """One of the answers on the first screen: a question, its answer in a few words, sentences.

    Those in `exact` were computed from the exact data.
    """
    known = "".join(f'<p class="truth">{text(one, _LONG_TEXT)} {BADGE}</p>' for one in exact)
    told = f'<h2>{text(title)}</h2><p class="big">{text(value)}</p>{paragraphs(said)}{known}'
    return f'<section class="card">{told}</section>'


def paragraphs(sentences: Iterable[str]) -> str:
    """Each in a paragraph."""
    return "".join(f"<p>{text(one, _LONG_TEXT)}</p>" for one in sentences)


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
    return f'<section id="{text(identity)}"><h2>{text(title)}</h2>{said}{"".join(content)}</section>'


def grid(*panels: str) -> str:
    """Panels side by side, without those that are empty."""
    drawn = "".join(panels)
    return f'<div class="grid">{drawn}</div>' if drawn else ""


def panel(*content: str, kind: str = "panel") -> str:
    """Content in a frame."""
    return f'<div class="{kind}">{"".join(content)}</div>'


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", numeric: int = 1
) -> str:
    """A table whose columns from `numeric` on are numbers.

    On a phone a short one of several columns shows each row as a list of names and values; a long one scrolls.
    """
    listed = list(rows)
    reflow = len(headings) > 3 and len(listed) <= _REFLOWED
    kinds = [" class=number" if place >= numeric else "" for place in range(len(headings))]
    named = [
        f'{kind} data-head="{text(name)}"' if reflow else kind
        for name, kind in zip(headings, kinds, strict=True)
    ]
    heads = "".join(
        f'<th scope="col"{kind}>{text(name)}</th>' for name, kind in zip(headings, kinds, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{one}><bdi>{text(cell)}</bdi></td>' for one, cell in zip(named, row, strict=True))}</tr>"
        for row in listed
    )
    said = f"<caption>{text(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table{" class=reflow" if reflow else ""}>{said}'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
