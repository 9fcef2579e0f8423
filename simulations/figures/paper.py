"""The figures of `fedhist paper`, drawn from the rows of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.simulations.figures.style import (
    COLOURS,
    GREY,
    figure_text,
    legend_below,
    log_losses,
    log_ticks,
    look,
    panels,
    save,
    styled,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
Files = tuple[Path, Path]
_MAX_POINTS = 500


def errors(rows: Sequence[Row], mean: str, low: str, high: str) -> list[list[float]] | None:
    """The lengths of error bars below and above; None where a single trial has none."""
    if any(row[low] is None for row in rows):
        return None
    return [[row[mean] - row[low] for row in rows], [row[high] - row[mean] for row in rows]]


def draw_numbers(rows: Sequence[Row], stem: Path) -> Files:
    """Printed numbers beside ours, a panel for each column of the table."""
    shown = [row for row in rows if row["ours"] is not None]
    columns = list(dict.fromkeys(row["column"] for row in shown))
    places = list(dict.fromkeys((row["data"], row["d"]) for row in shown))
    with styled():
        figure, flat = panels(len(columns), -(-len(columns) // 2), width=4.6, height=3.3)
        for axes, column in zip(flat, columns, strict=True):
            _numbers_panel(axes, [row for row in shown if row["column"] == column], places)
            axes.set_title(column)
        legend_below(figure)
        return save(figure, stem)


def _numbers_panel(axes: Axes, rows: Sequence[Row], places: Sequence[tuple[str, int]]) -> None:
    printed = {(row["data"], row["d"]): float(row["paper"]) for row in rows}
    height = {place: number for number, place in enumerate(reversed(places))}
    axes.plot(
        list(printed.values()), [height[place] for place in printed], label="printed in the paper",
        color="#000000", marker="|", markersize=20, markeredgewidth=2, linestyle="none",
    )  # fmt: skip
    for number, reading in enumerate(dict.fromkeys(row["reading"] for row in rows)):
        these = [row for row in rows if row["reading"] == reading]
        at = [height[row["data"], row["d"]] + 0.18 * (1 - 2 * number) for row in these]
        axes.errorbar(
            [row["ours"] for row in these], at, xerr=errors(these, "ours", "runs_low", "runs_high"),
            label=f"ours, reading '{reading}'", **(look("", number) | {"linestyle": "none"}),
        )  # fmt: skip
    axes.set_xscale("log")
    numbers = [*printed.values(), *(row["ours"] for row in rows)]
    axes.set_xlim(min(numbers) / 2, max(numbers) * 2)
    log_ticks(axes.xaxis)
    axes.set_yticks(list(height.values()), [f"{data} {d:,}" for data, d in height])
    axes.set_xlabel("relative loss: mean, 95 % of three runs")


def draw_bound(rows: Sequence[Row], stem: Path) -> Files:
    """For each set the error and its bound along C, and their ratio."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    with styled():
        figure, flat = panels(2 * len(sets), 2)
        for left, right, data in zip(flat[::2], flat[1::2], sets, strict=True):
            these = [row for row in rows if row["data"] == data]
            places = [row["C"] for row in these]
            left.errorbar(
                places, [row["error"] for row in these],
                yerr=errors(these, "error", "error_low", "error_high"), label="true error (3 runs)", **look("", 0),
            )  # fmt: skip
            left.plot(places, [row["bound"] for row in these], label="bound V(C)", **look("", 1))
            left.set_ylabel("relative l1 error")
            log_losses(left, [row["error"] for row in these])
            left.legend()
            left.set_title(figure_text(data))
            right.plot(places, [row["ratio"] for row in these], **look("", 2))
            right.axhline(1, color=GREY, linewidth=1)
            right.set_ylim(bottom=0)
            right.set_ylabel("V(C) / true error")
            right.set_title("ratio")
            for axes in (left, right):
                axes.set_xlabel("threshold C")
        return save(figure, stem)


