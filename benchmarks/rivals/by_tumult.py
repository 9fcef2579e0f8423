"""A histogram with Tumult Analytics on a local Spark, which needs Java. Called by real_accuracy.py."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

# Spark starts its workers with the Python of the path; here it is this one, which has Tumult.
os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

from pyspark.sql import SparkSession
from table import Table, serve, zcdp_within
from tmlt import analytics

warnings.filterwarnings("ignore", category=UserWarning, module="pyspark")


def prepare(table: Table):
    """Counts by group over public keys, of a table whose rows have identifiers."""
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "4", "spark.driver.host": "127.0.0.1",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "rows.parquet"
    pd.DataFrame({"user": table.users, "item": table.items}).to_parquet(file)
    rows = spark.read.parquet(str(file)).cache()
    rows.count()
    folder.cleanup()
    keys = analytics.KeySet.from_dict({"item": list(range(table.size))})
    rho = zcdp_within(table.epsilon, table.delta)

    def release(bounds: list[int]) -> npt.NDArray[np.float64]:
        if len(bounds) == 1:
            budget = analytics.PureDPBudget(table.epsilon)
            limits, noise = [analytics.MaxRowsPerID(bounds[0])], analytics.CountMechanism.LAPLACE
        else:
            budget, noise = analytics.RhoZCDPBudget(rho), analytics.CountMechanism.GAUSSIAN
            items, counts = bounds
            limits = [analytics.MaxGroupsPerID("item", items), analytics.MaxRowsPerGroupPerID("item", counts)]
        unit = analytics.AddRowsWithID("user")
        session = analytics.Session.from_dataframe(budget, "rows", rows, protected_change=unit)
        query = analytics.QueryBuilder("rows")
        for limit in limits:
            query = query.enforce(limit)
        found = session.evaluate(query.groupby(keys).count(mechanism=noise), budget).toPandas()
        values = np.zeros(table.size)
        values[found["item"].to_numpy()] = found["count"].to_numpy()
        return values

    return release


if __name__ == "__main__":
    serve(prepare)
