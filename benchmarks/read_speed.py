"""How fast populations are read, next to a bare polars (or scipy) read of the same file in the same run.

    python benchmarks/read_speed.py --rows 10000000 --repeats 3

The bare read stops at a table in memory; ours checks every row, numbers users and items, adds up repeats and
builds sorted compressed rows. Reads alternate, and the best of each kind is shown, so a busy machine hurts
both alike.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import scipy.sparse
from two_rounds import best_of

from fedhist.client.files.read import read_population
from fedhist.protocol.validation import checked
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, PoissonPopulation, materialise


def write_files(folder: Path, rows: int) -> Iterator[tuple[str, Path, Callable[[Path], object]]]:
    """Files with the same random rows: text and integers, rows in no order, items of falling popularity."""
    generator = np.random.Generator(np.random.Philox(7))
    users = max(rows // 50, 1)
    items = max(min(20_000, rows // 10), 1)
    numbers = pl.DataFrame(
        {
            "user": generator.integers(users, size=rows),
            "item": (items * generator.random(rows) ** 3).astype(np.int64),
            "count": generator.integers(1, 9, size=rows),
        }
    )
    words = numbers.with_columns(
        ("u" + pl.col("user").cast(pl.String)).alias("user"),
        ("item-" + pl.col("item").cast(pl.String)).alias("item"),
    )
    words.write_csv(folder / "text.csv")
    words.write_parquet(folder / "text.parquet")
    numbers.write_parquet(folder / "integers.parquet")
    words.sort("user").write_csv(folder / "sorted.csv")
    table = scipy.sparse.coo_array(
        (numbers["count"].to_numpy(), (numbers["user"].to_numpy(), numbers["item"].to_numpy())),
        shape=(users, items),
    )
    scipy.sparse.save_npz(folder / "matrix.npz", table.tocsr(), compressed=False)
    yield "csv, text", folder / "text.csv", pl.read_csv
    yield "csv, text, by user", folder / "sorted.csv", pl.read_csv
    yield "parquet, text", folder / "text.parquet", pl.read_parquet
    yield "parquet, integers", folder / "integers.parquet", pl.read_parquet
    yield "npz", folder / "matrix.npz", scipy.sparse.load_npz


def compare_reads(rows: int, repeats: int) -> None:
    print(f"{rows:,} rows, best of {repeats}")
    print(f"{'file':<20}{'bare read s':>12}{'ours s':>9}{'rows/s':>13}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name, path, bare in write_files(Path(folder), rows):
            pairs = [
                (best_of(lambda: bare(path), 1), best_of(lambda: read_population(path), 1))  # noqa: B023 - called at once
                for _ in range(repeats)
            ]
            theirs, ours = (min(times) for times in zip(*pairs, strict=True))
            print(f"{name:<20}{theirs:>12.2f}{ours:>9.2f}{rows / ours:>13,.0f}{ours / theirs:>7.1f}")


def time_generated(repeats: int) -> None:
    print(f"\n50,000 users x 1,000 items made from a seed, best of {repeats}")
    for population in (HeavyTailedPopulation(50_000, 1_000, 1), PoissonPopulation(50_000, 1_000, 1)):
        one_pass = best_of(lambda: sum(s.nonzeros for s in population.shards()), repeats)  # noqa: B023 - called at once
        rows = materialise(population).histograms
        check = best_of(
            lambda: checked(rows.offsets, rows.items, rows.counts, domain_size=1_000),  # noqa: B023 - called at once
            repeats,
        )
        print(
            f"{type(population).__name__:<22}{one_pass:>7.2f} s a pass, {rows.nonzeros:>9,} entries, "
            f"checked at {rows.nonzeros / check / 1e6:,.0f} million entries/s"
        )


def time_sorts(repeats: int) -> None:
    keys = np.random.Generator(np.random.Philox(1)).integers(2**64, size=1 << 20, dtype=np.uint64)
    ways = {
        "numpy.argsort, stable": lambda: np.argsort(keys, kind="stable"),
        "numpy.argsort": lambda: np.argsort(keys),
        "numpy.sort": lambda: np.sort(keys),
    }
    print(f"\n{len(keys):,} random keys of 64 bits, nanoseconds each, best of {repeats}")
    for name, sort in ways.items():
        print(f"{name:<22}{best_of(sort, repeats) / len(keys) * 1e9:>7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    compare_reads(arguments.rows, arguments.repeats)
    time_generated(arguments.repeats)
    time_sorts(arguments.repeats)


if __name__ == "__main__":
    main()
