"""The figures of data frames that `fedhist.compare` and `fedhist.predict` return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.figures.painting import charts_of, painted
from fedhist.simulations.figures.plan_ahead import draw_plan_ahead
from fedhist.simulations.report.comparison import Row, comparison_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMPARISON = {"data", "method", "selector", "private", "loss_mean", "loss_low", "loss_high"}
_PREDICTION = {"epsilon", "relative_loss", "clipping_error", "noise_error", "threshold", "recall"}


def figure_of_folder(folder: Path) -> Figure:
    """The figure of a comparison's folder. InvalidFile if its table is damaged."""
    return _comparison(comparison_table(folder))


def figure_of_frame(frame: Any) -> Figure:
    """What a comparison or a prediction shows, as a figure of matplotlib. Rows may be left out, columns may not."""
    rows = _rows(frame)
    columns = set(rows[0]) if rows else set()
    if columns >= _COMPARISON:
        return _comparison(rows)
    if columns >= _PREDICTION:
        totals = "best_split_of" in columns
        epsilons = [row["best_split_of" if totals else "epsilon"] for row in rows]
        return painted(draw_plan_ahead(epsilons, rows, totals=totals))
    raise InvalidInput(
        "the data frame is no comparison and no prediction, or has no rows",
        allowed="what fedhist.compare or fedhist.predict returned, with all its columns",
        code="not-a-comparison",
    )


def _comparison(rows: Sequence[Row]) -> Figure:
    charts, heading = charts_of(rows)
    return painted(charts, heading=heading)


def _rows(frame: Any) -> list[dict[str, Any]]:
    """The rows; what is missing is None in every kind of frame."""
    import narwhals

    read = narwhals.from_native(frame, eager_only=True, pass_through=True)
    if not isinstance(read, narwhals.DataFrame):
        raise InvalidInput(
            f"a figure of a {type(frame).__name__}",
            allowed="a Result, the path of a result folder, or what fedhist.compare or fedhist.predict returned",
            code="nothing-to-draw",
        )
    return [
        {
            name: None if value is None or (isinstance(value, float) and math.isnan(value)) else value
            for name, value in row.items()
        }
        for row in read.rows(named=True)
    ]
