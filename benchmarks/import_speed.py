"""How fast published files are imported, next to merely reading them: `python benchmarks/import_speed.py`.

Files of each format with invented content, read by polars (or, where polars has no reader, as bytes by Python and
split into lines by polars) and imported by us, which checks every line, finds words, numbers users and items and builds
the sorted rows of a population. Reads and imports alternate, and the best of each is shown, in CPU seconds of all
threads, which other programs on the machine disturb less than the time by the clock.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from fedhist.client.files.matrix_files import write_matrix
from fedhist.simulations.importing.reading import import_population

Read = Callable[[Path], object]


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def read_lines(path: Path) -> pl.Series:
    return pl.Series([path.read_bytes().decode("latin-1")]).str.split("\n").explode()


def read_tweets(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, has_header=False, encoding="utf8-lossy", infer_schema_length=0)


def read_tabs(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, has_header=False, separator="\t", infer_schema_length=0)


def write_files(folder: Path, lines: int) -> Iterator[tuple[str, Path, Read]]:
    """The same users and items in every format."""
    generator = np.random.Generator(np.random.Philox(7))
    users = generator.integers(max(lines // 20, 1), size=lines)
    items = (50_000 * generator.random(lines) ** 3).astype(np.int64)
    words = np.array([f"word{number}" for number in range(2_000)])
    chosen = words[(2_000 * generator.random((lines, 12)) ** 3).astype(np.int64)]
    table = pl.DataFrame({"user": users, "item": items})
    text = pl.concat_str([pl.Series(column) for column in chosen.T], separator=" ")
    tweet = table.select(
        pl.format(
            '"0","1","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","user{}","@user{} {} http://example.org/x &amp; more"',
            "user", "item", text,
        )
    )  # fmt: skip
    forms = {
        "tweets.csv": tweet,
        "checkins.txt": table.select(
            pl.format("{}\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t{}", "user", "item")
        ),
        "ratings.dat": table.select(pl.format("{}::{}::4::978300760", "user", "item")),
        "u.data": table.select(pl.format("{}\t{}\t4\t978300760", "user", "item")),
        "visits.jsonl": table.select(
            pl.concat_str([pl.lit('{"user": '), "user", pl.lit(', "item": "i'), "item", pl.lit('"}')])
        ),
    }
    for name, form in forms.items():
        (folder / name).write_text("\n".join(form.to_series().to_list()) + "\n")
    table.write_csv(folder / "visits.csv")
    header = table.rename({"user": "userId", "item": "movieId"})
    rated = header.with_columns(pl.lit(4.0).alias("rating"), pl.lit(978300760).alias("timestamp"))
    rated.write_csv(folder / "ratings.csv")
    yield "sentiment140", folder / "tweets.csv", read_tweets
    yield "snap", folder / "checkins.txt", read_tabs
    yield "movielens .csv", folder / "ratings.csv", pl.read_csv
    yield "movielens .dat", folder / "ratings.dat", read_lines
    yield "movielens u.data", folder / "u.data", read_tabs
    yield "records .csv", folder / "visits.csv", pl.read_csv
    yield "records .jsonl", folder / "visits.jsonl", pl.read_ndjson


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.lines:,} lines, best of {arguments.repeats}, CPU seconds")
    print(f"{'format':<18}{'MB':>7}{'read s':>9}{'import s':>10}{'lines/s':>12}{'ratio':>7}{'write s':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, path, bare in write_files(folder, arguments.lines):
            pairs = [
                (seconds(lambda: bare(path)), seconds(lambda: import_population(path)))  # noqa: B023 - called at once
                for _ in range(arguments.repeats)
            ]
            read, ours = (min(times) for times in zip(*pairs, strict=True))
            population = import_population(path).population
            written = seconds(lambda: write_matrix(population, folder / "p.npz", force=True))  # noqa: B023
            print(
                f"{title:<18}{path.stat().st_size / 1e6:>7.0f}{read:>9.2f}{ours:>10.2f}{arguments.lines / ours:>12,.0f}"
                f"{ours / read:>7.1f}{written:>9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
