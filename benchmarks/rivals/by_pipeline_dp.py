"""A histogram with PipelineDP, whose noise is that of Google's library. Called by real_accuracy.py."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pipeline_dp
from table import Table, serve


def prepare(table: Table):
    """COUNT over public partitions, with its local backend."""
    rows = list(zip(table.users.tolist(), table.items.tolist(), strict=True))
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: 0,
    )

    def release(bounds: list[int]) -> npt.NDArray[np.float64]:
        if len(bounds) == 1:
            delta, noise, limits = 0.0, pipeline_dp.NoiseKind.LAPLACE, {"max_contributions": bounds[0]}
        else:
            delta, noise = table.delta, pipeline_dp.NoiseKind.GAUSSIAN
            names = ("max_partitions_contributed", "max_contributions_per_partition")
            limits = dict(zip(names, bounds, strict=True))
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=table.epsilon, total_delta=delta)
        engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
        params = pipeline_dp.AggregateParams(metrics=[pipeline_dp.Metrics.COUNT], noise_kind=noise, **limits)
        result = engine.aggregate(rows, params, extractors, public_partitions=list(range(table.size)))
        accountant.compute_budgets()
        values = np.zeros(table.size)
        for item, metrics in result:
            values[item] = metrics.count
        return values

    return release


if __name__ == "__main__":
    serve(prepare)
