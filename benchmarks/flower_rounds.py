"""Both rounds on Flower's Simulation Engine, next to an echo of the same messages on the same nodes in the same run.

    python benchmarks/flower_rounds.py            # minutes: up to 1,000 nodes and a million users
    python benchmarks/flower_rounds.py --quick    # small sizes

An echo node gets the messages of our nodes and returns as many bytes as they do, without any work: the cost of Flower
and Ray by themselves. Ours is everything that `run_on_grid` does, from the plan to the release. The two alternate on
the same nodes, so a busy machine slows both down alike. The table shows the best of each and their ratio, and the
medians of the ratios of neighbours: of time, and of CPU time (the driver's and Ray's workers' together), which is more
reliable on a shared machine.

Flower looks for replies every tenth of a second: no round is faster, and on few nodes ratios come in such steps.

Users are in files that are written block by block before the clock starts; a node maps its own part of them.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedhist.simulations.engines.quiet import quieten

quieten()  # before Flower is imported

import ray  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from fedhist.client.flower import mount  # noqa: E402
from fedhist.client.populations import SparsePopulation  # noqa: E402
from fedhist.protocol.grid import Threshold  # noqa: E402
from fedhist.protocol.plan import Plan  # noqa: E402
from fedhist.protocol.privacy.randomness import SystemSource  # noqa: E402
from fedhist.protocol.rounds import Request  # noqa: E402
from fedhist.protocol.wire.envelope import ANSWER, RECORD, Envelope, Status, items_digest  # noqa: E402
from fedhist.server.collection import RoundReport  # noqa: E402
from fedhist.server.flower import run_on_grid  # noqa: E402
from fedhist.server.selection import Selection  # noqa: E402
from fedhist.server.steps import release_request, select_request  # noqa: E402
from fedhist.simulations.datasets.mapped_files import write_mapped  # noqa: E402
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation  # noqa: E402
from fedhist.simulations.engines.flower import read_part  # noqa: E402

ITEMS = 1_000
TIMEOUT = 3_600.0
CURRENT = "current"
Cases = tuple[tuple[int, tuple[int, ...]], ...]
FULL: Cases = (
    (10, (10_000,)),
    (100, (1_000, 10_000, 100_000, 1_000_000)),
    (300, (10_000,)),
    (1_000, (10_000,)),
)
QUICK: Cases = ((5, (1_000,)), (10, (1_000, 10_000)))


@dataclass
class Pair:
    """The best echo and the best of ours in seconds, medians of the ratios of time and CPU time, and more."""

    echo: float
    ours: float
    median: float
    cpu: float
    reports: Sequence[RoundReport]
    peak: int


def load(folder: Path, context: Context) -> SparsePopulation:
    """A node's part of the population that the folder points at just now."""
    config = context.node_config
    return read_part((folder / CURRENT).resolve(), int(config["partition-id"]), int(config["num-partitions"]))


def echo(message: Message, context: Context) -> Message:
    """As many bytes as one of our nodes would return, with its fields; the worker's costs are in the reason."""
    asked = message.content.config_records[RECORD]
    fields = {name: asked[name] for name in ("version", "run", "round", "plan-digest")}
    used = resource.getrusage(resource.RUSAGE_SELF)
    costs = f"{os.getpid()} {used.ru_utime + used.ru_stime} {used.ru_maxrss * 1024}"
    size = int(str(asked["bytes"]))
    array = Array(dtype="uint8", shape=(size,), stype="bytes", data=bytes(size))
    content = RecordDict(
        {
            RECORD: ConfigRecord({**fields, "status": Status.ANSWER.value, "reason": costs}),
            ANSWER: ArrayRecord({"answer": array}),
        }
    )
    return Message(content, reply_to=message)


@dataclass
class Workers:
    """The costs of Ray's workers in a round of echoes: CPU seconds at the first and last replies; peak memory."""

    first: float
    last: float
    peak: int


def echo_round(grid: Grid, request: Request, size: int) -> Workers:
    """One round of echoes, all received."""
    envelope = Envelope(run="0" * 32, request=request, items_digest=items_digest(None))
    messages = [
        Message(
            RecordDict({RECORD: ConfigRecord({**envelope.to_fields(), "bytes": size})}),
            node,
            "query.echo",
            ttl=TIMEOUT,
            group_id="echo",
        )
        for node in sorted(grid.get_node_ids())
    ]
    replies = list(grid.send_and_receive(messages, timeout=TIMEOUT))
    if len(replies) != len(messages) or any(reply.has_error() for reply in replies):
        raise RuntimeError("an echo was lost, so there is nothing to compare with")
    told = [str(reply.content.config_records[RECORD]["reason"]).split() for reply in replies]
    seconds: dict[str, list[float]] = {}
    for worker, cpu, _ in told:
        seconds.setdefault(worker, []).append(float(cpu))
    return Workers(
        first=sum(min(all_) for all_ in seconds.values()),
        last=sum(max(all_) for all_ in seconds.values()),
        peak=max(int(peak) for *_, peak in told),
    )


