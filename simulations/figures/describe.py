"""The figure of `fedhist data describe`: users by their total, and items by their frequency."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from fedhist.simulations.datasets.description import Description
from fedhist.simulations.figures.style import save_to, styled


def draw_description(found: Description, file: BinaryIO, *, kind: str) -> None:
    """Write the figure to the file.

    Args:
        found: the population's description.
        file: open for bytes.
        kind: "svg" or "png".
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - loads when a figure is drawn

    with styled():
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        by_total, by_rank = figure.subplots(1, 2)
        users = [one.users for one in found.bins]
        spans = [f"{one.low:,}" if one.low >= one.high else f"{one.low:,}–{one.high:,}" for one in found.bins]
        by_total.bar(np.arange(len(users)), users)
        by_total.set_xticks(np.arange(len(users)), spans, rotation=60, ha="right", fontsize=7)
        by_total.set_yscale("log")
        # A bar of one user stays visible.
        by_total.set_ylim(bottom=0.7)
        by_total.set_xlabel("total of a user")
        by_total.set_ylabel("users")
        used = found.item_totals[: found.items_used]
        # Every rank of the head, and ever fewer of the tail, where neighbours fall on the same point.
        ranks = np.unique(np.geomspace(1, max(len(used), 1), 400).astype(np.int64))[: len(used)]
        by_rank.loglog(ranks, used[ranks - 1], marker="." if len(ranks) < 40 else "", linestyle="-")
        by_rank.set_xlabel("rank of an item")
        by_rank.set_ylabel("count over all users")
        figure.suptitle(
            f"{found.users:,} users, {found.items:,} items, {found.total:,} counts (exact: not private)"
        )
        save_to(figure, file, kind)
