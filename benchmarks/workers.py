"""What more worker processes give: `python benchmarks/workers.py`.

Three tables. Rounds over a population in memory and over a synthetic one, with one worker and with one for each core,
in turns, each the best of some repeats; the forks are in the time. Then the same for small populations, which says from
which number of users on several workers pay. Then the peak memory of whole commands with workers, for a million and ten
million synthetic users: the command's own, and that of its largest worker.

CPU is what the processes together spent with workers over what one spent: what is above 1 was lost on the way.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Histograms, Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import Release
from fedhist.simulations.datasets.mapped_files import read_mapped, write_mapped
from fedhist.simulations.datasets.paper_sets import NumberedLabels
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.engines.contract import PAYS_FROM_USERS, cores
from fedhist.simulations.engines.in_process import open_in_process

ITEMS = 1000
TARGET = 1.7
SEED = 1
SMALL = (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
# A run of its own, so that its peak is its own: in megabytes, of the command and of its largest worker.
PEAK = """
import resource, sys
from fedhist.commands.cli import main
try:
    main(["run", "--users", sys.argv[1], "--seed", "1", "--quiet", "--workers", sys.argv[2], "--out", sys.argv[3]])
except SystemExit:
    pass
print(*(resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""


def plans(users: int) -> dict[str, Plan]:
    """What the rounds are."""
    return {
        "closed, l2, few clipped": Plan(users=users, items=ITEMS),
        "closed, l2, most clipped": Plan(users=users, items=ITEMS, selector="fixed", threshold=10.0),
        "closed, l1": Plan(users=users, items=ITEMS, mechanism="laplace", delta=0.0),
        "open, discovery": Plan(users=users, items=None, domain="open"),
    }


def in_place(users: int) -> SparsePopulation:
    """Users in memory, from a file: what making them leaves behind in a process would make its forks dearer."""
    with tempfile.TemporaryDirectory() as folder:
        script = "import sys; from benchmarks.workers import write; write(int(sys.argv[1]), sys.argv[2])"
        root = Path(__file__).resolve().parents[1]
        subprocess.run([sys.executable, "-c", script, str(users), folder], check=True, cwd=root)
        mapped = read_mapped(Path(folder))
        held = mapped.histograms
        copied = Histograms(held.offsets.copy(), held.items.copy(), held.counts.copy(), held.domain_size)
    return SparsePopulation(copied, labels=NumberedLabels(held.domain_size))


def write(users: int, folder: str) -> None:
    """Make the users, in a process of their own."""
    write_mapped(HeavyTailedPopulation(users=users, items=ITEMS, seed=SEED), Path(folder))


def spent() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(population: Population, plan: Plan, workers: int) -> tuple[float, float, Release]:
    """Seconds by the clock, CPU seconds, and the release of one run of all rounds."""
    start, before = time.perf_counter(), spent()
    with open_in_process(population, seed=SEED, workers=workers) as transport:
        release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(SEED))
    return time.perf_counter() - start, spent() - before, release


def compared(population: Population, plan: Plan, workers: int, repeats: int) -> tuple[float, float, float]:
    """The best seconds with one worker and with several, and the ratio of CPU seconds."""
    best: dict[int, float] = {}
    cpu: dict[int, float] = {}
    releases = []
    for _ in range(repeats):
        for count in (1, workers):
            seconds, used, release = timed(population, plan, count)
            best[count] = min(seconds, best.get(count, seconds))
            cpu[count] = min(used, cpu.get(count, used))
            releases.append(release)
    same = all((one.histogram == releases[0].histogram).all() for one in releases)
    assert same, "the releases differ"  # noqa: S101 - a benchmark of wrong sums is worth nothing
    return best[1], best[workers], cpu[workers] / cpu[1]


def rounds(users: int, synthetic: int, workers: int, repeats: int) -> None:
    held = in_place(users)
    print(f"{users:,} users in memory with {held.nonzeros / 1e6:,.1f} million pairs; target {TARGET}")
    _head(workers)
    for name, plan in plans(users).items():
        _row(name, *compared(held, plan, workers, repeats))
    made = HeavyTailedPopulation(users=synthetic, items=ITEMS, seed=SEED)
    print(f"{synthetic:,} synthetic users, made in every round")
    _row("closed, l2", *compared(made, Plan(users=synthetic, items=ITEMS), workers, 2))


def small(workers: int) -> None:
    print(
        f"\nsmall populations, closed, l2; several workers are the default from {PAYS_FROM_USERS:,} users on"
    )
    print(f"{'users':>10} {'in memory':>10} {'synthetic':>10}   one worker over {workers}")
    for users in SMALL:
        made = HeavyTailedPopulation(users=users, items=ITEMS, seed=SEED)
        plan, found = Plan(users=users, items=ITEMS), []
        for population in (materialise(made), made):
            one, several, _ = compared(population, plan, workers, 5 if users < SMALL[-2] else 3)
            found.append(one / several)
        print(f"{users:>10,} {found[0]:>10.2f} {found[1]:>10.2f}", flush=True)


def memory(sizes: Sequence[int], workers: int) -> None:
    print(
        f"\n{'users':>12} {'seconds':>8} {'command MB':>11} {'worker MB':>10}   fedhist run, {workers} workers"
    )
    for users in sizes:
        with tempfile.TemporaryDirectory() as folder:
            arguments = [sys.executable, "-c", PEAK, str(users), str(workers), f"{folder}/out"]
            start = time.perf_counter()
            done = subprocess.run(arguments, capture_output=True, text=True, check=True)
            command, worker = map(int, done.stdout.split())
            seconds = time.perf_counter() - start
        print(f"{users:>12,} {seconds:>8.1f} {command:>11,} {worker:>10,}", flush=True)


def _head(workers: int) -> None:
    print(f"{'rounds':<26} {'1 worker':>9} {f'{workers} workers':>10} {'ratio':>6} {'CPU':>5}")


def _row(name: str, one: float, several: float, cpu: float) -> None:
    print(f"{name:<26} {one:>8.2f}s {several:>9.2f}s {one / several:>6.2f} {cpu:>5.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=4_000_000, help="in memory")
    parser.add_argument("--synthetic", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--only", choices=["rounds", "small", "memory"])
    chosen = parser.parse_args()
    if chosen.only in {None, "rounds"}:
        rounds(chosen.users, chosen.synthetic, chosen.workers, chosen.repeats)
    if chosen.only in {None, "small"}:
        small(chosen.workers)
    if chosen.only in {None, "memory"}:
        memory(chosen.memory, chosen.workers)


if __name__ == "__main__":
    main()
