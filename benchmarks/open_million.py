"""One million users over a domain of one million names: `python benchmarks/open_million.py`.

Users are made block by block, of which the population keeps some, and names when they are needed, so that the peak
memory is that of the rounds. A discovery and each form of round 1 of a release above a bar are measured in processes of
their own. Seconds include making the users.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np
from two_rounds import peak_memory

from fedhist.protocol.clipping import entry_counts, entry_items
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.steps import steps_of
from fedhist.simulations.datasets.paper_sets import ZipfPopulation
from fedhist.simulations.engines.contract import engine_named
from fedhist.simulations.engines.in_process import message_bytes
from fedhist.simulations.simulation import simulate

TARGET_GB = 4.0
GIGA = 1e9
ROUNDS = ("discover", "select", "release")
WAYS = {"discover": "discover", "above a bar": "truncated-laplace"}


def measure(users: int, items: int, way: str) -> dict[str, float | str]:
    population = ZipfPopulation(users=users, items=items, seed=1)
    before = peak_memory()
    plan = Plan(users=users, domain="open", delta=1 / (2 * users), release=WAYS[way])
    start, clock = time.process_time(), time.perf_counter()
    alone = engine_named("in-process", workers=1)
    result = simulate(population, plan, seed=1, evaluate=False, engine=alone)
    spent, passed = time.process_time() - start, time.perf_counter() - clock
    peak = peak_memory()
    clock = time.perf_counter()
    simulate(ZipfPopulation(users=users, items=items, seed=1), plan, seed=1, evaluate=False)
    on_all = time.perf_counter() - clock
    summed, floor = np.zeros(items, dtype=np.int64), 0.0
    for shard in population.shards():
        numbers, counts = entry_items(shard), entry_counts(shard)
        start = time.process_time()
        np.add.at(summed, numbers, counts)
        floor += time.process_time() - start
    # Another one, because this one has kept its users.
    fresh = ZipfPopulation(users=users, items=items, seed=1)
    start = time.process_time()
    entries = sum(shard.nonzeros for shard in fresh.shards())
    made = time.process_time() - start
    release = result.release
    assert release.labels is not None  # noqa: S101 - an open domain has them
    first = steps_of(plan)[0].request(plan, None, source=SeededSource(1))
    assert first is not None  # noqa: S101 - both ways begin with a question
    took = {name: result.seconds[name] for name in ROUNDS if name in result.seconds}
    own = max(spent - made, 0.0)
    return {
        "entries": entries,
        "made": made,
        "floor": floor,
        "seconds": passed,
        "on all": on_all,
        "cpu": spent,
        "own": own,
        "ratio": own / (len(took) * floor),
        "rounds": ", ".join(f"{name} {seconds:.1f}" for name, seconds in took.items()),
        "before": before,
        "peak": peak,
        "keys": len(release.labels),
        "threshold": release.threshold,
        "sent": message_bytes(first, population, source=SeededSource(1)),
        "first": str(release.labels[0]) if release.labels else "none",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the users")
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    users = arguments.users // 10 if arguments.quick else arguments.users
    if arguments.only:
        print(json.dumps(measure(arguments.users, arguments.items, arguments.only)))
        return
    print(
        f"{users:,} users, Zipf over {arguments.items:,} names. Limit: one np.add.at over all entries for each round"
    )
    for way in WAYS:
        sizes = ["--users", str(users), "--items", str(arguments.items)]
        child = [sys.executable, __file__, "--only", way, *sizes]
        found = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(
            f"\n{way}: {found['entries']:,} non-zeros\n"
            f"  seconds    {found['seconds']:.1f} ({found['rounds']}), {found['cpu']:.1f} of CPU, in one process; "
            f"{found['on all']:.1f} on all cores\n"
            f"  users      {found['made']:.1f} s of CPU to make them once\n"
            f"  own work   {found['own']:.1f} s of CPU beside that, {found['ratio']:.0f} times the limit of "
            f"{found['floor']:.2f} s a round\n"
            f"  peak       {found['peak'] / GIGA:.2f} GB, {found['before'] / GIGA:.2f} before the rounds "
            f"(target: at most {TARGET_GB:g})\n"
            f"  threshold  {found['threshold']:,.0f}\n"
            f"  released   {found['keys']:,} keys, the first {found['first']}\n"
            f"  sent       {found['sent']:,} bytes by a user in round 1",
            flush=True,
        )


if __name__ == "__main__":
    main()
