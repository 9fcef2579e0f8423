"""How many processes a pass over the users is spread over."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

from fedhist.client.files.memory import cores
from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    # It loads numpy, and these numbers are for help texts, too.
    from fedhist.protocol.histograms import Population

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
