"""The cohort on a Ray cluster: parts of the users are tasks, and what they sum is added up in a tree of tasks.

A part's sums stay on the machine that made them. Each machine adds up its own, then the machines' sums are added up,
and this process fetches one sum. Ray does a lost task again, elsewhere. A sum carries the numbers of its parts: no task
takes a part twice, and the last one has every part.

Users lie in files that all machines see, or are made where they are summed. Ray is one of our own on this machine or,
when asked, a cluster. Left to itself, Ray joins whatever cluster `RAY_ADDRESS` names or the machine remembers. A worker
there that has no access to the users' folder answers nothing, so a cluster is joined on request only and checked first.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - between a run and its own workers
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any, cast

from fedhist import __version__
from fedhist.protocol.errors import FedhistError, InvalidInput, RoundFailed
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.histograms import Divisible, Population
from fedhist.protocol.masking.crypto import draw_bytes
from fedhist.protocol.plugins import files_for, load_files_once
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Request, Total
from fedhist.simulations.datasets.mapped_files import write_mapped
from fedhist.simulations.engines.contract import SimulatedTransport, without_masks
from fedhist.simulations.engines.in_process import checked_nodes, device_source, plain_round
from fedhist.simulations.engines.passes import (
    Answers,
    Seen,
    Tally,
    alone,
    block_of,
    check_part,
    split,
    unseen,
)
from fedhist.simulations.engines.quiet import quieten
from fedhist.simulations.engines.workers import portable
from fedhist.simulations.faults import FaultyAnswers, faults_of

# So that a machine that is faster, or comes later, takes more of them.
_PARTS_EACH = 4
_FAN_IN = 8
RETRIES = 10
"""How often a task whose machine or process is lost is done again."""


@dataclass
class RayTransport(SimulatedTransport):
    """A transport over a population on a cluster."""

    population: Population
    source: Source

    def total(self, request: Request) -> Total:
        """The sum over all parts."""
        if request.plan.is_masked:
            raise without_masks("ray")
        return plain_round(self, request, self.population, source=self.source)


@contextmanager
def open_ray(
    population: Population,
    *,
    seed: int | None,
    dropout: float = 0.0,
    faulty: Mapping[str, float] | None = None,
    nodes: int | None = None,
    ray_address: str | None = None,
    observe: Observer = ignore,
) -> Iterator[RayTransport]:
    """A transport over the population on Ray, until the block ends.

    Args:
        population: all users. One that does not travel is written to a temporary folder, which all machines must see.
        seed: of the users' draws; None draws from the operating system of each machine.
        dropout: the share of the nodes that gives no answer in a round.
        faulty: shares of faulty nodes by kind. Parts are no nodes: this process has the faulty ones.
        nodes: the number of nodes that may be faulty; None for 100, or one for each user.
        ray_address: of a cluster to join; None starts a Ray on this machine alone.
        observe: called with the events of the rounds.
    """
    source = device_source(seed)
    faults = faults_of(dropout, faulty)
    with ExitStack() as stack:
        if getattr(population, "travels", False):
            spread, marker = cast(Divisible, population), getattr(population, "marker", None)
        else:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="fedhist-parts-"))
            spread, marker = write_mapped(population, Path(name)), mark(Path(name))
        stack.enter_context(ray_running(ray_address, marker))
        yield RayTransport(
            population,
            source,
            faults=faults,
            spread_over=checked_nodes(population, nodes),
            observe=observe,
            counts=bool(dropout or faulty),
            crew=RayCrew(spread),
        )


@dataclass(frozen=True)
class _Work:
    """What a pass is about, for every task of it.

    Args:
        plugins: files with the methods that the pickles may need; loaded before they are read.
        population, tallies: pickled.
    """

    plugins: tuple[str, ...]
    population: bytes
    tallies: bytes

    def read(self) -> tuple[Divisible, list[Tally[Any]]]:
        """The users and what is added up, where they are needed."""
        load_files_once(self.plugins)
        return pickle.loads(self.population), pickle.loads(self.tallies)  # noqa: S301 - from our own driver


@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums over some parts, by their numbers."""

    parts: tuple[int, ...]
    users: int
    of: list[Any]


@dataclass(frozen=True)
class _Receipt:
    """What the driver hears of a task: the machine that has the sums, or what went wrong, pickled."""

    machine: str
    problem: bytes = b""