def rounds(
    grid: Grid, plan: Plan, nodes: int, directory: Mapping[int, bytes] | None = None
) -> tuple[float, list[RoundReport]]:
    """The seconds of a run in which everybody answers."""
    reports: list[RoundReport] = []
    start = time.perf_counter()
    run_on_grid(
        grid, plan, timeout=TIMEOUT, minimum_nodes=nodes, on_report=reports.append, directory=directory
    )
    seconds = time.perf_counter() - start
    if any(report.users != plan.users for report in reports):
        raise RuntimeError("not all users answered, so the time says little")
    return seconds, reports


def measure(grid: Grid, plan: Plan, nodes: int, repeats: int) -> Pair:
    """Echoes and ours in turn. The first of ours starts workers and imports, and is thrown away."""
    reports = rounds(grid, plan, nodes)[1]
    sizes = [report.size // report.answered for report in reports]
    select = select_request(plan), sizes[0]
    highest = Selection(Threshold(plan.step_range[1], plan.grid_bits))
    release = release_request(plan, highest, source=SystemSource()), sizes[1]
    echoes, ours, echo_cpu, our_cpu = [], [], [], []
    begin, begin_cpu = time.perf_counter(), time.process_time()
    one = echo_round(grid, *select)
    for _ in range(repeats):
        two = echo_round(grid, *release)
        echoes.append(time.perf_counter() - begin)
        echo_cpu.append(time.process_time() - begin_cpu + two.last - one.first)
        begin_cpu = time.process_time()
        ours.append(rounds(grid, plan, nodes)[0])
        driver = time.process_time() - begin_cpu
        begin, begin_cpu = time.perf_counter(), time.process_time()
        one = echo_round(grid, *select)
        our_cpu.append(driver + one.first - two.last)
    return Pair(
        echo=min(echoes),
        ours=min(ours),
        median=statistics.median(our / their for our, their in zip(ours, echoes, strict=True)),
        cpu=statistics.median(our / their for our, their in zip(our_cpu, echo_cpu, strict=True)),
        reports=reports,
        peak=one.peak,
    )


def write_users(folder: Path, users: int) -> tuple[Path, float]:
    """The folder of a population, and the seconds that it took to write."""
    own = folder / str(users)
    start = time.perf_counter()
    if not own.exists():
        own.mkdir()
        write_mapped(HeavyTailedPopulation(users, ITEMS, 1), own)
    return own, time.perf_counter() - start


def serve(
    grid: Grid, context: Context, *, folder: Path, nodes: int, sizes: Sequence[int], repeats: int
) -> None:
    """The ServerApp: every number of users on these nodes, a line of the table for each."""
    for users in sizes:
        own, writing = write_users(folder, users)
        link = folder / CURRENT
        link.unlink(missing_ok=True)
        link.symlink_to(own)
        plan = Plan(users=users, items=ITEMS)
        pair = measure(grid, plan, nodes, repeats)
        data = sum(path.stat().st_size for path in own.iterdir())
        select, release = (report.size // report.answered for report in pair.reports)
        print(
            f"{nodes:>6,}{users:>11,}{pair.echo:>9.2f}{pair.ours:>9.2f}{pair.ours / pair.echo:>7.2f}"
            f"{pair.median:>8.2f}{pair.cpu:>6.2f}{2 * nodes / pair.ours:>9.0f}{users / pair.ours:>11,.0f}"
            f"{select:>8,}{release:>8,}{data / 1e6:>9.0f}{writing:>9.1f}{pair.peak / 1e6:>9.0f}",
            flush=True,
        )


def run_nodes(folder: Path, nodes: int, sizes: Sequence[int], repeats: int) -> None:
    """Measure every number of users on this number of nodes."""
    client = mount(ClientApp(), partial(load, folder), simulated=lambda context: True)
    client.query("echo")(echo)
    server = ServerApp()
    server.main()(partial(serve, folder=folder, nodes=nodes, sizes=sizes, repeats=repeats))
    start_flower(server, client, nodes)


def start_flower(server: ServerApp, client: ClientApp, nodes: int) -> None:
    """One start of Flower and Ray, which are shut down when the ServerApp ends."""
    try:
        run_simulation(
            server_app=server,
            client_app=client,
            num_supernodes=nodes,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"},
            },
        )
    finally:
        ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=6, help="of each measurement; a third over 200 nodes")
    parser.add_argument("--nodes", type=int, help="this many nodes only")
    parser.add_argument("--users", type=int, nargs="+", help="these numbers of users only, with --nodes")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    cases: Cases = QUICK if arguments.quick else FULL
    if arguments.nodes is not None:
        cases = ((arguments.nodes, tuple(arguments.users or (100_000,))),)
    print(f"two rounds over {ITEMS:,} items, heavy-tailed users, {arguments.repeats} repeats")
    print(
        f"{'nodes':>6}{'users':>11}{'echo s':>9}{'ours s':>9}{'ratio':>7}{'median':>8}{'CPU':>6}"
        f"{'msg/s':>9}{'users/s':>11}{'B sel.':>8}{'B rel.':>8}{'data MB':>9}{'write s':>9}{'peak MB':>9}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="fedhist-nodes-") as folder:
        for nodes, sizes in cases:
            few = max(arguments.repeats // 3, 1)
            run_nodes(Path(folder), nodes, sizes, few if nodes > 200 else arguments.repeats)


if __name__ == "__main__":
    main()
