"""How long the others wait when a part of a deployment dies, and what it leaves.

    python benchmarks/deployment_waits.py               # about five minutes on two cores
    python benchmarks/deployment_waits.py --database    # with a SuperLink that remembers

Three SuperNodes on the loopback interface. First a run with all of them; then one in which a node is killed with all
that it started, as by a power cut, when the run begins; then one in which the SuperLink is killed when the nodes have
begun to answer, and started again. docs/deployment-failures.md quotes what it prints.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deployment_crashes import kill_all
from deployment_load import Load, prepare, processes_with

from fedhist.client.memory_file import MemoryFile
from fedhist.server.ledger.file import BudgetFile
from fedhist.simulations.deployment import Deployment, open_deployment, write_app

NODES, USERS = 3, 20
LIMIT_SECONDS = 400.0
WATCH_SECONDS = 45.0


def submit(load: Load, deployment: Deployment, app: Path, name: str, *, nodes: int) -> str:
    """Submit a run and wait until it is in the ledger, just before it asks the nodes; its number."""
    known = len(BudgetFile.open(load.ledger, create=False).runs())
    run = deployment.submit(app, {"out": str(load.folder / name), "minimum-nodes": nodes})
    deployment.wait_until(
        lambda: len(BudgetFile.open(load.ledger, create=False).runs()) > known,
        "the run to reserve its budget",
        seconds=LIMIT_SECONDS,
    )
    return run


def rounds(deployment: Deployment, run: str) -> str:
    """What a run says of its rounds, once it has ended well."""
    deployment.wait(run, seconds=LIMIT_SECONDS)
    return "; ".join(re.findall(r"round (\w+: \d+ of \d+ nodes.*)$", deployment.log(run), re.MULTILINE))


def spent(load: Load) -> list[float]:
    """What each node's memory counts."""
    memories = [load.folder / f"node-{number}.memory" for number in range(NODES)]
    return [MemoryFile(path).read().spent.epsilon if path.exists() else 0.0 for path in memories]


def node_dies(load: Load, deployment: Deployment, app: Path) -> None:
    """Kill the last node as a run begins."""
    run = submit(load, deployment, app, "node-dies", nodes=NODES)
    node = f"node-{NODES - 1}"
    deployment.kill(node)
    kill_all(processes_with(deployment.folder / "homes" / node))
    print(f"a node dies           {rounds(deployment, run)}")


def link_dies(load: Load, deployment: Deployment, app: Path) -> None:
    """Kill the SuperLink in the middle of a run, watch, and start it again."""
    before = spent(load)
    submit(load, deployment, app, "link-dies", nodes=NODES - 1)
    deployment.wait_until(lambda: spent(load) != before, "a node to begin its answer", seconds=LIMIT_SECONDS)
    others = [f"node-{number}" for number in range(NODES - 1)]
    home = deployment.folder / "homes" / "superlink"
    server = {pid for pid, line in processes_with(home).items() if "serverapp" in line}
    parts: dict[str, Callable[[], bool]] = {
        name: lambda node=deployment.programs[name]: node.poll() is None for name in others
    }
    parts["ServerApp"] = lambda: not server.isdisjoint(processes_with(home))
    deployment.kill("superlink")
    print("the SuperLink dies")
    watch(parts)
    record = BudgetFile.open(load.ledger, create=False).runs()[-1]
    print(f"  the run             {record.status}, epsilon {record.counted.epsilon:g} counted")
    print(f"  spent by the nodes  {', '.join(f'{one:g}' for one in spent(load))}")
    deployment.start_link()
    print(f"it is back, with {'a database' if deployment.database else 'nothing but its memory'}")
    watch({name: parts[name] for name in others})
    if not all(parts[name]() for name in others):
        return
    run = submit(load, deployment, app, "link-back", nodes=NODES - 1)
    print(f"  a new run           {rounds(deployment, run)}")


def watch(parts: Mapping[str, Callable[[], bool]]) -> None:
    """Print which parts end within WATCH_SECONDS, and when."""
    began, ended = time.monotonic(), dict[str, float]()
    while (now := time.monotonic() - began) < WATCH_SECONDS:
        ended |= {name: now for name, runs in parts.items() if name not in ended and not runs()}
        time.sleep(0.1)
    for name in parts:
        after = f"ends after {ended[name]:.0f} s" if name in ended else f"runs after {WATCH_SECONDS:.0f} s"
        print(f"  {name:<18}  {after}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", action="store_true", help="let the SuperLink keep its state in a file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedhist-waits-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve() / "deployment"
        folder.mkdir()
        load = prepare(folder, nodes=NODES, users=USERS, limit=10.0)
        settings = {**load.settings, "timeout": LIMIT_SECONDS, "minimum-cohort": USERS, "out": ""}
        app = write_app(folder / "app", settings)
        place = folder / "deployment"
        place.mkdir()
        database = folder / "superlink.db" if arguments.database else None
        with open_deployment(place, load.nodes, database=database) as deployment:
            run = submit(load, deployment, app, "alive", nodes=NODES)
            print(f"all alive             {rounds(deployment, run)}")
            node_dies(load, deployment, app)
            link_dies(load, deployment, app)
    return 0


if __name__ == "__main__":
    sys.exit(main())