def draw_bounded(rows: Sequence[Row], stem: Path) -> Files:
    """The loss of every method along d, a panel for each set."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    with styled():
        figure, flat = panels(len(sets), min(len(sets), 2), width=5.4, height=3.6)
        for axes, data in zip(flat, sets, strict=True):
            of_set = [row for row in rows if row["data"] == data]
            for number, method in enumerate(dict.fromkeys(row["method"] for row in of_set)):
                these = [row for row in of_set if row["method"] == method]
                axes.errorbar(
                    [row["d"] for row in these], [row["loss"] for row in these],
                    yerr=errors(these, "loss", "low", "high"), label=method, **look("", number),
                )  # fmt: skip
            axes.set_xscale("log")
            log_losses(axes, [row["loss"] for row in of_set])
            whole_numbers(axes.xaxis, sorted({row["d"] for row in of_set}))
            axes.set_xlabel("items d")
            axes.set_ylabel("relative loss")
            axes.set_title(figure_text(data))
        legend_below(figure)
        return save(figure, stem)


def draw_sparsity(
    curves: Mapping[str, Integers], rows: Sequence[Row], meanings: Mapping[str, str], stem: Path
) -> Files:
    """Distinct items by rank, then a panel of bars for each set and number of items."""
    groups = list(dict.fromkeys((row["data"], row["d"]) for row in rows))
    with styled():
        count = len(groups) + 1
        figure, (ranked, *flat) = panels(count, min(count, 3), width=4.6, height=3.4)
        for number, (name, distinct) in enumerate(curves.items()):
            # Evenly spaced ranks on the logarithmic axis: a million points would be a large file.
            ranks = np.unique(np.geomspace(1, len(distinct), _MAX_POINTS).astype(np.int64))
            style = look("", number) | {"marker": ""}
            ranked.plot(ranks, np.maximum(distinct[ranks - 1], 0.8), label=name, **style)
        ranked.axhline(200, color=GREY, linewidth=1)
        ranked.set_xscale("log")
        ranked.set_yscale("log")
        for axis in (ranked.xaxis, ranked.yaxis):
            log_ticks(axis)
        ranked.set_xlabel("rank of the user")
        ranked.set_ylabel("distinct items")
        ranked.set_title("distinct items of a user (line: 200)")
        ranked.legend()
        for axes, (data, size) in zip(flat, groups, strict=True):
            these = [row for row in rows if (row["data"], row["d"]) == (data, size)]
            axes.bar(
                range(len(these)), [row["loss"] for row in these], yerr=errors(these, "loss", "low", "high"),
                color=[COLOURS[number % len(COLOURS)] for number in range(len(these))],
            )  # fmt: skip
            axes.set_xticks(range(len(these)), [row["method"] for row in these], rotation=30, ha="right")
            axes.set_ylabel("relative loss")
            axes.set_title(f"{figure_text(data)}\nd = {size:,}")
        listed = [f"{name}: {text}" for name, text in meanings.items()]
        half = -(-len(listed) // 2)
        lines = " · ".join(listed[:half]) + "\n" + " · ".join(listed[half:])
        figure.supxlabel(lines, fontsize=7, color=GREY)
        return save(figure, stem)


def draw_debias(rows: Sequence[Row], stem: Path) -> Files:
    """Clipped and debiased losses along alpha, a panel for each reading."""
    groups = list(dict.fromkeys((row["data"], row["bound"]) for row in rows))
    with styled():
        figure, flat = panels(len(groups), 2)
        for axes, (data, bound) in zip(flat, groups, strict=True):
            these = [row for row in rows if (row["data"], row["bound"]) == (data, bound)]
            for number, (name, low, high) in enumerate(
                (("clipped", "clipped_low", "clipped_high"), ("debiased", "low", "high"))
            ):
                axes.errorbar(
                    [row["alpha"] for row in these], [row[name] for row in these],
                    yerr=errors(these, name, low, high), label=name, markersize=9 - 4 * number,
                    markerfacecolor="none" if number == 0 else None, **look("", 1 - number),
                )  # fmt: skip
            axes.set_xscale("log")
            whole_numbers(axes.xaxis, sorted({row["alpha"] for row in these}))
            log_losses(axes, [row[name] for row in these for name in ("clipped", "debiased")])
            axes.set_xlabel("alpha: the larger, the more alike users are")
            axes.set_ylabel("relative error of the count")
            axes.set_title(f"{data} count a user, {bound} C")
        legend_below(figure)
        return save(figure, stem)
