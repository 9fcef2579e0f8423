"""A Ray cluster on the loopback interface of this machine, of one raylet or several, that is not ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from fedhist.simulations.engines.quiet import LOOPBACK

BIN = Path(sys.executable).parent
SECONDS = 120.0


def environment(home: Path, **more: str) -> dict[str, str]:
    """Of a process that knows nothing of Flower and Ray but this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR", "RAY"))}
    return kept | {"FLWR_HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"} | more


@dataclass
class Cluster:
    """A running cluster.

    Args:
        address: where to join it.
        logs: the folder of its logs.
        raylets: the leaders of the process groups of the raylets beside the first.
    """

    address: str
    logs: Path
    raylets: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill(self, number: int) -> None:
        """A machine is lost: a raylet with all its workers."""
        _end(self.raylets[number])


@contextmanager
def loopback_cluster(temporary: Path, *, raylets: int = 0, cores: int = 2) -> Iterator[Cluster]:
    """A cluster that this machine remembers below `temporary`, a short path: one raylet, and more of a core each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*free.getsockname())
    with ExitStack() as stack:
        head = ["--head", "--port", address.partition(":")[2], "--include-dashboard", "false"]
        first = _started(
            stack, temporary, [*head, "--temp-dir", str(temporary / "ray"), "--num-cpus", str(cores)]
        )
        until = monotonic() + SECONDS
        while not (temporary / "ray" / "ray_current_cluster").exists():
            assert first.poll() is None, (temporary / "start.log").read_text()
            assert monotonic() < until
            sleep(0.1)
        cluster = Cluster(address, (temporary / "ray" / "session_latest" / "logs").resolve())
        for _ in range(raylets):
            more = ["--address", address, "--num-cpus", "1"]
            cluster.raylets.append(_started(stack, temporary, more))
        yield cluster


def _started(stack: ExitStack, temporary: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    told = stack.enter_context((temporary / "start.log").open("ab"))
    start = subprocess.Popen(
        [
            *(str(BIN / "ray"), "start", "--block", "--node-ip-address", "127.0.0.1"),
            *("--disable-usage-stats", *arguments),
        ],
        env=environment(temporary, **{LOOPBACK: "0"}),
        stdout=told,
        stderr=told,
        start_new_session=True,
    )
    stack.callback(_end, start)
    return start


def _end(start: subprocess.Popen[bytes]) -> None:
    """The group that it leads, and nobody else: its own answer to a polite signal is to wait."""
    if start.poll() is None:
        os.killpg(start.pid, signal.SIGKILL)
        start.wait(30)
