"""The charts of `fedhist plan`: predicted error, thresholds, and the split between the rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedhist.simulations.predict import FLATNESS, Split, Target
from fedhist.simulations.report.charts import Line, LineChart, Rule


def draw_plan_ahead(
    epsilons: Sequence[float],
    rows: Sequence[Mapping[str, Any]],
    *,
    totals: bool,
    target: Target | None = None,
    split: Split | None = None,
) -> list[LineChart]:
    """Error and its parts over epsilon, the thresholds, and the split if one was asked for.

    Args:
        epsilons: of the histogram, or with `totals` of both rounds.
        rows: a prediction for each, as `row_of` has them.
        totals: what the epsilons are.
        target: the error that was asked for, marked, or the least one where that is out of reach.
        split: of one total between the rounds.
    """
    along = "total epsilon, best split" if totals else "epsilon of the histogram"
    charts = [_error(epsilons, rows, target, along), _threshold(epsilons, rows, along)]
    return charts if split is None else [*charts, _split(split)]


def _error(
    epsilons: Sequence[float],
    rows: Sequence[Mapping[str, Any]],
    target: Target | None,
    along: str,
) -> LineChart:
    noise = "noise alone" if rows[0]["recall"] is None else "noise and withheld keys"
    reached: tuple[Line, ...] = ()
    if target is not None:
        least = target.prediction.relative_loss
        missed = target.advice is not None
        name = f"{target.error:g} is out of reach; least is {least:.3g}" if missed else f"{target.error:g}"
        named = f"{name} at epsilon {target.epsilon:.3g}"
        reached = (Line(named, "chosen", [target.epsilon], [least]),)
    return LineChart(
        name="error",
        title="Predicted error by epsilon",
        x_label=along,
        y_label="relative error",
        truth=False,
        lines=(
            Line("predicted error", "s0", epsilons, [row["relative_loss"] for row in rows]),
            Line("clipping alone", "s1", epsilons, [row["clipping_error"] for row in rows]),
            Line(noise, "s2", epsilons, [row["noise_error"] for row in rows]),
        ),
        points=reached,
        log_y=True,
    )


def _threshold(epsilons: Sequence[float], rows: Sequence[Mapping[str, Any]], along: str) -> LineChart:
    lows, highs = [row["threshold_low"] for row in rows], [row["threshold_high"] for row in rows]
    thresholds = [row["threshold"] for row in rows]
    return LineChart(
        name="threshold",
        title="Mean threshold by epsilon, with 9 of 10 choices",
        x_label=along,
        y_label="threshold (counts)",
        truth=False,
        lines=(Line("mean threshold", "s0", epsilons, thresholds, list(zip(lows, highs, strict=True))),),
        log_y=max(highs) > 3 * min(lows),
    )


def _split(split: Split) -> LineChart:
    return LineChart(
        name="split",
        title=f"Predicted error by split: between the rules within {FLATNESS:.0%} of the best",
        x_label=f"share of round 1 in a total epsilon of {split.total:g}",
        y_label="predicted relative error",
        truth=False,
        lines=(Line("predicted error", "s0", split.shares.tolist(), split.losses.tolist()),),
        points=(Line("best", "best", [split.best_share], [split.best.relative_loss]),),
        rules=(Rule("from", split.flat_low), Rule("to", split.flat_high)),
    )
