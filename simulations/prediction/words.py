"""Predictions as a person reads them, in sentences, and as rows for a machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedhist.protocol.plan import Plan
from fedhist.server.advice import plan_warnings
from fedhist.simulations.prediction.ahead import FLATNESS, OutOfReach, Split, Target, round_digits
from fedhist.simulations.prediction.prediction import Prediction

PUBLIC_ONLY = (
    "a prediction is computed from the exact data that it is given and is not private: that data must be public, or a "
    "past release. Nothing was charged"
)


def row_of(prediction: Prediction) -> dict[str, Any]:
    """One prediction, flat: the budget, the expected errors and thresholds, and the cost of both rounds together."""
    plan, total, tight = prediction.plan, prediction.total.to_json(), prediction.tight.to_json()
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "epsilon_select": plan.epsilon_select if chooses(prediction) else 0.0,
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


def target_document(target: Target | OutOfReach, *, totals: bool) -> dict[str, Any]:
    """The answer to: which epsilon gives this error, as JSON. Out of reach, the row is that of the least error."""
    if isinstance(target, OutOfReach):
        return {
            "error": target.error,
            "reached": False,
            "epsilon": None,
            "epsilon_is": "total" if totals else "histogram",
            "least_error": target.prediction.relative_loss,
            "least_at_epsilon": target.epsilon,
            "row": row_of(target.prediction),
            "words": target_words(target, totals=totals),
        }
    return {
        "error": target.error,
        "reached": True,
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
        "tried": [
            {"share": share, "relative_loss": loss}
            for share, loss in zip(split.shares.tolist(), split.losses.tolist(), strict=True)
        ],
        "row": row_of(split.best),
        "usual_row": row_of(split.usual),
        "words": split_words(split),
    }


def target_words(target: Target | OutOfReach, *, totals: bool) -> str:
    """The answer to: which epsilon gives this error, in words."""
    if isinstance(target, OutOfReach):
        least = round_digits(target.prediction.relative_loss, 4, up=True)
        return (
            f"none of this range is predicted to reach it. The least error is {least:g}, at "
            f"{'a total ' if totals else ''}epsilon {target.epsilon:.4g}; {target.advice}."
        )
    flags = _budget_flags(target.prediction, target.epsilon if totals else None)
    what = "a total epsilon of" if totals else "epsilon"
    enough = ", the smallest of the range, is already enough" if target.at_start else ""
    return (
        f"{what} {target.epsilon:.4g}{enough}: predicted error {target.prediction.relative_loss:.4f}, threshold about "
        f"{counts_text(target.prediction.threshold, 3)}. Run with {flags}; "
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
        f"{usual.relative_loss:.4f}, {max(more, 0):.1%} more than the best. Run with "
        f"{_budget_flags(split.best, split.total)}; {_cost_words(split.best)}."
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
    if chooses(prediction):
        flags += f" --epsilon-select {plan.epsilon_select:.6g}"
    if any(charge.delta > 0 for charge in prediction.charges if charge.round == "select"):
        flags += f" --delta-select {plan.delta_select:.6g}"
    return flags


def chooses(prediction: Prediction) -> bool:
    """Whether choosing the threshold costs something."""
    return any(charge.round == "select" for charge in prediction.charges)


def _cost_words(prediction: Prediction) -> str:
    total, tight = prediction.total, prediction.tight
    if math.isinf(total.epsilon):
        return f"the selector {prediction.plan.selector} is not private"
    return (
        f"the whole run costs epsilon {total.epsilon:.4g} by basic and {tight.epsilon:.4g} by tight composition, "
        f"delta {total.delta:.3g}"
    )


def counts_text(value: float, digits: int) -> str:
    """Rounded to this number of significant digits, and never written with an exponent."""
    return f"{round_digits(value, digits):,.12g}"
