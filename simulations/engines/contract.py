"""What every engine of a simulation is: a transport that also remembers what only a simulation may know."""

from __future__ import annotations

import multiprocessing
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fedhist.client.files.memory import cores
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.events import Observer, ignore

if TYPE_CHECKING:
    from fedhist.protocol.histograms import Population
    from fedhist.protocol.privacy.randomness import Source
    from fedhist.protocol.rounds import Request, Round, Total
    from fedhist.server.collection import RoundReport
    from fedhist.simulations.engines.passes import Crew, Tally
    from fedhist.simulations.faults import FaultAssignment, Faults

IN_PROCESS = "in-process"

ENGINES = {
    IN_PROCESS: "in_process:open_in_process",
    "ray": "ray:open_ray",
    "flower-simulation": "flower:open_flower_simulation",
}
"""Each engine's module and function, loaded when chosen because Flower and Ray are heavy."""

DEFAULT_NODES = 100
"""How many nodes users are spread over."""

ON_NODES = ("flower-simulation",)
"""Engines that spread the users over nodes."""

ON_RAY = ("ray", "flower-simulation")
"""Engines that run on Ray, here or on a cluster."""

WITHOUT_MASKS = ("ray",)
"""Engines that refuse masked plans."""


def without_masks(engine: str) -> InvalidInput:
    """For a masked plan on an engine that has no participants to mask anything."""
    return InvalidInput(
        f"the engine {engine} adds up parts of the users, which mask nothing",
        allowed=f"--masking with --engine {IN_PROCESS} or {', '.join(ON_NODES)}",
        advice=f"--engine {ON_NODES[0]} runs masked rounds on a Ray cluster",
        code="engine-without-masks",
    )


@dataclass(kw_only=True)
class SimulatedTransport(ABC):
    """A transport over a whole population.

    Args:
        faults: what goes wrong with nodes; None for nothing.
        spread_over: the number of nodes that the users are spread over; None for `DEFAULT_NODES`, or one for each user.
        assignment: which nodes are faulty; None until that is drawn.
        observe: called with the events of the rounds.
        totals: the exact totals of the rounds so far.
        bytes_per_user: how many bytes one user's own device would have sent; under masking, a participant.
        reports: what happened in the rounds so far; participants are nodes, or the process.
        crew: makes passes over all users where the engine does; None leaves them to this process.
        counts: whether users are counted on the way, so that their number can't be hidden.
        along: tallies that the next round's pass may add up on its way. An engine that does so takes them out and puts
            their sums into `found`, in the same order; others leave them.
    """

    faults: Faults | None = None
    spread_over: int | None = None
    assignment: FaultAssignment | None = field(default=None, repr=False)
    observe: Observer = ignore
    simulated: bool = True
    counts: bool = True
    totals: dict[Round, Total] = field(default_factory=dict, repr=False)
    bytes_per_user: dict[Round, int] = field(default_factory=dict)
    reports: dict[Round, RoundReport] = field(default_factory=dict)
    crew: Crew | None = field(default=None, repr=False)
    along: list[Tally[Any]] = field(default_factory=list, repr=False)
    found: list[Any] = field(default_factory=list, repr=False)

    @abstractmethod
    def total(self, request: Request) -> Total:
        """The sum of the requested measurement over the cohort."""

    def assigned(
        self, population: Population, nodes: int | None, *, source: Source
    ) -> FaultAssignment | None:
        """Which of these nodes are faulty, drawn once for all rounds; None without faults."""
        from fedhist.simulations.faults import FaultAssignment

        nodes = nodes or self.spread_over or min(DEFAULT_NODES, population.users)
        if self.faults and (self.assignment is None or self.assignment.nodes != nodes):
            self.assignment = FaultAssignment.drawn(self.faults, nodes, population.users, source=source)
        return self.assignment


class Engine(Protocol):
    """Opens a transport over a population; draws repeat themselves for the same seed, on every engine."""

    def __call__(
        self, population: Population, *, seed: int | None, observe: Observer = ignore
    ) -> AbstractContextManager[SimulatedTransport]:
        """The transport, until the block ends; it tells the observer what happens in the rounds."""


def engine_named(name: str, **options: float | str | Mapping[str, float]) -> Engine:
    """The engine of this name.

    Args:
        name: one of ENGINES.
        options: the engine's own settings: `nodes`, the number of nodes that users are spread over, on nodes and with
            faults; `dropout`, the share of the nodes that gives no answer in a round; `faulty`, shares of faulty nodes
            by kind, see `fedhist.simulations.faults`; `ray_address` for those on Ray, a cluster to join; and `workers`
            for in-process, the number of processes.
    """
    if name not in ENGINES:
        raise InvalidInput(f"unknown engine {name!r}", allowed=", ".join(ENGINES), code="unknown-engine")
    module, function = ENGINES[name].split(":")
    return partial(getattr(import_module(f"fedhist.simulations.engines.{module}"), function), **options)


MAX_WORKERS = 256
PAYS_FROM_USERS = 1_000_000
"""From this number of users on, all cores are used; public, unlike the data. `benchmarks/workers.py` tests it."""


def check_workers(workers: int | None) -> int:
    """The number of workers; None stands for one per core that this process may use."""
    if workers is None:
        return cores()
    if isinstance(workers, bool) or not (hasattr(workers, "__index__") and 1 <= workers <= MAX_WORKERS):
        raise InvalidInput(
            f"--workers is {workers}", allowed=f"a whole number from 1 to {MAX_WORKERS}", code="bad-workers"
        )
    return workers


def workers_for(population: Population, workers: int | None) -> int:
    """How many processes a pass over this population takes; None leaves it to the number of users."""
    wanted = check_workers(workers)
    if workers is None and population.users < PAYS_FROM_USERS:
        wanted = 1
    return 1 if why_alone(population) else min(wanted, population.users)


def why_alone(population: Population) -> str:
    """Why one process has to do it, for a sentence; empty where several can."""
    from fedhist.protocol.histograms import Divisible
    from fedhist.simulations.given_users import GivenUsers

    if isinstance(population, GivenUsers):
        return "parts would show how many users there are"
    if not isinstance(population, Divisible):
        return "the population has no method part()"
    return why_not_forked()


def why_not_forked() -> str:
    """Why no process can be forked here; empty where it can."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        # On macOS a forked process may crash in the system's own libraries.
        return f"processes can't be forked on {sys.platform}"
    if multiprocessing.current_process().daemon:
        return "this process is itself a worker of a pool"
    return ""


def worker_notes(population: Population, workers: int | None) -> list[str]:
    """What became of the number of workers that was asked for."""
    if workers is None or workers == 1 or not (why := why_alone(population)):
        return []
    return [f"--workers {workers} is not used, because {why}: one process does it all, with the same release"]