class RayCrew:
    """Passes over a population on the Ray that this process is connected to."""

    def __init__(self, population: Divisible) -> None:
        self._users, self._block = population.users, block_of(population)
        self._population = pickle.dumps(population)

    def __call__(self, tallies: Sequence[Tally[Any]], seen: Seen = unseen) -> list[Any]:
        """The sums over all users. RoundFailed if a part can't be done, however often it is tried."""
        import ray

        asked = [tally.request.plan for tally in tallies if isinstance(tally, Answers | FaultyAnswers)]
        plugins = files_for([name for plan in asked for name in plan.plugins], "Ray's workers")
        parts = split(self._users, _PARTS_EACH * ray_cores(), block=self._block)
        work = ray.put(_Work(plugins, self._population, pickle.dumps(list(tallies))))
        try:
            total = ray.get(_Tree(work).grown(parts, seen))
        except ray.exceptions.RayError as error:
            raise RoundFailed(
                f"parts of the users were lost on Ray and could not be done again ({type(error).__name__}), most "
                "likely because memory ran out; nothing was released. Free some memory, or add machines"
            ) from None
        if sorted(total.parts) != list(range(len(parts))) or total.users != self._users:
            raise RoundFailed(
                f"the sum on Ray is of {len(total.parts):,} parts with {total.users:,} users, and there are "
                f"{len(parts):,} parts with {self._users:,} users; nothing was released"
            )
        return list(total.of)


class _Tree:
    """Tasks that sum parts, and tasks that add up sums: first those on one machine, then those of all."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._add = _task(add_sums)
        # Which machine will have the sums of a receipt's task, and the number of users that it reads.
        self._sums: dict[Any, tuple[Any, int]] = {}
        self._done: dict[str, list[Any]] = defaultdict(list)

    def grown(self, parts: Sequence[tuple[int, int]], seen: Seen) -> Any:
        """A reference to the sum over all parts."""
        import ray

        of_part = _task(sum_part)
        for number, (start, stop) in enumerate(parts):
            sums, receipt = of_part.remote(self._work, number, start, stop)
            self._sums[receipt] = (sums, stop - start)
        while self._sums:
            ready, _ = ray.wait(list(self._sums), num_returns=1)
            for receipt in ready:
                self._take(receipt, seen)
        left = [sums for of_machine in self._done.values() for sums in of_machine]
        while len(left) > 1:
            left = [self._added(left[first : first + _FAN_IN]) for first in range(0, len(left), _FAN_IN)]
        return left[0]

    def _take(self, receipt: Any, seen: Seen) -> None:
        """A task is done: its sums wait for others of the same machine."""
        import ray

        sums, users = self._sums.pop(receipt)
        told: _Receipt = ray.get(receipt)
        if told.problem:
            raise pickle.loads(told.problem)  # noqa: S301 - from our own tasks
        if users:
            seen(users)
        waiting = self._done[told.machine]
        waiting.append(sums)
        if len(waiting) >= _FAN_IN:
            added, another = self._add.remote(self._work, *waiting)
            self._sums[another] = (added, 0)
            waiting.clear()

    def _added(self, sums: Sequence[Any]) -> Any:
        return sums[0] if len(sums) == 1 else self._add.remote(self._work, *sums)[0]


@cache
def _task(function: Any) -> Any:
    """A function as a task that gives sums, which stay where they are, and a receipt, which the driver reads."""
    import ray

    return ray.remote(num_cpus=1, num_returns=2, max_retries=RETRIES)(function)


def sum_part(work: _Work, number: int, start: int, stop: int) -> tuple[_Sums | None, _Receipt]:
    """A task: the sums over one part."""
    try:
        population, tallies = work.read()
        users = 0

        def seen(more: int) -> None:
            nonlocal users
            users += more

        sums = alone(population.part(start, stop), tallies, seen)
        check_part(start, stop, users)
    except Exception as problem:
        return None, _Receipt("", portable(problem))
    return _Sums((number,), users, sums), _Receipt(_machine())


def add_sums(work: _Work, *sums: _Sums) -> tuple[_Sums | None, _Receipt]:
    """A task: the sums over all parts of several sums."""
    try:
        _, tallies = work.read()
        parts = tuple(part for one in sums for part in one.parts)
        if len(set(parts)) < len(parts):
            raise RoundFailed(
                "a part of the users was summed twice on Ray; nothing was released", code="summed-twice"
            )
        added = [tally.plus([one.of[place] for one in sums]) for place, tally in enumerate(tallies)]
    except Exception as problem:
        return None, _Receipt("", portable(problem))
    return _Sums(parts, sum(one.users for one in sums), added), _Receipt(_machine())


def _machine() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


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
