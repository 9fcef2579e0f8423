"""Many runs on one deployment, several at a time: what is released, what is left behind, and what grows.

    python benchmarks/deployment_load.py                # 200 runs on one node, two at a time
    python benchmarks/deployment_load.py --runs 10 --nodes 2 --at-once 3

A SuperLink and SuperNodes, tiny data and memory files, all on the loopback interface. All
runs charge one ledger file. The cost is the process for every answer: on one node a run is a `flwr run`, a ServerApp
and two answers, and each of these loads Flower again.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from checks.aftermath import ledger_faults, memory_faults, run_faults

from fedhist.client.policy import Policy
from fedhist.protocol.errors import FedhistError
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Limit
from fedhist.server.flower import read_settings
from fedhist.server.ledger.file import BudgetFile
from fedhist.simulations.deployment import Deployment, Value, open_deployment, write_app, write_example

# A SuperLink lists its runs for more than a second of a processor.
PAUSE_SECONDS = 4.0
SAID = re.compile(r"\b(?:[A-Z]\w*Error|RoundFailed|BudgetExceeded|InvalidFile|NotWritten)\b.*")


@dataclass
class Load:
    """A deployment under runs.

    Args:
        folder: the folder of all files.
        nodes: the nodes' own configurations.
        settings: the run-config that all runs share.
    """

    folder: Path
    nodes: Sequence[dict[str, Value]]
    settings: Mapping[str, Value]
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    outs: dict[str, Path] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    sizes: list[dict[str, int]] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """The ledger of all runs."""
        return self.folder / "ledger.db"

    @property
    def plan(self) -> Plan:
        """The plan of all runs."""
        return read_settings(self.settings).plan


def prepare(folder: Path, *, nodes: int, users: int, limit: float) -> Load:
    """Data for the nodes, a run-config, and a ledger with a limit."""
    settings, configs = write_example(folder, nodes=nodes, users=users)
    settings |= {"timeout": 60.0, "ledger": str(folder / "ledger.db"), "minimum-nodes": nodes}
    load = Load(folder, [config | {"max-epsilon": limit} for config in configs], settings)
    BudgetFile.open(load.ledger, create=True).set_limit(Limit(limit, 0.5))
    return load


def memory_of(deployment: Deployment) -> dict[str, int]:
    """The resident memory of the SuperLink and the SuperNodes in kilobytes."""
    found = {}
    for name, program in deployment.programs.items():
        text = Path(f"/proc/{program.pid}/status").read_text(encoding="utf-8")
        found[name] = int(text.split("VmRSS:")[1].split()[0])
    return found


def run_all(load: Load, deployment: Deployment, *, runs: int, at_once: int, until: float) -> None:
    """Keep `at_once` runs going until all are submitted or the time is up, and wait for the rest."""
    app = write_app(load.folder / "app", {**load.settings, "out": ""})
    going: set[str] = set()

    def submit(number: int) -> None:
        out = load.folder / f"result-{number}"
        began = time.monotonic()
        run = deployment.submit(app, {"out": str(out)})
        load.outs[run], load.began[run] = out, began
        going.add(run)

    submitted = 0
    with ThreadPoolExecutor(at_once) as pool:
        while submitted < runs or going:
            stop = time.monotonic() > until
            count = 0 if stop else min(at_once - len(going), runs - submitted)
            if stop and not going:
                break
            list(pool.map(submit, range(submitted, submitted + count)))
            submitted += count
            time.sleep(PAUSE_SECONDS)
            seen = deployment.statuses()
            for run in [run for run in going if seen.get(run, "").startswith("finished")]:
                load.statuses[run], load.ended[run] = seen[run], time.monotonic()
                going.discard(run)
                load.sizes.append(memory_of(deployment))
                if seen[run] != "finished:completed":
                    said = SAID.findall(deployment.log(run))
                    load.reasons[said[-1][:100] if said else seen[run]] += 1


def processes_with(folder: Path) -> dict[int, str]:
    """The processes that run with a Flower home in this folder, by their environment: command lines by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={folder}".encode() in (process / "environ").read_bytes():
                line = (process / "cmdline").read_text(encoding="utf-8", errors="replace")
                found[int(process.name)] = line.replace("\0", " ")
        except OSError:
            continue
    return found


