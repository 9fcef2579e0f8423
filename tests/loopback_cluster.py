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

from tests.support.api import LOOPBACK

BIN = Path(sys.executable).parent
SECONDS = 120.0

# One more raylet of one core, as Ray's own tests start it: `ray start` wants an address beyond this machine for it.
RAYLET = """
import signal, sys
from ray._private.node import Node
from ray._private.parameter import RayParams

Node(
    RayParams(
        gcs_address=sys.argv[1], node_ip_address="127.0.0.1", num_cpus=1, object_store_memory=150 * 2**20,
        node_manager_port=0, min_worker_port=0, max_worker_port=0, include_log_monitor=False,
        dashboard_agent_listen_port=None,
    ),
    head=False, shutdown_at_exit=False, spawn_reaper=False,
)
signal.pause()
"""


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
        for number in range(raylets):
            raylet = _process(stack, temporary, [sys.executable, "-c", RAYLET, address])
            cluster.raylets.append(raylet)
            # It has a socket when it is up. One after the other, or two would take the same name for it.
            while len(list((cluster.logs.parent / "sockets").glob("raylet*"))) < number + 2:
                assert raylet.poll() is None, (temporary / "start.log").read_text()
                assert monotonic() < until
                sleep(0.1)
        yield cluster


def _started(stack: ExitStack, temporary: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    start = [str(BIN / "ray"), "start", "--block", "--node-ip-address", "127.0.0.1", "--disable-usage-stats"]
    return _process(stack, temporary, [*start, *arguments])


def _process(stack: ExitStack, temporary: Path, command: list[str]) -> subprocess.Popen[bytes]:
    told = stack.enter_context((temporary / "start.log").open("ab"))
    start = subprocess.Popen(
        command,
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
