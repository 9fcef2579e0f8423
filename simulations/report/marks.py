"""What charts are drawn with: a few kinds of mark, each with a look, placed on a sheet of units that grow downwards.

`svg` writes marks into a page, `figures/painting` paints them for papers. Both take colours and dashes from here.
"""

from __future__ import annotations

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
        fill, stroke: colours by their names in report.css; empty for none.
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
    "tick": Look(fill="soft", size=11),
    "axis-name": Look(fill="soft", size=11),
    "rule-name": Look(fill="ink", size=11),
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


def style_rules() -> str:
    """The looks as rules for a style sheet that has the colours as variables."""
    return "\n".join(
        f".{name.replace(' ', '.')} {{ {'; '.join(_declarations(look))} }}" for name, look in LOOKS.items()
    )


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
