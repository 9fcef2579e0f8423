"""Which Ray is used: one of our own on this machine, or, when asked, a cluster whose machines see the users.

Left to itself, Ray joins whatever cluster `RAY_ADDRESS` names or the machine remembers. A worker there that has no
access to the users' folder answers nothing, so a cluster is joined on request only, and checked first.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

from fedhist import __version__
from fedhist.protocol.errors import FedhistError, InvalidInput, RoundFailed
from fedhist.protocol.masking.crypto import draw_bytes
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.simulations.engines.quiet import quieten

LOCAL = "local"
MARKER = "marker.bin"
"""A file of random bytes beside the users: a machine that knows its digest has read the same folder."""

_ADDRESS = re.compile(r"auto|[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MARKER_BYTES = 32
_PROBE_SECONDS = 120.0
_STOP_SECONDS = 20.0
_SETTINGS = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}


def check_address(address: str | None) -> None:
    """Refuse what is not the address of a Ray cluster."""
    if address is not None and not _ADDRESS.fullmatch(address):
        raise InvalidInput(
            f"{address!r} is not a Ray address",
            allowed="HOST:PORT of a cluster that this machine belongs to, or auto for the one in RAY_ADDRESS or "
            "recorded on this machine",
            advice="leave it out to start a Ray of its own on this machine",
            code="bad-address",
        )


def init_args(address: str | None) -> dict[str, Any]:
    """What Ray is started with. Without an address it is always a new one."""
    return _SETTINGS | {"address": LOCAL if address is None else address}


def on_loopback(address: str | None) -> bool:
    """Whether Ray stays on the loopback interface: a Ray of our own does, and a cluster with a loopback address."""
    return address is None or address.rpartition(":")[0] in _LOOPBACK


def check_installed() -> None:
    """Refuse to go on without Ray."""
    if find_spec("ray") is None:
        raise InvalidInput(
            "Ray is not installed",
            allowed="the extra 'simulation'",
            advice="pip install 'fedhist[simulation]'",
        )


@contextmanager
def ray_running(address: str | None, marker: Path | None) -> Iterator[None]:
    """Ray inside the block, see `start_ray`; quiet, and gone or left at its end."""
    check_installed()
    check_address(address)
    quieten(loopback=on_loopback(address))
    started: Queue[BaseException | None] = Queue()
    over = Event()

    def run() -> None:
        """In a thread of its own: in the main one Ray would take the signals. Ray's processes end with the thread."""
        import ray

        try:
            start_ray(address, marker)
        except BaseException as problem:
            started.put(problem)
        else:
            started.put(None)
            over.wait()
        ray.shutdown()

    thread = Thread(target=run, name="ray", daemon=True)
    thread.start()
    try:
        problem = started.get()
        if isinstance(problem, FedhistError):
            raise problem
        if problem is not None:
            raise RoundFailed(
                f"Ray could not be started ({type(problem).__name__}); nothing was released"
            ) from problem
        yield
    finally:
        over.set()
        thread.join(_STOP_SECONDS)


def start_ray(address: str | None, marker: Path | None) -> None:
    """Start Ray here, or join the cluster at the address once all its machines see the users.

    Flower uses the Ray that its process is connected to. Not for the main thread, where Ray would take the signals.

    Args:
        address: of a cluster, see `check_address`; None starts a Ray of our own.
        marker: a file beside the users, see `mark`; None where users are made and not read.
    """
    import ray

    check_address(address)
    if ray.is_initialized():
        raise InvalidInput(
            "this process is connected to Ray already",
            allowed="a process without Ray, in which the simulation starts its own",
            advice="call ray.shutdown() first",
        )
    # As Flower does it: workers import what this process can import.
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    try:
        ray.init(runtime_env=environment, **init_args(address))
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address is None:
            raise
        raise InvalidInput(
            f"no Ray cluster could be joined at {address}",
            allowed="the address of a running cluster that this machine belongs to",
            advice="write the address that 'ray start' printed, or leave --ray-address out",
        ) from error
    if address is not None:
        _check_machines(marker)


def ray_cores() -> int:
    """The number of cores of the Ray that this process is connected to."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call] # Ray has no types here


def mark(folder: Path) -> Path:
    """A new marker in this folder."""
    marker = folder / MARKER
    marker.write_bytes(draw_bytes(_MARKER_BYTES, source=SystemSource()))
    return marker


def _check_machines(marker: Path | None) -> None:
    """Refuse a cluster with a machine that can't read the marker, or has not this version of fedhist."""
    digest = "" if marker is None else sha256(marker.read_bytes()).hexdigest()
    for address, problem in machines_with_problems(marker, digest):
        raise InvalidInput(
            f"the machine {address} of the Ray cluster {problem}",
            allowed="machines that all read the users' folder and have the same version of fedhist",
            advice="name a folder that all machines share in TMPDIR and install this fedhist on each, or leave "
            "--ray-address out",
        )


def machines_with_problems(marker: Path | None, digest: str) -> list[tuple[str, str]]:
    """The address of each machine that can't take part, and the reason. A task asks each that has a CPU for a worker.

    Args:
        marker: a file that all should be able to read; None for none.
        digest: its SHA-256 in hexadecimal digits.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(_probe())
    asked = []
    for node in ray.nodes():  # type: ignore[no-untyped-call] # Ray has no types here
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answer = task.options(scheduling_strategy=there).remote(str(marker or ""), digest, __version__)
            asked.append((node["NodeManagerAddress"], answer))
    problems = []
    for address, answer in asked:
        try:
            problem = ray.get(answer, timeout=_PROBE_SECONDS)
        except ray.exceptions.RayError as error:
            problem = f"did not answer ({type(error).__name__})"
        if problem:
            problems.append((address, problem))
    return problems


def _probe() -> Callable[[str, str, str], str]:
    """The task. A function inside a function travels as code, so that it also runs where there is no fedhist."""

    def problem_here(marker: str, digest: str, wanted: str) -> str:
        import hashlib
        import importlib
        import pathlib

        path = pathlib.Path(marker)
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest() if marker else digest
        except OSError as error:
            return f"can't read the users' folder {path.parent} ({type(error).__name__})"
        if found != digest:
            return f"sees another folder {path.parent}"
        try:
            importlib.import_module("fedhist.client.flower")
            installed = importlib.import_module("fedhist").__version__
        except ImportError as error:
            return f"can't import fedhist ({type(error).__name__})"
        return "" if installed == wanted else f"has fedhist {installed} and not {wanted}"

    return problem_here
