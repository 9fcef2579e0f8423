"""How every figure looks: one palette, one font, and files that are the same bytes for the same numbers.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; markers and lines differ as well.
The font comes with matplotlib. SVG text stays text. Nothing here touches pyplot, so nothing is global.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from warnings import catch_warnings, filterwarnings

from fedhist.client.files.new_files import new_file
from fedhist.display.visible_text import LONGEST_LABEL, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
GREY = "#5F5F5F"
FORMATS = (".svg", ".png")

RC: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "errorbar.capsize": 2.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedhist",
    "savefig.dpi": 150,
}

# The same thing looks the same in all figures.
_PLACES = {
    name: place
    for place, names in enumerate(
        (
            ("weighted-quantile", "exponential-v", "ours"),
            ("dpsgd", "exponential-v, as printed", "paper"),
            ("oracle", "best C"),
            ("output-perturbation", "exponential-sharp"),
            ("m-quantile", "median"),
            ("quantile", "p90"),
            ("fixed",),
        )
    )
    for name in names
}


def place_of(name: str, number: int) -> int:
    """Which of the looks a series has: by its name if it is a known one, else by its number."""
    return _PLACES.get(name, number) % len(COLOURS)


def look(name: str, number: int = 0) -> dict[str, Any]:
    """Colour, marker and line of a series."""
    place = place_of(name, number)
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINES[place]}


def figure_text(text: object, most: int = LONGEST_LABEL) -> str:
    """A user's text for a figure: nothing invisible, and no dollar sign that begins a formula."""
    return visible(text, most).replace("$", r"\$")


@contextmanager
def styled() -> Iterator[None]:
    """The settings to draw and save with."""
    from cycler import cycler  # noqa: PLC0415 - comes with matplotlib
    from matplotlib import rc_context  # noqa: PLC0415 - loads when something is drawn

    settings: Any = {**RC, "axes.prop_cycle": cycler(color=COLOURS)}
    with rc_context(settings), catch_warnings():
        # A name in a script that the font lacks: an SVG keeps it as text, and a PNG shows boxes.
        filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def panels(count: int, columns: int, *, width: float = 4.2, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with this number of panels, each of a size in inches, filled row by row."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - loads when something is drawn

    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, place + 1) for place in range(count)]


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """The figure as stem.svg and stem.png; the same figure gives the same bytes."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    for path in (svg, png):
        with new_file(path, force=True) as file:
            save_to(figure, file, path.suffix.removeprefix("."))
    return svg, png


def save_to(figure: Figure, file: BinaryIO, kind: str) -> None:
    """The figure as "svg" or "png", without a date in it."""
    about = {"Date": None, "Creator": "fedhist"} if kind == "svg" else {"Software": "fedhist"}
    figure.savefig(file, format=kind, metadata=about)


def legend_below(figure: Figure) -> None:
    """One legend for all panels, under them: each name once."""
    found: dict[str, Any] = {}
    for one in figure.axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        # An entry is about two inches wide.
        columns = max(1, min(len(found), int(figure.get_figwidth() / 2.1)))
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)


def log_losses(axes: Axes, means: Sequence[float]) -> None:
    """A logarithmic axis of losses that shows the means; intervals that reach below zero are cut off."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, min(means) / 3), high)
    log_ticks(axes.yaxis)


def whole_numbers(axis: Any, values: list[float]) -> None:
    """Ticks at these numbers and nowhere else."""
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 - loads when something is drawn

    axis.set_ticks(values, [f"{value:,g}" for value in values])
    axis.set_minor_locator(NullLocator())


def log_ticks(axis: Any) -> None:
    """A logarithmic axis with plain numbers, as many as there is room for, down to the decades alone."""
    from matplotlib.ticker import (  # noqa: PLC0415 - loads when something is drawn
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
    )

    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    if decades < 0.5:
        axis.set_major_locator(MaxNLocator(nbins=6))
        axis.set_minor_locator(NullLocator())
    else:
        steps = (
            (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 0.8 else (1.0, 2.0, 5.0) if decades < 2.2 else (1.0,)
        )
        axis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
