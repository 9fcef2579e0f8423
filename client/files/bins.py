"""Numbers into bins with public edges."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from fedhist.client.files.columns import Where
from fedhist.protocol.errors import InvalidPopulation

if TYPE_CHECKING:
    import polars as pl


def binned(
    table: pl.DataFrame, edges: Collection[float], where: Where, *, lenient: bool = False
) -> pl.DataFrame:
    """The table with the number of its bin, from 0, in place of each item; -1 for a value outside the edges.

    Args:
        table: with a column item of numbers, or of text that reads as numbers.
        edges: rising.
        where: names a row, for errors.
        lenient: a value that is no finite number becomes a missing one instead of an error.
    """
    import polars as pl

    items = table["item"]
    if items.null_count() and not lenient:
        return table  # refused by `Tabulation`, which has the words
    if not items.dtype.is_numeric():
        items = items.cast(pl.String).str.strip_chars()
    numbers = items.cast(pl.Float64, strict=False)
    values = numbers.fill_null(float("nan")).to_numpy()
    wrong = ~np.isfinite(values)
    if wrong.any() and not lenient:
        raise InvalidPopulation(
            f"the item in {where(int(np.argmax(wrong)), 'item')} is no finite number",
            allowed="numbers in the column of the items when there are bins",
            advice="correct or remove the row",
            code="item-not-a-number",
        )
    places = np.searchsorted(np.fromiter(edges, dtype=np.float64), values, side="right") - 1
    places[places == len(edges) - 1] = -1
    bins = pl.Series("item", places.astype(np.int32))
    return table.with_columns(bins.set(pl.Series(wrong), None) if wrong.any() else bins)
