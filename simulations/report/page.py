"""The frame and the pieces of every page: one file that holds all that it shows and fetches nothing.

All text goes through `text`; everything else here is HTML.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template

from fedhist.display.text import LONGEST_LABEL, visible

NOT_PRIVATE = "not private, simulation only"
BADGE = f'<span class="badge">{NOT_PRIVATE}</span>'
COLOURS = {
    "paper": ("#f7f7f5", "#14171a"),
    "panel": ("#ffffff", "#1d2125"),
    "ink": ("#1d2125", "#e8eaed"),
    "soft": ("#5a6169", "#a6adb5"),
    "faint": ("#dfe2e5", "#31373d"),
    "edge": ("#d3d7db", "#3a4148"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#c65200", "#ff9247"),
    "green": ("#007f5c", "#3ccf9f"),
    "purple": ("#a5497f", "#e39cc4"),
    "gold": ("#8a6100", "#e6b84d"),
    "bar": ("#5b9bc8", "#3f7ca8"),
    "warn": ("#8a4b00", "#ffc37a"),
    "warn-paper": ("#fff3e0", "#3a2a14"),
    "bad": ("#b3261e", "#ff8a80"),
}
"""Every colour of pages and figures by name, on light paper and on dark. Figures are on light paper."""

SERIES = (
    ("blue", ()), ("orange", (7, 4)), ("green", (2, 3)), ("purple", (9, 3, 2, 3)), ("gold", (4, 2)), ("bar", (1, 4)),
    ("ink", (12, 3)), ("soft", (5, 1, 1, 1)),
)  # fmt: skip
"""The colour and the dashes of a chart's lines s0, s1 and so on."""

_LONG_VALUE, _LONG_TEXT = 12, 900
_TILES_A_ROW = 5
_REFLOWED = 12
"""A table of at most this number of rows is shown row by row on a phone; a longer one scrolls sideways."""


def text(value: object, most: int = LONGEST_LABEL) -> str:
    """For the content of an element, or between the quotes of an attribute."""
    return html.escape(visible(value, most), quote=True)


def sentence(words: str) -> str:
    """With a capital at its beginning."""
    return words[:1].upper() + words[1:]


def fill(name: str, *parts: str) -> str:
    """The whole document. The parts are HTML; the name of its subject is escaped here."""
    folder = files("fedhist.simulations.report")
    template, style, script = (
        folder.joinpath(file).read_text(encoding="utf-8")
        for file in ("template.html", "report.css", "report.js")
    )
    filled = {
        "title": text(f"fedhist: {name}"),
        "style": f"{_style_rules()}\n{style}",
        "body": "".join(parts),
    }
    return Template(template).substitute(filled, script=script)


def _style_rules() -> str:
    """The colours as variables and the lines' looks as rules, for a style sheet."""
    colours = "".join(f"--{name}: light-dark({light}, {dark}); " for name, (light, dark) in COLOURS.items())
    lines = [
        f".s{place} {{ --of: var(--{colour}); --dashes: {' '.join(map(str, dashes)) or 'none'} }}"
        for place, (colour, dashes) in enumerate(SERIES)
    ]
    return "\n".join([f":root {{ {colours}}}", *lines])


def tile(name: str, value: str, note: str = "", *, truth: bool = False) -> str:
    """One number at the top of a page."""
    look = " class=words" if len(value) > _LONG_VALUE else ""
    shown = f"<dd{look}>{text(value)}<small>{text(note)}</small>{BADGE if truth else ''}</dd>"
    return f'<div class="tile"><dt>{text(name)}</dt>{shown}</div>'


def tiles(drawn: Sequence[str]) -> str:
    """The numbers at the top, in rows of about the same length: none stands alone in its row."""
    rows = -(-len(drawn) // _TILES_A_ROW)
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
    return f'<div class="grid">{"".join(panels)}</div>' if any(panels) else ""


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
