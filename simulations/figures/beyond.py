"""Our methods against the best of the paper's on every set: ratios of losses, those where we lose included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.simulations.figures.style import GREY, legend_below, log_ticks, look, panels, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]


def draw_beyond(rows: Sequence[Row], stem: Path) -> tuple[Path, Path]:
    """A panel for each domain, a line for each set; left of one is better, hollow where there is no difference."""
    domains = [name for name in ("closed", "open") if any(row["domain"] == name for row in rows)]
    lines = max(len(_sets(rows, domain)) for domain in domains)
    with styled():
        figure, flat = panels(len(domains), len(domains), width=6.4, height=1.4 + 0.27 * lines)
        for axes, domain in zip(flat, domains, strict=True):
            _panel(axes, [row for row in rows if row["domain"] == domain])
            axes.set_title(f"{domain} domain")
        legend_below(figure)
        return save(figure, stem)


def _sets(rows: Sequence[Row], domain: str) -> list[tuple[str, int, float]]:
    return list(
        dict.fromkeys((row["data"], row["items"], row["C_m"]) for row in rows if row["domain"] == domain)
    )


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    places = _sets(rows, rows[0]["domain"])
    height = {place: len(places) - 1 - number for number, place in enumerate(places)}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    axes.axvline(1, color=GREY, linewidth=1.2)
    for number, method in enumerate(methods):
        style = look(method, number + 3) | {"linestyle": "none"}
        shift = 0.14 * (1 - 2 * number)
        for kind, filled in (("better", True), ("worse", True), ("not different", False), ("unknown", False)):
            these = [row for row in rows if row["method"] == method and row["result"] == kind]
            if not these:
                continue
            at = [height[row["data"], row["items"], row["C_m"]] + shift for row in these]
            ratios = [row["ratio"] for row in these]
            bars = None
            if all(row["gap_low"] is not None for row in these):
                # The interval of the paired difference, in units of the paper's loss.
                bars = [[(row["gap_high"] - row["gap"]) / row["its_loss"] for row in these]] * 2
            face = style["color"] if filled else "white"
            axes.errorbar(ratios, at, xerr=bars, markerfacecolor=face, **style)
        axes.plot([], [], label=method, **style)
    axes.set_xscale("log")
    several = len({place[2] for place in places}) > 1
    names = [f"{data} {items:,}" + (f", C_m {bound:,g}" if several else "") for data, items, bound in places]
    axes.set_yticks([height[place] for place in places], names)
    axes.set_ylim(-0.7, len(places) - 0.3)
    axes.set_xlabel("our loss / best loss of the paper's\n(left of 1: ours is better)")
    ratios = [row["ratio"] for row in rows]
    axes.set_xlim(min(*ratios, 0.8) / 1.3, max(*ratios, 1.25) * 1.3)
    log_ticks(axes.xaxis)
