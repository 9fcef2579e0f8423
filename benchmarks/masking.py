"""Masked sums as a ratio to the work that they can't do without, beside Flower's SecAgg+, and as they grow.

    python benchmarks/masking.py            # minutes: up to 10,000 devices, on two cores
    python benchmarks/masking.py --quick    # without the 10,000

A tenth of the devices drop out between sharing keys and sending their input, which is the most expensive moment.
The floor (`masking_floor.py`) is key pairs, agreements, derivations, masks, shares and boxes, each alone, in as many
processes as ours: one half before ours and one after it, so that other programs disturb both alike. Both sides of a
pair are in one process here, so the floor has each pair's agreement once; the ratio to a floor in which both sides
agree, as devices do, stands beside it. Ratios are of CPU time. On a machine with much other load they are too high,
since a whole protocol needs more of the caches than a bare loop; the load is printed first.

Memory is that of a whole masked round, from users to the sum, of each process at its highest.

Flower's SecAgg+ is its own workflow and client mod as installed, on a grid that calls the mod in this process: same
number of neighbours, threshold, length and drop-outs, all of its stages, and no transport on either side. It runs as
often as ours.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from masking_floor import Measured, Work, floor, in_words, measure, one_device, terms_for

from fedhist.protocol.events import TO_SERVER
from fedhist.protocol.masking.graph import parameters_for
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.simulations.engines.masked import run_cohort
from fedhist.simulations.engines.quiet import quieten


class Meter:
    """Counts the bytes that devices send and receive, and notes when each stage ended."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self.ended = {"": time.perf_counter()}

    def __call__(self, stage: str, to: str, device: int, message: bytes) -> None:
        """Count a message."""
        if to == TO_SERVER:
            self.sent += len(message)
        else:
            self.received += len(message)
        self.ended[stage] = time.perf_counter()

    def seconds(self) -> dict[str, float]:
        """By stage, from the end of one to the end of the next."""
        return {stage: end - self.ended[before] for (before, _), (stage, end) in pairwise(self.ended.items())}


