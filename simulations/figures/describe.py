"""The figure of `fedhist data describe`: users by their total, and items by their frequency."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.simulations.datasets.description import Description
from fedhist.simulations.figures.painting import write_figure_file
from fedhist.simulations.report.charts import Bar, BarChart, Line, LineChart

_MAX_POINTS = 400


def ranks_shown(count: int) -> Integers:
    """Ranks from 1 to the count for a logarithmic axis: all of the head, and ever fewer of the tail.

    A million points would be a large file, and neighbours fall on the same point.
    """
    return np.unique(np.geomspace(1, count, _MAX_POINTS).astype(np.int64))


def draw_description(found: Description, path: Path, *, force: bool) -> None:
    """Write the figure to a .svg or .png file."""
    charts: list[BarChart | LineChart] = []
    bars = tuple(
        Bar(f"{one.low:,}" if one.low >= one.high else f"{one.low:,}–{one.high:,}", one.users)
        for one in found.bins
        if one.users
    )
    if bars:
        charts.append(
            BarChart("totals", "Users by their total", "users", "total", truth=False, bars=bars, log_x=True)
        )
    used = found.item_totals[: found.items_used]
    if len(used):
        ranks = ranks_shown(len(used))
        line = Line("count", "s0", ranks.tolist(), used[ranks - 1].tolist())
        title, along, count = "Items by their count", "rank of an item", "count over all users"
        charts.append(LineChart("ranks", title, along, count, truth=False, lines=(line,), log_y=True))
    heading = f"{found.users:,} users, {found.items:,} items, {found.total:,} counts (exact: not private)"
    write_figure_file(charts, path, force=force, heading=[heading])
