"""The figure of `fedhist compare`: the loss of every selector, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.simulations.figures.style import (
    figure_text,
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
    "delta_select": "delta of the choice",
    "threshold": "threshold C",
}
MAX_PANELS = 12
_MAX_COLUMNS = 3


def draw_comparison(rows: Sequence[Row], stem: Path) -> tuple[Path, Path]:
    """Panels by data set and what else varies; along x the first setting that varies, or the selectors.

    A row that does not have a setting, as all selectors but fixed have no threshold given, belongs to all its values:
    it is a level line where the setting is the x axis, and in every panel where panels differ in it.
    """
    varied = [name for name in AXES if len(_values(rows, name)) > 1]
    along = varied[0] if varied else None
    others = [name for name in ("data", "release", *varied[1:]) if len(_values(rows, name)) > 1]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        belongs = ([row[name]] if row[name] is not None else _values(rows, name) for name in others)
        for values in product(*belongs):
            groups.setdefault(values, []).append(row)
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
            axes.set_title(figure_text(named or str(rows[0]["data"])))
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


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """The different values of a column, in order of appearance, without None."""
    return list(dict.fromkeys(row[name] for row in rows if row[name] is not None))


def _along(axes: Axes, rows: Sequence[Row], along: str) -> None:
    for number, name in enumerate(dict.fromkeys(row["selector"] for row in rows)):
        of_name = [row for row in rows if row["selector"] == name]
        label = name if of_name[0]["private"] else f"{name} (not private)"
        if of_name[0][along] is None:
            _level(axes, of_name[0], label, look(name, number))
            continue
        line = sorted(of_name, key=lambda row: row[along])
        xs, ys = [row[along] for row in line], [row["loss_mean"] for row in line]
        axes.errorbar(xs, ys, yerr=_errors(line), label=label, **look(name, number))
    places = sorted(_values(rows, along))
    if places[0] > 0 and places[-1] >= 8 * places[0]:
        axes.set_xscale("log")
    whole_numbers(axes.xaxis, places if len(places) <= 8 else places[:: -(-len(places) // 6)])
    axes.set_xlabel(AXES[along])
    _loss_axis(axes, rows)


def _level(axes: Axes, row: Row, label: str, style: Mapping[str, Any]) -> None:
    """One loss for all values of the x axis, its interval as a band."""
    colour = style["color"]
    axes.axhline(row["loss_mean"], label=label, color=colour, linestyle=style["linestyle"])
    if row["loss_low"] is not None:
        axes.axhspan(row["loss_low"], row["loss_high"], color=colour, alpha=0.12, linewidth=0)


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
