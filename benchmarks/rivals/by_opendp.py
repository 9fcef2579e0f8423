"""A histogram with OpenDP's data frames, which truncate what an identifier contributes. Called by real_accuracy.py."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import opendp.prelude as dp
import polars as pl
from table import Table, serve, zcdp_within

dp.enable_features("contrib")
warnings.filterwarnings(
    "ignore", message="The default value is currently signed=False", category=FutureWarning
)


def prepare(table: Table):
    """Counts by group over public keys, clamped at zero as is its default."""
    rows = pl.LazyFrame({"user": table.users, "item": table.items})
    keys = pl.LazyFrame({"item": np.arange(table.size)})
    unit = dp.unit_of(contributions=1, identifier=pl.col("user"))
    laplace = dp.loss_of(epsilon=table.epsilon)
    gaussian = dp.loss_of(rho=zcdp_within(table.epsilon, table.delta))

    def release(bounds: list[int]) -> npt.NDArray[np.float64]:
        loss = laplace if len(bounds) == 1 else gaussian
        context = dp.Context.compositor(data=rows, privacy_unit=unit, privacy_loss=loss, split_evenly_over=1)
        query = context.query()
        if len(bounds) == 1:
            query = query.truncate_per_group(bounds[0])
        else:
            items, counts = bounds
            # keep="sample", its default, fails in OpenDP 0.16 ("multiple fields with name 'item'"). "first" goes by the
            # order of the keys, which `serve` has shuffled.
            query = query.truncate_per_group(counts, by=["item"])
            query = query.truncate_num_groups(items, by=["item"], keep="first")
        found = query.group_by("item").agg(dp.len().alias("count")).with_keys(keys).release().collect()
        values = np.zeros(table.size)
        values[found["item"].to_numpy()] = found["count"].to_numpy()
        return values

    return release


if __name__ == "__main__":
    serve(prepare)
