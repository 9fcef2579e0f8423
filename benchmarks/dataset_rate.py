"""How fast synthetic populations are made, and in how much memory: `python benchmarks/dataset_rate.py`.

Ten million users of each entry of the registry, each in a process of its own. The yardstick is numpy itself: the time
that the same run spends inside numpy's generator, drawing the very same raw values (uniform, normal, gamma, Poisson).
The rest of the time turns them into histograms. Peak memory does not depend on the number of users.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
from two_rounds import peak_memory

from fedhist.simulations.datasets import paper_sets, synthetic
from fedhist.simulations.datasets.registry import DATASETS, PREFIX, make_population

MEGA = 1e6


class Timed:
    """A generator that measures its time and counts the values that it draws."""

    seconds = 0.0
    values = 0

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._generator, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            drawn = draw(*arguments, **named)
            Timed.seconds += time.perf_counter() - begin
            Timed.values += np.size(drawn)
            return drawn

        return timed


def measure(name: str, users: int) -> dict[str, float]:
    bare = synthetic.block_generator

    def timed(kind: str, seed: int, block: int) -> Any:
        return Timed(bare(kind, seed, block))

    for module in (synthetic, paper_sets):
        module.block_generator = timed  # type: ignore[assignment]  # a stopwatch in its place
    population = make_population(PREFIX + name, seed=1, users=users)
    before = peak_memory()
    begin = time.perf_counter()
    entries = sum(shard.nonzeros for shard in population.shards())
    spent = time.perf_counter() - begin
    return {
        "items": population.domain_size,
        "seconds": spent,
        "raw": Timed.seconds,
        "values": Timed.values,
        "entries": entries,
        "before": before,
        "peak": peak_memory(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the users")
    parser.add_argument("--only", choices=list(DATASETS), help="one population")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    users = arguments.users // 100 if arguments.quick else arguments.users
    if arguments.child:
        print(json.dumps(measure(arguments.only, users)))
        return
    print(f"{users:,} users")
    print(
        f"{'population':<24}{'items':>6}{'users/s':>12}{'non-zeros':>15}{'raw values':>16}{'seconds':>9}{'numpy s':>9}"
        f"{'ratio':>7}{'peak MB':>9}"
    )
    for name in [arguments.only] if arguments.only else DATASETS:
        child = [sys.executable, __file__, "--child", "--only", name, "--users", str(users)]
        found = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(
            f"{name:<24}{found['items']:>6,}{users / found['seconds']:>12,.0f}{found['entries']:>15,}"
            f"{found['values']:>16,}{found['seconds']:>9.1f}{found['raw']:>9.1f}"
            f"{found['seconds'] / found['raw']:>7.2f}{found['peak'] / MEGA:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
