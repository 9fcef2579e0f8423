"""From a file to a release, next to DuckDB's and polars' bare `group by user, item` of the same file.

    pip install duckdb
    python benchmarks/big_files.py                        # 20 and 100 million rows: about half an hour, 10 GB of disk
    python benchmarks/big_files.py --rows 400000000 --only integers --no-rivals
    python benchmarks/big_files.py --quick                # 2 million rows
    python benchmarks/big_files.py --rows 20000000 --no-rivals --before ../old   # next to a checkout of an older commit

Each is a process of its own, from the start of Python to its end, and they take turns; the best of each is shown. The
rivals stop at the number of groups and the sum of their counts, which is all that they print; ours reads, numbers users
and items, adds up, and runs both rounds over a public list of items. DuckDB uses what memory it likes, and again as
little as it can be told to; polars streams.

One row is one visit; a user has 12 different items in the mean, and a pair of user and item 1.35 rows. Files are
Parquet or CSV: integers or text, by user or shuffled. Next to an older checkout, reading is to take at most .95 of its
time for CSV and 1.00 for Parquet.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation

ITEMS = 1000
ROWS_A_USER = 16.2
VISITS_A_PAIR = 0.35
BATCH = 1 << 22
GIGA = 1e9
TARGET = 1.2
LIMITED = "1GB"
TARGETS = {".csv": 0.95, ".parquet": 1.0}
ORDERS = ("by user", "shuffled")
FORMATS = ("parquet", "csv")
LAYERS = ("protocol", "client", "server", "simulations")

DUCKDB = """
import duckdb, sys
path, limit, folder = sys.argv[1:]
if limit: duckdb.sql(f"set memory_limit = '{limit}'; set temp_directory = '{folder}'")
print(duckdb.sql(f"select count(*), sum(n) from (select user, item, count(*) n from '{path}' group by all)").fetchall())
"""
POLARS = """
import polars as pl, sys
path, limit, folder = sys.argv[1:]
groups = (pl.scan_csv(path) if path.endswith("csv") else pl.scan_parquet(path)).group_by("user", "item").len()
print(groups.select(groups=pl.len(), rows=pl.col("len").sum()).collect(engine="streaming"))
"""


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, CPU seconds and peak bytes of a process."""

    wall: float
    cpu: float
    peak: float


def visits(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Users and items of all rows, by user."""
    population = HeavyTailedPopulation(users=max(int(rows / ROWS_A_USER), 1), items=ITEMS, seed=1)
    for shard in population.shards():
        often = 1 + np.random.Generator(np.random.Philox(shard.first_user)).poisson(
            VISITS_A_PAIR, shard.nonzeros
        )
        users = np.repeat(np.arange(shard.users) + shard.first_user, np.diff(shard.offsets))
        items = shard.items[shard.offsets[0] : shard.offsets[-1]]
        yield np.repeat(users, often).astype(np.int32), np.repeat(items, often).astype(np.int32)


def write(path: Path, users: np.ndarray, items: np.ndarray, *, text: bool) -> None:
    """One file of each format, written batch by batch."""
    table = pl.LazyFrame({"user": users, "item": items}).with_columns(pl.all().cast(pl.Int64))
    if text:
        table = table.select(
            ("user-" + pl.col("user").cast(pl.String).str.zfill(9)).alias("user"),
            ("item-" + pl.col("item").cast(pl.String).str.zfill(4)).alias("item"),
        )
    table.sink_parquet(path.with_suffix(".parquet"))
    table.sink_csv(path.with_suffix(".csv"))


def process(*command: str, package: Path | None = None) -> Spent:
    """Run it to its end, with the package in this folder or the installed one."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        path = {} if package is None else {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1"}
        child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, env=os.environ | path, cwd=package
        )
        _, status, used = os_wait(child)
        if status:
            errors.seek(0)
            raise SystemExit(errors.read().decode())
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu, used.ru_maxrss * 1024.0)


def os_wait(child: subprocess.Popen[bytes]) -> tuple[int, int, resource.struct_rusage]:
    """The child's end, with what it used; it is waited for once."""
    pid, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return pid, status, used


def importable(checkout: Path, folder: Path) -> Path:
    """A folder with the package of a checkout, whose layers lie beside it there."""
    shutil.copytree(checkout / "fedhist", folder / "fedhist")
    for layer in LAYERS:
        (folder / "fedhist" / layer).symlink_to((checkout / layer).resolve())
    return folder


