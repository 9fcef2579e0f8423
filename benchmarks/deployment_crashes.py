"""Kill parts of a real deployment in the middle of runs, and check what is left.

    python benchmarks/deployment_crashes.py             # 8 kills: ServerApps, SuperNodes, and a SuperLink

`benchmarks/crashes.py` runs this too. Each kill costs a run or more of a deployment, so there are few. A ServerApp that
dies leaves an open run in the ledger; without a SuperNode, which dies with all that it started, the run goes on or
fails; a SuperLink that dies takes the deployment along, and a new one is started on the same ledger and memories.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from checks.aftermath import memory_faults
from crashes import Scene, Tally, Victim
from deployment_load import Load, prepare, processes_with

from fedhist.client.policy import Policy
from fedhist.protocol.errors import RoundFailed
from fedhist.simulations.deployment import Deployment, open_deployment, write_app

NODES, USERS = 2, 20
ROUND_SECONDS = 30.0
LIMIT_SECONDS = 180.0
# The ServerApp most often, because its moments matter most. The SuperLink last, because it takes the others along.
TURNS = ("ServerApp", "SuperNode", "ServerApp")


@dataclass
class Victims:
    """A deployment that is killed piece by piece, and the files that outlive it."""

    load: Load
    scene: Scene
    chance: random.Random
    known: int = 0

    def one(self, deployment: Deployment, kind: str, app: Path) -> None:
        """Submit a run, wait until it is in the ledger, kill at a random moment, look."""
        self.scene.kind, self.scene.number = kind, self.scene.number + 1
        deployment.submit(app, {"out": str(self.scene.out)})
        deployment.wait_until(
            lambda: len(self.scene.runs()) > self.known,
            "the run to reserve its budget",
            seconds=LIMIT_SECONDS,
        )
        time.sleep(self.chance.uniform(0, 10))
        kills = {"ServerApp": self.kill_server, "SuperNode": self.kill_node, "SuperLink": self.kill_link}
        died = kills[kind](deployment)
        # Only in the first case the run's own process was killed; else it ends by itself and may print so.
        self.look(Victim(said="", died=died and kind == "ServerApp", seconds=0), killed=died)

    def look(self, victim: Victim, *, killed: bool) -> None:
        """Check everything that outlives the processes."""
        self.scene.look(self.known, victim)
        if killed and not victim.died:
            self.scene.tally.note(self.scene.kind, "killed")
        self.known = len(self.scene.runs())
        for number, config in enumerate(self.load.nodes):
            memory = self.load.folder / f"node-{number}.memory"
            policy = Policy(max_epsilon=float(config["max-epsilon"]))
            self.scene.tally.wrong(self.scene.kind, memory_faults(memory, self.load.plan, policy))

    def kill_server(self, deployment: Deployment) -> bool:
        """Kill the ServerApp's process but not its parent; True if it was still there."""
        started = processes_with(deployment.folder / "homes" / "superlink")
        return kill_all(pid for pid, line in started.items() if "serverapp" in line)

    def kill_node(self, deployment: Deployment) -> bool:
        """Kill a SuperNode and its answers, as a power cut would; it comes back when the run has ended."""
        number = self.chance.randrange(NODES)
        name = f"node-{number}"
        deployment.kill(name)
        kill_all(processes_with(deployment.folder / "homes" / name))
        self.wait_for_end(deployment)
        self.wait_for_nodes(deployment, lambda online: online < NODES, "the node to be missed")
        deployment.start_node(name, self.load.nodes[number])
        self.wait_for_nodes(deployment, lambda online: online >= NODES, "the node to be back")
        return True

    def wait_for_nodes(self, deployment: Deployment, enough: Callable[[int], bool], what: str) -> None:
        """Wait until enough SuperNodes are online according to the SuperLink."""
        deployment.wait_until(lambda: enough(deployment.online()), what, seconds=LIMIT_SECONDS, pause=2.0)

    def kill_link(self, deployment: Deployment) -> bool:
        """Kill the SuperLink. Its ServerApp may live on, up to a limit."""
        deployment.kill("superlink")
        until = time.monotonic() + LIMIT_SECONDS / 3
        while self.scene.runs()[-1].status == "open" and time.monotonic() < until:
            time.sleep(0.5)
        return True

    def wait_for_end(self, deployment: Deployment) -> None:
        """Wait until the ledger knows how the run ended."""
        with suppress(RoundFailed):
            deployment.wait_until(
                lambda: self.scene.runs()[-1].status != "open", "the end of the run", seconds=LIMIT_SECONDS
            )


def kill_all(pids: Iterable[int]) -> bool:
    """Send SIGKILL; True if any process was there."""
    hit = False
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            hit = True
    return hit


def kill_deployment(folder: Path, kills: int, chance: random.Random, tally: Tally) -> None:
    """Kill this number of times; the last one, and every ninth, is a SuperLink, after which a new deployment starts."""
    folder.mkdir()
    load = prepare(folder, nodes=NODES, users=USERS, limit=10.0 * kills)
    load.settings = {
        **load.settings,
        "timeout": ROUND_SECONDS,
        "minimum-cohort": USERS // 2,
        "minimum-nodes": 1,
    }
    victims = Victims(load, Scene(folder, "ServerApp", chance, tally), chance)
    app = write_app(folder / "app", {**load.settings, "out": ""})
    left = kills
    while left:
        place = folder / f"deployment-{left}"
        place.mkdir()
        turns = cycle(TURNS)
        with open_deployment(place, load.nodes) as deployment:
            while left > 1 and left % 9:
                victims.one(deployment, next(turns), app)
                left -= 1
            victims.one(deployment, "SuperLink", app)
            left -= 1
        tally.wrong("SuperLink", [f"left running: {line}" for line in processes_with(place).values()])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="fedhist-crashes-", ignore_cleanup_errors=True) as name:
        chance = random.Random(arguments.seed)  # noqa: S311 - moments, not noise
        kill_deployment(Path(name).resolve() / "deployment", arguments.kills, chance, tally)
    tally.print()
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
