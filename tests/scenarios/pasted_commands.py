"""The shell blocks of a page as a reader would paste them, on a Flower for which nothing is set.

What is replaced, and nothing else: the home folder; the network, by a proxy that notes who is asked for and refuses;
and where Flower and Ray listen, by the loopback interface and free ports.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from leftovers import ends_soon, processes_of

from tests.support.api import LOOPBACK, free_ports

# Telemetry, Flower's search for updates, and Ray's for the cloud that it may be in. They get no answer here, and
# nothing waits for one. No package index is among them.
FLOWER_AND_RAY = {
    *("telemetry.flower.ai", "api.flower.ai", "usage-stats.ray.io"),
    *("metadata.google.internal", "169.254.169.254"),
}

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="the machine has no /proc to look for leftovers in"
)


def shell_blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def with_free_ports(script: str) -> str:
    """The script with other ports than 9093 and 910N."""
    for shown, used in {"9093": str(free_ports(1)[0]), "910$": f"{free_tens()}$"}.items():
        assert shown in script
        script = script.replace(shown, used)
    return script


def free_tens() -> int:
    """The digits before the last of ports that nobody uses, for three nodes or more."""
    taken = set(re.findall(r":([0-9A-F]{4}) ", Path("/proc/net/tcp").read_text(encoding="utf-8")))
    used = {int(port, 16) // 10 for port in taken}
    return next(port // 10 for port in free_ports(100) if port // 10 not in used and port < 65_530)


@contextmanager
def closed_network() -> Iterator[tuple[str, set[str]]]:
    """A proxy that refuses everything: its address, and whom it was asked for."""
    asked: set[str] = set()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            # Closing the server ends this.
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError, IndexError):
                        asked.add(host_in(connection.recv(4096).split()[1].decode()))
                        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        yield "http://{}:{}".format(*server.getsockname()), asked
        server.shutdown(socket.SHUT_RDWR)


def host_in(target: str) -> str:
    """Of an address, or of `host:port`, as a proxy is given them."""
    return urlsplit(target if "://" in target else f"//{target}").hostname or target


def pasted(script: str, home: Path, *, cwd: Path, seconds: float) -> str:
    """What bash prints for the script, which may leave only Flower's own local SuperLink running.

    All that it has started is gone afterwards, however it ends.
    """
    printed = home / "printed.txt"
    http, control = free_ports(2)
    with closed_network() as (proxy, asked):
        environment = {
            "HOME": str(home),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
            "LANG": "C.UTF-8",
            **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy),
            **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
            "FLWR_LOCAL_CONTROL_API_PORT": str(control),
            LOOPBACK: "0",
        }
        try:
            with printed.open("w", encoding="utf-8") as out:
                done = subprocess.run(
                    ["bash", "-c", f"set -euo pipefail\n{script}"],
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=seconds,
                    check=False,
                )
            text = printed.read_text(encoding="utf-8")
            assert done.returncode == 0, text[-3000:]
            assert ends_soon(lambda: left_running(home, http)), "the page leaves processes behind"
        finally:
            for pid in processes_of(home):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert asked <= FLOWER_AND_RAY, asked
    return text


def left_running(home: Path, local: int) -> list[str]:
    """All but the SuperLink at this port and what it has started."""
    return [command for command in processes_of(home).values() if f"{local}" not in command]
