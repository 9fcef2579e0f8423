"""A masked run on Flower's Simulation Engine, next to the same number of plain round trips on the same nodes.

    python benchmarks/masked_flower.py            # 50 nodes
    python benchmarks/masked_flower.py --nodes 20 --repeats 2

A masked run of two rounds has ten exchanges (twelve when signed), so it is compared with as many plain ones: unmasked
runs of the same plan, with two exchanges each. The two alternate on the same nodes. The table shows the best of each,
the ratio of the bests, and the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from functools import partial
from pathlib import Path

from fedhist.simulations.engines.quiet import quieten

quieten()  # before Flower is imported

from flower_rounds import rounds, start_flower  # noqa: E402
from flwr.app import Context  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402

from fedhist.client.flower import mount  # noqa: E402
from fedhist.client.policy import Policy  # noqa: E402
from fedhist.client.populations import SparsePopulation  # noqa: E402
from fedhist.protocol.masking.crypto import Identity  # noqa: E402
from fedhist.protocol.plan import Plan  # noqa: E402
from fedhist.protocol.privacy.randomness import SystemSource  # noqa: E402
from fedhist.server.collection import RoundReport  # noqa: E402
from fedhist.simulations.datasets.mapped_files import write_mapped  # noqa: E402
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation  # noqa: E402
from fedhist.simulations.engines.flower import read_identities, read_part, write_secrets  # noqa: E402

ITEMS = 1_000
USERS = 10_000
TARGET_RATIO = 2.5
PLAIN_RUNS = 5


def load(folder: Path, context: Context) -> SparsePopulation:
    """A node's part of the population."""
    config = context.node_config
    return read_part(folder, int(config["partition-id"]), int(config["num-partitions"]))


def identity(folder: Path, context: Context) -> Identity:
    """A node's key for signed masking."""
    return read_identities(folder)[int(context.node_config["partition-id"])]


def run(grid: Grid, plan: Plan, folder: Path, nodes: int) -> tuple[float, list[RoundReport]]:
    """The seconds of a run in which everybody answers, with the nodes' keys if it is signed."""
    directory = read_identities(folder)[0].directory if plan.is_signed else None
    return rounds(grid, plan, nodes, directory)


def serve(grid: Grid, context: Context, *, folder: Path, nodes: int, repeats: int) -> None:
    """The ServerApp: a line of the table for each kind of masking."""
    plain = Plan(users=USERS, items=ITEMS)
    run(grid, plain, folder, nodes)  # starts the workers
    for name, settings in (
        ("secagg", {"masking": "secagg"}),
        ("secagg, noise from devices", {"masking": "secagg", "noise_from": "devices"}),
        ("secagg-signed", {"masking": "secagg-signed"}),
    ):
        masked = Plan(users=USERS, items=ITEMS, participants=nodes, **settings)
        reports = run(grid, masked, folder, nodes)[1]
        exchanges = sum(len(report.stages) for report in reports)
        trips, ours = [], []
        for _ in range(repeats):
            each = sum(run(grid, plain, folder, nodes)[0] for _ in range(PLAIN_RUNS)) / (2 * PLAIN_RUNS)
            trips.append(exchanges * each)
            ours.append(run(grid, masked, folder, nodes)[0])
        sent = sum(report.size for report in reports) // nodes
        median = statistics.median(o / t for o, t in zip(ours, trips, strict=True))
        print(
            f"{name:<28}{nodes:>6,}{exchanges:>11}{min(trips):>9.2f}{min(ours):>10.2f}"
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
        write_mapped(HeavyTailedPopulation(USERS, ITEMS, 1), folder)
        write_secrets(folder, arguments.nodes, source=SystemSource())
        server = ServerApp()
        server.main()(partial(serve, folder=folder, nodes=arguments.nodes, repeats=arguments.repeats))
        client = mount(
            ClientApp(),
            partial(load, folder),
            policy=Policy(minimum_masking="none"),
            identity=partial(identity, folder),
            simulated=lambda context: True,
        )
        start_flower(server, client, arguments.nodes)


if __name__ == "__main__":
    main()
