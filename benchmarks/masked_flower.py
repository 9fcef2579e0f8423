"""A masked run on Flower's Simulation Engine, next to the same number of plain round trips on the same nodes.

    python benchmarks/masked_flower.py            # 50 nodes
    python benchmarks/masked_flower.py --nodes 20 --repeats 2

A masked run has five exchanges a round (six when signed), so it is compared with as many plain ones: unmasked runs
of the same plan, of two exchanges each. The two alternate on the same nodes. Shown are the best of each, the ratio of
the bests, and the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from fedhist.simulations.engines.quiet import quieten

quieten()  # before Flower is imported

import ray  # noqa: E402
from flwr.app import Context  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from fedhist.client.app import mount  # noqa: E402
from fedhist.client.policy import Policy  # noqa: E402
from fedhist.client.populations import SparsePopulation  # noqa: E402
from fedhist.protocol.masking.keys import Identity  # noqa: E402
from fedhist.protocol.plan import Plan  # noqa: E402
from fedhist.protocol.privacy.randomness import SystemSource  # noqa: E402
from fedhist.server.app import run_on_grid  # noqa: E402
from fedhist.server.collection import RoundReport  # noqa: E402
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation  # noqa: E402
from fedhist.simulations.engines.node_files import (  # noqa: E402
    read_identities,
    read_part,
    write_population,
    write_secrets,
)

ITEMS = 1_000
USERS = 10_000
TIMEOUT = 3_600.0
TARGET_RATIO = 2.5


def load(folder: Path, context: Context) -> SparsePopulation:
    """A node's part of the population."""
    config = context.node_config
    return read_part(folder, int(config["partition-id"]), int(config["num-partitions"]))


def identity(folder: Path, context: Context) -> Identity:
    """A node's key for signed masking."""
    return read_identities(folder)[int(context.node_config["partition-id"])]


def run(grid: Grid, plan: Plan, folder: Path, nodes: int) -> tuple[float, list[RoundReport]]:
    """The seconds of a run in which everybody answers."""
    reports: list[RoundReport] = []
    directory = read_identities(folder)[0].directory if plan.is_signed else None
    start = time.perf_counter()
    run_on_grid(
        grid, plan, timeout=TIMEOUT, minimum_nodes=nodes, on_report=reports.append, directory=directory
    )
    seconds = time.perf_counter() - start
    if any(report.users != plan.users for report in reports):
        raise RuntimeError("not all users answered, so the time says little")
    return seconds, reports


def serve(grid: Grid, context: Context, *, folder: Path, nodes: int, repeats: int) -> None:
    """The ServerApp: a line of the table for each kind of masking."""
    plain = Plan(users=USERS, items=ITEMS)
    run(grid, plain, folder, nodes)  # starts the workers
    for name, exchanges, settings in (
        ("secagg", 5, {"masking": "secagg"}),
        ("secagg, noise from devices", 5, {"masking": "secagg", "noise_from": "devices"}),
        ("secagg-signed", 6, {"masking": "secagg-signed"}),
    ):
        masked = Plan(users=USERS, items=ITEMS, participants=nodes, **settings)
        reports = run(grid, masked, folder, nodes)[1]
        trips, ours = [], []
        for _ in range(repeats):
            trips.append(sum(run(grid, plain, folder, nodes)[0] for _ in range(exchanges)))
            ours.append(run(grid, masked, folder, nodes)[0])
        sent = sum(report.size for report in reports) // nodes
        median = statistics.median(o / t for o, t in zip(ours, trips, strict=True))
        print(
            f"{name:<28}{nodes:>6,}{2 * exchanges:>11}{min(trips):>9.2f}{min(ours):>10.2f}"
            f"{min(ours) / min(trips):>7.2f}{median:>8.2f}{sent:>13,}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=4, help="of each measurement")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    print(f"{USERS:,} users, {ITEMS:,} items; target: at most {TARGET_RATIO} times the plain round trips")
    print(
        f"{'masking':<28}{'nodes':>6}{'exchanges':>11}{'plain s':>9}{'masked s':>10}{'ratio':>7}{'median':>8}"
        f"{'B sent/node':>13}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="fedhist-nodes-") as name:
        folder = Path(name)
        write_population(HeavyTailedPopulation(USERS, ITEMS, 1), folder)
        write_secrets(folder, arguments.nodes, source=SystemSource())
        server = ServerApp()
        server.main()(partial(serve, folder=folder, nodes=arguments.nodes, repeats=arguments.repeats))
        try:
            run_simulation(
                server_app=server,
                client_app=mount(
                    ClientApp(),
                    partial(load, folder),
                    policy=Policy(minimum_masking="none"),
                    identity=partial(identity, folder),
                    simulated=lambda context: True,
                ),
                num_supernodes=arguments.nodes,
                backend_config={
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                    "init_args": {
                        "include_dashboard": False,
                        "log_to_driver": False,
                        "logging_level": "error",
                    },
                },
            )
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
