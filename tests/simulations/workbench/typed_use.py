"""A user's own script, with types: `.ci/run` checks it with `mypy --strict`, and a test runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

import fedhist


def drinks(users: int) -> pl.DataFrame:
    """Users who drink tea three times, and coffee once."""
    rows = [(f"u{user}", drink) for user in range(users) for drink in ("tea", "tea", "tea", "coffee")]
    return pl.DataFrame(rows, schema=["user", "drink"], orient="row")


def ask(folder: Path, public: Sequence[str]) -> tuple[list[str | int], fedhist.Cost, Path]:
    """Every function of the workbench, with its arguments by their names."""
    table = drinks(4_000)
    result: fedhist.Result = fedhist.histogram(
        table,
        item="drink",
        items=public,
        total_epsilon=1.0,
        max_threshold=50,
        neighbours="replace-one",
        evaluate=True,
        seed=1,
        out=folder / "run",
    )
    aged = table.with_columns(age=pl.lit(30.5))
    fedhist.histogram(aged, item="age", bins=np.linspace(0, 100, 5), epsilon=0.5)
    frame: pl.DataFrame = result.to_frame()
    page: Path = fedhist.report(folder / "run", folder / "page.html")
    fedhist.figure(result, chart="curve").savefig(folder / "curve.png")
    with fedhist.Session(folder / "people.ledger", epsilon=3.0, delta=1e-5) as session:
        found = session.histogram(table, item="drink", epsilon=0.5, candidates=64)
        left: fedhist.Cost = session.left
    names: list[str | int] = [*found.release.names, *frame["item"]]
    return names, left, page


def choose(table: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What helps to choose a method and a budget, before anything is spent."""
    compared: pl.DataFrame = fedhist.compare(
        table,
        item="drink",
        items=["tea", "coffee"],
        selectors=["weighted-quantile", "dpsgd"],
        epsilon=[0.5, 1.0],
    )
    predicted: pl.DataFrame = fedhist.predict(table, item="drink", items=["tea", "coffee"], target_error=0.1)
    fedhist.figure(compared).savefig("compared.svg")
    return compared, predicted
