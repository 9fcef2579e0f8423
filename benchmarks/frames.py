"""What a data frame costs next to a Parquet file of the same rows, to a population and to a release.

    python benchmarks/frames.py --rows 20000000
    python benchmarks/frames.py --quick

The frame is in memory already, and the file in the cache of the operating system. Frame and file take turns, and the
best of each is shown. On a busy machine the ratio of CPU seconds is the steadier one.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.loading import Wanted, load
from fedhist.simulations.simulation import simulate


def _objects(table: pl.DataFrame) -> pd.DataFrame:
    """Text as Python objects, as pandas before 3 has it."""
    values = {name: table[name].to_numpy() for name in table.columns}
    return pd.DataFrame(
        {
            name: pd.Series(value, dtype="int64" if name == "count" else object)
            for name, value in values.items()
        }
    )


FRAMES: dict[str, dict[str, Callable[[pl.DataFrame], Any]]] = {
    "integers": {
        "pandas, numpy": lambda table: pd.DataFrame({name: table[name].to_numpy() for name in table.columns}),
        "polars": lambda table: table,
        "pyarrow": lambda table: table.to_arrow(),
    },
    "text": {
        "pandas, arrow strings": lambda table: table.to_pandas().astype({"user": "str", "item": "str"}),
        "pandas, object strings": _objects,
        "pandas, categories": lambda table: _objects(table).astype({"user": "category", "item": "category"}),
        "polars": lambda table: table,
        "pyarrow": lambda table: table.to_arrow(),
    },
}


def tables(rows: int) -> Iterator[tuple[str, pl.DataFrame]]:
    """Random rows in no order, with items of falling popularity: as integers, then as text."""
    generator = np.random.Generator(np.random.Philox(7))
    users, items = max(rows // 50, 1), max(min(20_000, rows // 10), 1)
    numbers = pl.DataFrame(
        {
            "user": generator.integers(users, size=rows),
            "item": (items * generator.random(rows) ** 3).astype(np.int64),
            "count": generator.integers(1, 9, size=rows),
        }
    )
    yield "integers", numbers
    words = [("u" + pl.col("user").cast(pl.String)).alias("user")]
    words += [("item-" + pl.col("item").cast(pl.String)).alias("item")]
    yield "text", numbers.with_columns(words)


def release(data: Any) -> None:
    loaded = load(Wanted(data=data), 1)
    plan = Plan(users=loaded.population.users, items=loaded.population.domain_size)
    simulate(loaded.population, plan, seed=1, evaluate=True)


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock and CPU seconds of one call."""
    clock, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - busy


def population(data: Any) -> None:
    load(Wanted(data=data), 1)


def compare(rows: int, repeats: int) -> None:
    print(
        f"{rows:,} rows, best of {repeats}: seconds of frame and file, their ratio, and that of CPU seconds"
    )
    cells = f"{'frame':>8}{'file':>8}{'ratio':>7}{'CPU':>6}"
    print(
        f"{'':34}{'to a population':>29}{'to a release':>29}\n{'rows':<10}{'kind of frame':<24}{cells}{cells}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind, table in tables(rows):
            path = Path(folder) / f"{kind}.parquet"
            table.write_parquet(path)
            for name, made in FRAMES[kind].items():
                line = f"{kind:<10}{name:<24}"
                frame = made(table)
                for work in (population, release):
                    pairs = [
                        (measured(partial(work, frame)), measured(partial(work, path)))
                        for _ in range(repeats)
                    ]
                    ours, file = (np.min(times, axis=0) for times in zip(*pairs, strict=True))
                    ratio, busy = ours / file
                    line += f"{ours[0]:>8.2f}{file[0]:>8.2f}{ratio:>7.2f}{busy:>6.2f}"
                print(line, flush=True)
                del frame
                gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="2 million rows")
    arguments = parser.parse_args()
    compare(2_000_000 if arguments.quick else arguments.rows, arguments.repeats)


if __name__ == "__main__":
    main()
