"""The curves of `fedhist plan`: predicted error, thresholds, and the split between the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from fedhist.simulations.figures.style import styled
from fedhist.simulations.prediction.ahead import FLATNESS, Split, Target
from fedhist.simulations.prediction.prediction import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")


def draw_plan_ahead(
    epsilons: Sequence[float],
    rows: Sequence[Prediction],
    *,
    totals: bool,
    target: Target | None = None,
    split: Split | None = None,
) -> Figure:
    """Error and its parts over epsilon, the thresholds below, and beside them the split where one was asked for.

    Args:
        epsilons: of the histogram, or with `totals` of both rounds.
        rows: a prediction for each.
        totals: what the epsilons are.
        target: marked where it was asked for.
        split: a panel of its own.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, for figures only

    with styled():
        figure = Figure(figsize=(9.6 if split else 6.0, 6.4), layout="constrained")
        if split is None:
            error, threshold = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        else:
            panels = figure.subplot_mosaic([["error", "split"], ["threshold", "split"]], height_ratios=(3, 2))
            error, threshold = panels["error"], panels["threshold"]
            _draw_split(panels["split"], split)
        label = "total epsilon, best split" if totals else "epsilon of the histogram"
        _draw_error(error, epsilons, rows, target)
        _draw_threshold(threshold, epsilons, rows)
        threshold.set_xlabel(label)
        if split is not None:
            error.sharex(threshold)
    return figure


def write_figure(figure: Figure, file: BinaryIO, kind: str) -> None:
    """As SVG or PNG; the same figure gives the same bytes."""
    with styled():
        figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {})


def _draw_error(
    axes: Axes, epsilons: Sequence[float], rows: Sequence[Prediction], target: Target | None
) -> None:
    noise = "noise alone" if rows[0].recall is None else "noise and withheld keys"
    dot = "." if len(rows) == 1 else ""
    losses = [row.relative_loss for row in rows]
    axes.plot(epsilons, losses, marker=dot, color="C0", linewidth=2, label="predicted error")
    axes.plot(
        epsilons, [row.clipping_error for row in rows], "--", marker=dot, color="C1", label="clipping alone"
    )
    axes.plot(epsilons, [row.noise_error for row in rows], ":", marker=dot, color="C2", label=noise)
    if target is not None:
        axes.axhline(target.error, color="0.6", linewidth=0.8)
        label = f"{target.error:g} at epsilon {target.epsilon:.3g}"
        axes.plot([target.epsilon], [target.prediction.relative_loss], "o", color="C0", label=label)
    _logarithmic(axes, x=True, y=True)
    axes.set_ylabel("relative error")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False)


def _draw_threshold(axes: Axes, epsilons: Sequence[float], rows: Sequence[Prediction]) -> None:
    lows, highs = [row.threshold_low for row in rows], [row.threshold_high for row in rows]
    axes.fill_between(epsilons, lows, highs, color="C0", alpha=0.2, linewidth=0, label="9 of 10 choices")
    axes.plot(epsilons, [row.threshold for row in rows], color="C0", linewidth=2, label="mean threshold")
    _logarithmic(axes, x=True, y=max(highs) > 3 * min(lows))
    axes.set_ylabel("threshold (counts)")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False)


def _draw_split(axes: Axes, split: Split) -> None:
    axes.axvspan(split.flat_low, split.flat_high, color="C0", alpha=0.12, linewidth=0)
    axes.plot(split.shares, split.losses, color="C0", linewidth=2)
    axes.plot([split.best_share], [split.best.relative_loss], "o", color="C0")
    _logarithmic(axes, x=True, y=False)
    axes.set_xlabel(f"share of round 1 in a total epsilon of {split.total:g}")
    axes.set_ylabel("predicted relative error")
    axes.set_title(f"shaded: within {FLATNESS:.0%} of the best", fontsize="medium")
    axes.grid(visible=True, which="major", alpha=0.3)


def _logarithmic(axes: Axes, *, x: bool, y: bool) -> None:
    """Logarithmic axes with ticks at 1, 2 and 5, written as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: PLC0415 - with matplotlib

    for wanted, axis, set_scale in ((x, axes.xaxis, axes.set_xscale), (y, axes.yaxis, axes.set_yscale)):
        if wanted:
            set_scale("log")
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
