"""Predictions as a person reads them, and as rows for a machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedhist.commands.summary import epsilon_text
from fedhist.protocol.plan import Plan
from fedhist.server.advice import plan_warnings
from fedhist.simulations.prediction.ahead import FLATNESS, Split, Target, round_digits
from fedhist.simulations.prediction.prediction import Prediction

if TYPE_CHECKING:
    from rich.console import Console

PUBLIC_ONLY = (
    "a prediction is computed from the exact data that it is given and is not private: that data must be public, or a "
    "past release. Nothing was charged"
)

_CURVE_WIDTH, _LEAST_CURVE = 32, 10
# A narrower terminal gets no columns of _LEFT_OUT.
_WIDE = 112
_LEFT_OUT = ("clipping", "noise", "9 of 10", "basic")


def row_of(prediction: Prediction) -> dict[str, Any]:
    """One prediction, flat: the budget, the expected errors and thresholds, and the cost of both rounds together."""
    plan, total, tight = prediction.plan, prediction.total.to_json(), prediction.tight.to_json()
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "epsilon_select": plan.epsilon_select if _chooses(prediction) else 0.0,
        "delta_select": sum(charge.delta for charge in prediction.charges if charge.round == "select"),
        "relative_loss": prediction.relative_loss,
        "relative_loss_error": prediction.sampling_error,
        "clipping_error": prediction.clipping_error,
        "noise_error": prediction.noise_error,
        "threshold": prediction.threshold,
        "threshold_low": prediction.threshold_low,
        "threshold_high": prediction.threshold_high,
        "clipped_users": prediction.clipped_users,
        "released_items": prediction.released_items,
        "recall": prediction.recall,
        "selector_draws": prediction.draws,
        "total_epsilon": total["epsilon"],
        "total_delta": total["delta"],
        "tight_epsilon": tight["epsilon"],
        "tight_delta": tight["delta"],
    }


def target_document(target: Target, *, totals: bool) -> dict[str, Any]:
    """The answer to: which epsilon gives this error, as JSON."""
    return {
        "error": target.error,
        "epsilon": target.epsilon,
        "epsilon_is": "total" if totals else "histogram",
        "at_start_of_range": target.at_start,
        "row": row_of(target.prediction),
        "words": target_words(target, totals=totals),
    }


def split_document(split: Split) -> dict[str, Any]:
    """The answer to: how to split a budget between the rounds, as JSON."""
    return {
        "total_epsilon": split.total,
        "best_share": split.best_share,
        "flat_from": split.flat_low,
        "flat_to": split.flat_high,
        "flat_within": FLATNESS,
        "discovery_shares": [
            {"share": share, "relative_loss": loss} for share, loss in split.discoveries.items()
        ],
        "tried": [
            {"share": share, "relative_loss": loss}
            for share, loss in zip(split.shares.tolist(), split.losses.tolist(), strict=True)
        ],
        "row": row_of(split.best),
        "usual_row": row_of(split.usual),
        "words": split_words(split),
    }


def target_words(target: Target, *, totals: bool) -> str:
    """The answer to: which epsilon gives this error, in words."""
    flags = _budget_flags(target.prediction, target.epsilon if totals else None)
    what = "a total epsilon of" if totals else "epsilon"
    enough = ", the smallest of the range, is already enough" if target.at_start else ""
    return (
        f"{what} {target.epsilon:.4g}{enough}: predicted error {target.prediction.relative_loss:.4f}, threshold about "
        f"{_counts(target.prediction.threshold, 3)}. Run with {flags}; "
        f"{_cost_words(target.prediction)}."
    )


def split_words(split: Split) -> str:
    """The answer to: how to split a budget between the rounds, in words."""
    plan, usual = split.best.plan, split.usual
    more = usual.relative_loss / max(split.best.relative_loss, 1e-12) - 1
    histogram = "finding items and releasing them" if plan.discovers else "the histogram"
    return (
        f"{plan.epsilon_select:.4g} ({split.best_share:.1%}) for the threshold and {plan.epsilon:.4g} for {histogram}: "
        f"predicted error {split.best.relative_loss:.4f}. {_flatness_words(split)} A run that is given the "
        f"total alone spends {usual.plan.epsilon_select:.4g} on the threshold: predicted error "
        f"{usual.relative_loss:.4f}, {max(more, 0):.1%} more than the best. {_discovery_words(split)}Run with "
        f"{_budget_flags(split.best, split.total)}; {_cost_words(split.best)}."
    )


def _discovery_words(split: Split) -> str:
    """How good a discovery is that looks how much it needs, beside one with a fixed share."""
    if not split.discoveries:
        return ""
    best = min(split.discoveries, key=split.discoveries.__getitem__)
    return (
        f"Without --discovery-share a run looks how much it takes to find items; of {len(split.discoveries)} fixed "
        f"shares the best is {best:g}, with a predicted error of {split.discoveries[best]:.4f}. "
    )


def default_split_words(rows: Sequence[Prediction], usual: Sequence[float]) -> str:
    """How much worse the split that a run chooses by itself is than the best one, over all totals of a curve."""
    more = [loss / max(row.relative_loss, 1e-12) - 1 for row, loss in zip(rows, usual, strict=True)]
    return (
        f"a run that is given --total-epsilon alone splits it by itself: predicted to lose at most {max(*more, 0):.1%} "
        "more than the best split in any of these rows"
    )


def warnings_of_rows(plans: Sequence[Plan]) -> list[str]:
    """The warnings of plans with rising epsilons, once each: with the largest epsilon that still has it."""
    largest: dict[str, tuple[Plan, str]] = {}
    for plan in plans:
        largest |= {name: (plan, text) for name, text in plan_warnings(plan).items()}
    return [
        text if plan is plans[-1] else f"up to epsilon {plan.epsilon:.4g}, {text}"
        for plan, text in largest.values()
    ]


def _flatness_words(split: Split) -> str:
    ratio = split.flat_high / split.flat_low
    kind = "flat" if ratio > 4 else "sharp" if ratio < 2 else "rather flat"
    tried = f"of {len(split.shares)} splits tried"
    if split.best.sampling_error > 0:
        tried = f"up to twice the sampling error of {split.best.sampling_error:.2g}, {tried}"
    if split.flat_low == split.flat_high:
        return f"The optimum is {kind}: {tried}, no other comes within {FLATNESS:.0%} of that error."
    return (
        f"The optimum is {kind}: {tried}, all that give the threshold {split.flat_low:.1%} to {split.flat_high:.1%} "
        f"come within {FLATNESS:.0%} of that error."
    )


def _budget_flags(prediction: Prediction, total: float | None) -> str:
    """The budget as flags of `fedhist run`, for a total where that was asked for."""
    plan = prediction.plan
    flags = f"--epsilon {plan.epsilon:.6g}" if total is None else f"--total-epsilon {total:.6g}"
    if plan.delta > 0:
        flags += f" --delta {plan.delta:.6g}"
    if _chooses(prediction):
        flags += f" --epsilon-select {plan.epsilon_select:.6g}"
    if any(charge.delta > 0 for charge in prediction.charges if charge.round == "select"):
        flags += f" --delta-select {plan.delta_select:.6g}"
    return flags


def _chooses(prediction: Prediction) -> bool:
    return any(charge.round == "select" for charge in prediction.charges)


def _cost_words(prediction: Prediction) -> str:
    total, tight = prediction.total, prediction.tight
    if math.isinf(total.epsilon):
        return f"the selector {prediction.plan.selector} is not private"
    return (
        f"the whole run costs epsilon {total.epsilon:.4g} by basic and {tight.epsilon:.4g} by tight composition, "
        f"delta {total.delta:.3g}"
    )


def print_curve(
    console: Console,
    epsilons: Sequence[float],
    rows: Sequence[Prediction],
    *,
    totals: bool,
    target: float | None,
) -> None:
    """A row for each epsilon, with the curve at the right; a narrow terminal gets fewer columns."""
    from rich.table import Table

    narrow = console.width < _WIDE
    columns = [_columns(row, narrow=narrow) for row in rows]
    budgets = [f"{epsilon:.4g}" for epsilon in epsilons]
    heading = "total" if totals else "epsilon"
    taken = max(map(len, [heading, *budgets])) + 3
    taken += sum(max(len(name), *(len(row[name]) for row in columns)) + 3 for name in columns[0])
    width = min(_CURVE_WIDTH, console.width - taken - 4)
    table = Table(
        title="predicted relative error of a run, its parts, and its threshold", title_justify="left"
    )
    for name in (heading, *columns[0]):
        table.add_column(name, justify="right", no_wrap=True)
    low, high = _axis([row.relative_loss for row in rows])
    if width >= _LEAST_CURVE:
        table.add_column(f"{low:g}" + f"{high:g}".rjust(width - len(f"{low:g}")), no_wrap=True)
    for epsilon, row, cells in zip(budgets, rows, columns, strict=True):
        curve = [_dot(row.relative_loss, low, high, width, target)] if width >= _LEAST_CURVE else []
        table.add_row(epsilon, *cells.values(), *curve)
    console.print(table)


def _columns(row: Prediction, *, narrow: bool) -> dict[str, str]:
    cells = {
        "choice": f"{row.plan.epsilon_select:.3g}" if _chooses(row) else "0",
        "error": f"{row.relative_loss:.4f}",
        "clipping": f"{row.clipping_error:.4f}",
        "noise": f"{row.noise_error:.4f}",
        "threshold": _counts(row.threshold, 4),
        "9 of 10": f"{_counts(row.threshold_low, 3)}-{_counts(row.threshold_high, 3)}",
    }
    if row.recall is not None:
        cells["keys"] = f"{row.released_items:,.0f}"
    cells |= {"basic": epsilon_text(row.total.epsilon), "tight": epsilon_text(row.tight.epsilon)}
    return {name: cell for name, cell in cells.items() if not (narrow and name in _LEFT_OUT)}


def print_answer(console: Console, question: str, answer: str) -> None:
    """A question and its answer."""
    console.print(question, style="bold", markup=False)
    console.print(answer, markup=False)


def _axis(losses: Sequence[float]) -> tuple[float, float]:
    """Round numbers around all losses, for a logarithmic axis."""
    positive = [max(loss, 1e-6) for loss in losses]
    low, high = (_nice(min(positive), up=False), _nice(max(positive), up=True))
    return (low, high) if high > low else (low, 2 * low)


def _nice(value: float, *, up: bool) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * step for step in (1, 2, 5, 10)]
    return float(f"{min(s for s in steps if s >= value) if up else max(s for s in steps if s <= value):.3g}")


def _dot(loss: float, low: float, high: float, width: int, target: float | None) -> str:
    def place(value: float) -> int:
        share = math.log(max(value, 1e-6) / low) / math.log(high / low)
        return min(max(round(share * (width - 1)), 0), width - 1)

    cells = [" "] * width
    if target is not None and low <= target <= high:
        cells[place(target)] = "┊"
    cells[place(loss)] = "●"
    return "".join(cells)


def _counts(value: float, digits: int) -> str:
    """Rounded to this number of significant digits, and never written with an exponent."""
    return f"{round_digits(value, digits):,.12g}"
