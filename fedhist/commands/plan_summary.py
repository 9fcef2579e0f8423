"""Predictions as a table with a curve, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedhist.commands.summary import epsilon_text
from fedhist.simulations.predict import Prediction, counts_text

if TYPE_CHECKING:
    from rich.console import Console

_CURVE_WIDTH, _LEAST_CURVE = 32, 10
# A narrower terminal gets no columns of _LEFT_OUT.
_WIDE = 112
_LEFT_OUT = ("clipping", "noise", "9 of 10", "basic")


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
        "choice": f"{row.plan.epsilon_select:.3g}" if row.chooses else "0",
        "error": f"{row.relative_loss:.4f}",
        "clipping": f"{row.clipping_error:.4f}",
        "noise": f"{row.noise_error:.4f}",
        "threshold": counts_text(row.threshold, 4),
        "9 of 10": f"{counts_text(row.threshold_low, 3)}-{counts_text(row.threshold_high, 3)}",
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