def ours(devices: int, length: int, *, cores: int = 1) -> Meter:
    base = np.arange(length, dtype=np.int64) % 1000
    vectors = (base, -2 * base)
    meter = Meter()
    run = run_cohort(
        terms_for(length),
        devices,
        lambda device: vectors[device % 2],
        source=SystemSource(),
        dropouts={"masking": range(devices // 10)},
        cores=cores,
        watch=meter,
    )
    meter.ended["rebuild"] = time.perf_counter()
    if not np.array_equal(run.values, sum(vectors[device % 2] for device in range(devices // 10, devices))):
        raise SystemExit("the sum is wrong")
    return meter


def against_the_floor(devices: int, length: int, *, cores: int, repeats: int) -> Measured:
    """Run ours between two halves of the floor with as many processes, and print both."""
    parameters = parameters_for(devices, terms_for(length))
    work = Work.of_cohort(parameters, sides=1)

    def half() -> dict[str, Measured]:
        return floor(work.part(2), length, parameters, cores=cores, repeats=repeats)

    first = half()
    found = measure(lambda: ours(devices, length, cores=cores), repeats)
    parts = {
        kind: Measured(first[kind].cpu + second.cpu, first[kind].wall + second.wall, None)
        for kind, second in half().items()
    }
    show(f"{cores} core{'s' * (cores > 1)}", devices, length, found)
    cpu, wall = sum(part.cpu for part in parts.values()), sum(part.wall for part in parts.values())
    both = Work.of_cohort(parameters, sides=2)
    more = (both.agreements - work.agreements) / work.agreements * parts["agreements"].cpu
    more += (both.derivations - work.derivations) / work.derivations * parts["derivations"].cpu
    print(
        f"  {in_words(parts)}: {work.agreements:,} agreements, {work.masks:,} masks\n"
        f"  {found.cpu / cpu:.2f} times the floor (target: at most 1.5), by the clock {found.wall / wall:.2f} times;"
        f" {found.cpu / (cpu + more):.2f} times if both sides of a pair agreed\n"
    )
    return found


MEMORY = """
import re, resource
from pathlib import Path
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.coordinator import run_rounds
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation
from fedhist.simulations.engines.contract import engine_named

def peaks(devices, items):
    plan = Plan(
        users=devices, items=items, masking="secagg", participants=devices, selector="fixed", threshold=20.0
    )
    population = HeavyTailedPopulation(users=devices, items=items, seed=1)
    with engine_named("in-process", dropout=0.1)(population, seed=1) as transport:
        run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(1))
    own = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return f"the server's process {own:,.0f} MB, the largest worker {workers:,.0f} MB"
"""


def memory(devices: int, length: int) -> str:
    """The most memory of a masked round in a process of its own, and of its workers."""
    script = MEMORY + f"print(peaks({devices}, {length}))"
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout


def flowers(devices: int, length: int) -> None:
    """Flower's SecAgg+ from the first message to the sum."""
    import flwr.compat.common.recorddict_compat as compat
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.client.mod import secaggplus_mod
    from flwr.common import (
        Code,
        FitIns,
        FitRes,
        Status,
        ndarrays_to_parameters,
        parameters_to_ndarrays,
    )
    from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
    from flwr.common.secure_aggregation.secaggplus_constants import Stage as FlowerStage
    from flwr.server import LegacyContext
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
    from flwr.server.workflow.constant import Key as WorkflowKey
    from flwr.supercore.task_identity import TaskIdentity

    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    parameters = parameters_for(devices, terms_for(1))
    dead = set(range(1, devices // 10 + 1))
    vector = [np.full(length, 0.5, dtype=np.float32)]
    sums: list[Any] = []

    def context() -> Context:
        return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}, series_id=1)

    states = {node: context() for node in range(1, devices + 1)}

    def fit(message: Message, _: Context) -> Message:
        answer = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(vector), 1, {})
        return Message(compat.fitres_to_recorddict(answer, keep_input=False), reply_to=message)

    def send_and_receive(messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            record = message.content.config_records[RECORD_KEY_CONFIGS]
            if node in dead and record[Key.STAGE] == FlowerStage.COLLECT_MASKED_VECTORS:
                continue
            # Nodes empty the record that they get, and the workflow sends one to all.
            own = RecordDict({**message.content, RECORD_KEY_CONFIGS: ConfigRecord(dict(record))})
            copy = Message(own, dst_node_id=node, message_type="train", group_id="1")
            replies.append(secaggplus_mod(copy, states[node], fit))
        return replies

    empty = ndarrays_to_parameters([np.zeros(1, dtype=np.float32)])
    proxies = [SimpleNamespace(node_id=node) for node in range(1, devices + 1)]
    strategy = SimpleNamespace(
        configure_fit=lambda *_: [(proxy, FitIns(empty, {})) for proxy in proxies],
        aggregate_fit=lambda _, results, __: (sums.append(results[0][1].parameters), (None, {}))[1],
    )
    manager = SimpleNamespace(num_available=lambda: devices)
    server = LegacyContext(context(), strategy=strategy, client_manager=manager)  # type: ignore[arg-type]  # stand-ins
    server.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    server.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(empty, True)
    # Flower counts a device among its own neighbours.
    workflow = SecAggPlusWorkflow(parameters.neighbours + 1, parameters.threshold, max_weight=1.0)
    workflow(SimpleNamespace(send_and_receive=send_and_receive), server)  # type: ignore[arg-type]  # a stand-in
    if not sums or abs(parameters_to_ndarrays(sums[0])[0] - 0.5).max() > 1e-3:
        raise SystemExit("Flower's sum is wrong or missing")


def show(name: str, devices: int, length: int, found: Measured) -> None:
    meter = found.value
    sent, received = meter.sent / devices, meter.received / devices
    parameters = parameters_for(devices, terms_for(1))
    stages = "  ".join(f"{stage} {seconds:.2f}" for stage, seconds in meter.seconds().items())
    print(
        f"{name:<12} n = {devices:>6,}  d = {length:>7,}  k/t {parameters.neighbours}/{parameters.threshold}"
        f"  CPU {found.cpu:7.2f} s  clock {found.wall:7.2f} s  {1e3 * found.wall / devices:6.2f} ms a device"
        f"  sent {sent:>9,.0f}  received {received:>7,.0f} bytes   [{stages}]"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    arguments.add_argument("--quick", action="store_true", help="leave the 10,000 devices out")
    arguments.add_argument("--cores", type=int, default=2, help="processes for the 10,000 devices")
    options = arguments.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")

    ours(20, 100)  # imports, outside the clock
    hundred = against_the_floor(100, 10_000, cores=1, repeats=3)
    against_the_floor(1_000, 10_000, cores=1, repeats=2)
    against_the_floor(100, 100_000, cores=1, repeats=3)
    for length in (10_000, 100_000):
        one_device(length, 10_000)

    quieten()
    flowers(10, 10)  # imports, outside the clock
    theirs = measure(lambda: flowers(100, 10_000), repeats=2)
    print(f"\nFlower's SecAgg+, n = 100, d = 10,000: CPU {theirs.cpu:.2f} s, clock {theirs.wall:.2f} s")
    print(f"  {theirs.cpu / hundred.cpu:.1f} times ours (target: at least 25)\n")

    for devices, length in ((50, 10_000), (200, 10_000), (400, 10_000), (100, 1_000), (100, 30_000)):
        show("growth", devices, length, measure(lambda n=devices, d=length: ours(n, d)))  # type: ignore[misc]  # bound now
    if not options.quick:
        print()
        against_the_floor(10_000, 10_000, cores=options.cores, repeats=1)
    for devices in (1_000,) if options.quick else (1_000, 10_000):
        print(f"memory of a round with {devices:,} devices, 10,000 values: {memory(devices, 10_000)}", end="")


if __name__ == "__main__":
    main()
