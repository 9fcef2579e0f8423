"""The engine ray on a cluster of two raylets against the engine in-process: `python benchmarks/ray_cluster.py`.

Both have the same number of cores, the users are synthetic and made where they are summed. The cluster is on the
loopback interface of this machine: half of the cores are one raylet's, and the others have a raylet each. A pass
beforehand starts its processes. Both engines take turns. Needs the extra `simulation`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fedhist.client.files.memory import cores  # noqa: E402
from fedhist.protocol.plan import Plan  # noqa: E402
from fedhist.protocol.privacy.ledger import Ledger  # noqa: E402
from fedhist.protocol.privacy.randomness import SeededSource  # noqa: E402
from fedhist.server.coordinator import run_rounds  # noqa: E402
from fedhist.server.releases.contract import Release  # noqa: E402
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation  # noqa: E402
from fedhist.simulations.engines.contract import SimulatedTransport, engine_named  # noqa: E402
from fedhist.simulations.engines.ray import RayCrew  # noqa: E402
from tests.loopback_cluster import loopback_cluster  # noqa: E402

ITEMS = 1000
SEED = 1
TARGET = 1.1


def rounds(transport: SimulatedTransport, plan: Plan) -> tuple[float, Release]:
    """The seconds of all rounds, and the release."""
    start = time.perf_counter()
    release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(SEED))
    return time.perf_counter() - start, release


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=20_000_000, help="about a minute a run on two cores")
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args()
    each = max(1, cores() // 2)
    population = HeavyTailedPopulation(users=chosen.users, items=ITEMS, seed=SEED)
    plan = Plan(users=chosen.users, items=ITEMS)
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, ExitStack() as stack:
        cluster = stack.enter_context(loopback_cluster(Path(folder), raylets=each, cores=each))
        start = time.perf_counter()
        there = stack.enter_context(engine_named("ray", ray_address=cluster.address)(population, seed=SEED))
        joined = time.perf_counter() - start
        here = stack.enter_context(engine_named("in-process", workers=2 * each)(population, seed=SEED))
        start = time.perf_counter()
        RayCrew(population.part(0, 100_000))([])
        started = time.perf_counter() - start
        print(
            f"{chosen.users:,} users, {2 * each} cores; joined in {joined:.1f} s, first pass {started:.1f} s more"
        )
        print(f"{'repeat':>6} {'in-process':>11} {'ray':>8} {'ratio':>6}   target {TARGET}")
        for number in range(chosen.repeats):
            alone, one = rounds(here, plan)
            spread, other = rounds(there, plan)
            same = "same release" if (one.histogram == other.histogram).all() else "ANOTHER RELEASE"
            print(
                f"{number + 1:>6} {alone:>10.1f}s {spread:>7.1f}s {spread / alone:>6.2f}   {same}", flush=True
            )


if __name__ == "__main__":
    main()