def compare_with(before: Path, path: Path, folder: Path, repeats: int) -> None:
    """The same file by an older checkout and by this one, in turns; best of each."""
    command = ways(path, folder, rivals=False)["fedhist"]
    spent: dict[Path | None, list[Spent]] = {before: [], None: []}
    for turn in range(repeats):
        for package in (before, None) if turn % 2 == 0 else (None, before):
            spent[package].append(process(*command, package=package))
    old, new = (
        [min(getattr(one, name) for one in spent[package]) for name in ("wall", "cpu", "peak")]
        for package in (before, None)
    )
    target = TARGETS[path.suffix]
    print(
        f"{path.name:<28}{old[0]:>8.1f}{new[0]:>8.1f}{old[1]:>8.1f}{new[1]:>8.1f}{new[0] / old[0]:>7.2f}"
        f"{new[1] / old[1]:>7.2f}  (at most {target:.2f}){old[2] / GIGA:>8.2f}{new[2] / GIGA:>8.2f}",
        flush=True,
    )


def ways(path: Path, folder: Path, *, rivals: bool) -> dict[str, tuple[str, ...]]:
    """The commands that are compared."""
    ours = (
        sys.executable, "-m", "fedhist", "run", "--data", str(path), "--items-file", str(folder / "items.txt"),
        "--no-evaluate", "--json", "--quiet",
    )  # fmt: skip
    found = {"fedhist": ours, f"fedhist --memory {LIMITED}": (*ours, "--memory", LIMITED)}
    if rivals:
        found["DuckDB"] = (sys.executable, "-c", DUCKDB, str(path), "", str(folder))
        found[f"DuckDB, {LIMITED}"] = (sys.executable, "-c", DUCKDB, str(path), LIMITED, str(folder))
        found["polars, streaming"] = (sys.executable, "-c", POLARS, str(path), LIMITED, str(folder))
    return found


def write_items(path: Path, folder: Path) -> None:
    """The public list of items of a file."""
    labels = [f"item-{number:04}" if "text" in path.name else str(number) for number in range(ITEMS)]
    (folder / "items.txt").write_text("\n".join(labels) + "\n", encoding="ascii")


def compare(path: Path, name: str, folder: Path, repeats: int, *, rivals: bool) -> None:
    commands = ways(path, folder, rivals=rivals)
    turns = [{way: process(*command) for way, command in commands.items()} for _ in range(repeats)]
    best = {way: min((turn[way] for turn in turns), key=lambda spent: spent.wall) for way in commands}
    base = best.get("DuckDB")
    for way, spent in best.items():
        ratio = f"{spent.wall / base.wall:>7.2f}{spent.cpu / base.cpu:>7.2f}" if base else f"{'':>14}"
        print(
            f"{name:<24}{way:<22}{spent.wall:>8.1f}{spent.cpu:>8.1f}{ratio}{spent.peak / GIGA:>9.2f}",
            flush=True,
        )


def write_files(folder: Path, rows: int, kinds: list[str]) -> None:
    """All files, in this process: it takes much memory, and what it starts would inherit its peak."""
    users, items = (np.concatenate(one) for one in zip(*visits(rows), strict=True))
    print(
        f"\n{len(users):,} rows of {int(users[-1]) + 1:,} users; ratios to DuckDB; target of fedhist: at most {TARGET}"
    )
    for order in ORDERS:
        if order == "shuffled":
            places = np.random.Generator(np.random.Philox(2)).permutation(len(users))
            users, items = users[places], items[places]
        for kind in kinds:
            write(folder / f"{kind}, {order}", users, items, text=kind == "text")


def measure(rows: int, kinds: list[str], repeats: int, *, rivals: bool, before: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="fedhist-big-") as name:
        folder = Path(name)
        (folder / "before").mkdir()
        old = None if before is None else importable(before, folder / "before")
        child = [sys.executable, __file__, "--write", name, "--rows", str(rows)]
        subprocess.run([*child, *(["--only", kinds[0]] if len(kinds) == 1 else [])], check=True)
        if old is None:
            print(f"{'file':<24}{'':<22}{'s':>8}{'CPU s':>8}{'ratio':>7}{'CPU':>7}{'peak GB':>9}")
        else:
            print(
                f"{'file':<28}{'s old':>8}{'new':>8}{'CPU old':>8}{'new':>8}{'ratio':>7}{'CPU':>7}{'GB old, new':>30}"
            )
        for path in (
            folder / f"{kind}, {order}.{form}" for order in ORDERS for kind in kinds for form in FORMATS
        ):
            write_items(path, folder)
            if old is None:
                compare(path, path.name, folder, repeats, rivals=rivals)
            else:
                compare_with(old, path, folder, repeats)
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000_000, 100_000_000])
    parser.add_argument("--only", choices=("integers", "text"), help="one kind of file")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--no-rivals", action="store_true", help="fedhist alone")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--before", type=Path, help="a checkout of an older commit to compare with")
    parser.add_argument("--quick", action="store_true", help="2 million rows, once")
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else ["integers", "text"]
    if arguments.write:
        write_files(arguments.write, arguments.rows[0], kinds)
        return
    for rows in [2_000_000] if arguments.quick else arguments.rows:
        repeats = 1 if arguments.quick else arguments.repeats
        measure(rows, kinds, repeats, rivals=not arguments.no_rivals, before=arguments.before)


if __name__ == "__main__":
    main()
