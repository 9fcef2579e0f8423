"""What charts are drawn with: a few kinds of mark, each with a look, placed on a sheet of units that grow downwards.

`svg` writes marks into a page, `figures/painting` paints them for papers. Both take colours and dashes from here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle. One of look "hit" is invisible: a page shows its `tip` to the pointer and the keyboard."""

    look: str
    x: float
    y: float
    width: float
    height: float
    tip: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stroke:
    """Lines through points; a closed one is filled."""

    look: str
    lines: tuple[tuple[Point, ...], ...]
    closed: bool = False


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    look: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Words:
    """One line of text, on its baseline. `anchor` is the end that x belongs to: start, middle or end."""

    look: str
    x: float
    y: float
    text: str
    anchor: str = "start"


Mark = Box | Stroke | Dot | Words


@dataclass(frozen=True)
class Drawing:
    """Marks on a sheet of this size."""

    width: float
    height: float
    marks: tuple[Mark, ...] = field(repr=False)


@dataclass(frozen=True)
class Look:
    """How a mark looks.

    Args:
        fill, stroke: names of `COLOURS`; empty for none.
        width: of the stroke.
        dashes: lengths of dashes and gaps; empty for a solid line.
        opacity: from 0, invisible, to 1.
        size: of text, else 0.
    """

    fill: str = ""
    stroke: str = ""
    width: float = 1.0
    dashes: tuple[float, ...] = ()
    opacity: float = 1.0
    size: float = 0.0


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

SERIES = 8
_COLOURS = ("blue", "orange", "green", "purple", "gold", "bar", "ink", "soft")
_DASHES = ((), (7, 4), (2, 3), (9, 3, 2, 3), (4, 2), (1, 4), (12, 3), (5, 1, 1, 1))

LOOKS = {
    "axis": Look(stroke="soft"),
    "gridline": Look(stroke="faint"),
    "tick-mark": Look(stroke="soft", opacity=0.5),
    "bar": Look(fill="bar"),
    "bar above": Look(fill="orange", opacity=0.75),
    "whisker": Look(stroke="ink", width=1.1, opacity=0.75),
    "mark": Look(stroke="orange", width=2.6),
    "rule0": Look(stroke="purple", width=1.4, dashes=(4, 3)),
    "rule1": Look(stroke="ink", width=1.4, dashes=(4, 3)),
    "point chosen": Look(fill="purple", stroke="panel", width=1.5),
    "point best": Look(fill="gold", stroke="panel", width=1.5),
    "tick": Look(fill="soft", size=11.5),
    "axis-name": Look(fill="soft", size=11.5),
    "rule-name": Look(fill="ink", size=11.5),
    "label": Look(fill="ink", size=11.5),
    "in-bar": Look(fill="panel", size=11.5),
    "title": Look(fill="ink", size=12.5),
}
LOOKS |= {f"line s{n}": Look(stroke=_COLOURS[n], width=2, dashes=_DASHES[n]) for n in range(SERIES)}
LOOKS |= {f"dot s{n}": Look(fill=_COLOURS[n]) for n in range(SERIES)}
LOOKS |= {f"interval s{n}": Look(stroke=_COLOURS[n], width=1.1) for n in range(SERIES)}
LOOKS |= {
    f"part{n}": Look(fill=name, stroke="panel") for n, name in enumerate(("orange", "bar", "green", "purple"))
}


def text_width(text: str, size: float) -> float:
    """About how wide a text of this size is, in units: a little more than it takes in the usual fonts."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (0.58 * (len(text) - wide) + 1.05 * wide)


def style_rules() -> str:
    """The colours as variables and the looks as rules, for a style sheet."""
    colours = "".join(f"--{name}: light-dark({light}, {dark}); " for name, (light, dark) in COLOURS.items())
    rules = [
        f".{name.replace(' ', '.')} {{ {'; '.join(_declarations(look))} }}" for name, look in LOOKS.items()
    ]
    return "\n".join([f":root {{ {colours}}}", *rules])


def _declarations(look: Look) -> Iterator[str]:
    yield f"fill: {f'var(--{look.fill})' if look.fill else 'none'}"
    if look.stroke:
        yield f"stroke: var(--{look.stroke}); stroke-width: {look.width:g}"
    if look.dashes:
        yield f"stroke-dasharray: {' '.join(map(str, look.dashes))}"
    if look.opacity < 1:
        yield f"opacity: {look.opacity:g}"
    if look.size:
        yield f"font-size: {look.size:g}px"
