"""The figure of `fedhist compare`: the loss of every selector, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.simulations.figures.style import (
    legend_below,
    log_losses,
    look,
    panels,
    save,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
AXES = {
    "items": "items d",
    "epsilon_select": "epsilon of the choice",
    "epsilon": "epsilon of the histogram",
    "max_threshold": "largest threshold C_m",
    "delta": "delta of the histogram",
    "threshold": "threshold C",
}
MAX_PANELS = 12
_MAX_COLUMNS = 3


def draw_comparison(rows: Sequence[Row], stem: Path) -> tuple[Path, Path]:
    """Panels by data set and what else varies; along x the first setting that varies, or the selectors."""
    varied = [name for name in AXES if len({row[name] for row in rows}) > 1]
    along = varied[0] if varied else None
    others = [name for name in ("data", "release", *varied[1:]) if len({row[name] for row in rows}) > 1]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in others), []).append(row)
    shown = list(groups.items())[:MAX_PANELS]
    columns = min(len(shown), _MAX_COLUMNS)
    with styled():
        figure, grid = panels(-(-len(shown) // columns), columns, width=4.4, height=3.4)
        places = [axes for line in grid for axes in line]
        for axes, (values, group) in zip(places, shown, strict=False):
            named = ", ".join(
                value if isinstance(value, str) else f"{AXES[name]} {value:,g}"
                for name, value in zip(others, values, strict=True)
            )
            axes.set_title(named or str(rows[0]["data"]))
            if along is None:
                _by_selector(axes, group)
            else:
                _along(axes, group, along)
        for axes in places[len(shown) :]:
            axes.set_visible(False)
        if along is not None:
            legend_below(figure, places[: len(shown)])
        if len(groups) > MAX_PANELS:
            figure.suptitle(f"the first {MAX_PANELS} of {len(groups)} panels")
        return save(figure, stem)


def _along(axes: Axes, rows: Sequence[Row], along: str) -> None:
    for number, name in enumerate(dict.fromkeys(row["selector"] for row in rows)):
        line = sorted((row for row in rows if row["selector"] == name), key=lambda row: row[along] or 0)
        if along == "threshold":
            line = [row for row in line if row["threshold"] is not None]
        if not line:
            continue
        xs, ys = [row[along] for row in line], [row["loss_mean"] for row in line]
        label = name if line[0]["private"] else f"{name} (not private)"
        axes.errorbar(xs, ys, yerr=_errors(line), label=label, **look(name, number))
    places = sorted({row[along] for row in rows if row[along] is not None})
    if places[0] > 0 and places[-1] >= 8 * places[0]:
        axes.set_xscale("log")
    whole_numbers(axes.xaxis, places if len(places) <= 8 else places[:: -(-len(places) // 6)])
    axes.set_xlabel(AXES[along])
    _loss_axis(axes, rows)


def _by_selector(axes: Axes, rows: Sequence[Row]) -> None:
    for number, row in enumerate(rows):
        style = look(row["selector"], number) | {"linestyle": "none"}
        axes.errorbar([number], [row["loss_mean"]], yerr=_errors([row]), **style)
    names = [row["selector"] + ("" if row["private"] else "\n(not private)") for row in rows]
    axes.set_xticks(range(len(rows)), names, rotation=30, ha="right")
    axes.margins(x=0.1)
    _loss_axis(axes, rows)


def _errors(rows: Sequence[Row]) -> list[list[float]] | None:
    if any(row["loss_low"] is None for row in rows):
        return None
    return [
        [row["loss_mean"] - row["loss_low"] for row in rows],
        [row["loss_high"] - row["loss_mean"] for row in rows],
    ]


def _loss_axis(axes: Axes, rows: Sequence[Row]) -> None:
    losses = [row["loss_mean"] for row in rows]
    if min(losses) > 0 and max(losses) > 8 * min(losses):
        log_losses(axes, losses)
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel("relative loss, mean and 95 % interval")