def faults_of(load: Load) -> list[str]:
    """The disagreements between Flower, the ledger, the folders and the nodes' memories."""
    faults = ledger_faults(load.ledger)
    records = BudgetFile.open(load.ledger, create=False).runs()
    completed = [run for run, status in load.statuses.items() if status == "finished:completed"]
    released = [record for record in records if record.status == "released"]
    if len(completed) != len(released):
        faults.append(
            f"Flower completed {len(completed)} runs and the ledger has {len(released)} released ones"
        )
    for run in completed:
        # Runs that go on at once have no fixed order in the ledger; all released ones look alike.
        faults += run_faults(released[0] if released else None, load.outs[run], announced=True)
    for run in set(load.statuses) - set(completed):
        if load.outs[run].exists():
            faults.append(f"run {run} failed and left a folder")
    for number, config in enumerate(load.nodes):
        policy = Policy(max_epsilon=float(config["max-epsilon"]))
        faults += memory_faults(load.folder / f"node-{number}.memory", load.plan, policy)
    return faults


def report(load: Load, *, wall: float) -> list[str]:
    """Print the counts and return the faults."""
    ledger = BudgetFile.open(load.ledger, create=False)
    records = ledger.runs()
    by_status = Counter(record.status for record in records)
    each = load.plan.epsilon + load.plan.epsilon_select
    due = math.fsum(record.charged.epsilon for record in records)
    took = [load.ended[run] - load.began[run] for run in load.ended]
    print(f"runs submitted       {len(load.began):>8}")
    print(f"released             {by_status['released']:>8}")
    print(f"failed               {len(load.statuses) - by_status['released']:>8}")
    for reason, count in load.reasons.most_common():
        print(f"  {count} x {reason}")
    print(f"not ended in time    {len(load.began) - len(load.statuses):>8}")
    print(f"ledger               {ledger.spent().epsilon:>8.4g} spent")
    print(f"  by released runs   {by_status['released'] * each:>8.4g}")
    print(f"  by all charges     {due:>8.4g}")
    print(f"  held by open runs  {ledger.reserved().epsilon:>8.4g}")
    if took:
        print(
            f"seconds a run        {wall / len(took):>8.1f} of the machine, {median(took):.1f} from submission to end"
        )
    print(f"ledger file          {load.ledger.stat().st_size:>8,} bytes")
    for path in sorted(load.folder.glob("node-*.memory")):
        print(f"{path.name:<21}{path.stat().st_size:>8,} bytes")
    if len(load.sizes) > 1:
        first, last = load.sizes[min(4, len(load.sizes) // 2)], load.sizes[-1]
        between = len(load.sizes) - 1 - min(4, len(load.sizes) // 2)
        for name, size in last.items():
            growth = (size - first[name]) / max(between, 1)
            print(f"{name:<21}{size / 1024:>8.0f} MB resident, {growth:+.0f} KB a run over {between} runs")
    return faults_of(load)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--users", type=int, default=20, help="on each node")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no more runs are submitted")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedhist-load-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        load = prepare(folder, nodes=arguments.nodes, users=arguments.users, limit=2.0 * arguments.runs)
        try:
            with open_deployment(
                folder, load.nodes, tell=lambda text: print(text, file=sys.stderr)
            ) as deployment:
                started = time.monotonic()
                run_all(
                    load,
                    deployment,
                    runs=arguments.runs,
                    at_once=arguments.at_once,
                    until=started + 60 * arguments.minutes,
                )
                wall = time.monotonic() - started
        except FedhistError as problem:
            print(f"the deployment broke: {problem}", file=sys.stderr)
            return 1
        faults = report(load, wall=wall)
        left, partial = processes_with(folder), list(folder.glob(".*.partial"))
        print(f"left over            {len(left):>8} processes, {len(partial)} half-written folders")
        faults += [f"left running: {one}" for one in left.values()] + [f"left: {one.name}" for one in partial]
        for fault in faults:
            print(f"WRONG {fault}")
        print(f"{len(faults)} things wrong")
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
