"""The tasks of an experiment on Ray: on all cores of this machine, or of a cluster whose machines see the folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import FedhistError
from fedhist.protocol.plugins import load_files_once
from fedhist.simulations.engines.ray_engine import RETRIES
from fedhist.simulations.engines.ray_runtime import mark, ray_cores, ray_running
from fedhist.simulations.experiments.trials import CellTrials, Measured, run_cells
from fedhist.simulations.experiments.user_sets import Store
from fedhist.simulations.experiments.workers import words_of

# A core has its next task before it is done with the last.
_AHEAD = 2


@dataclass(frozen=True)
class OnRay:
    """Where the tasks run: the cluster at this address; None for a Ray on this machine."""

    address: str | None = None

    @contextmanager
    def running(self, store: Store) -> Iterator[int]:
        """Ray inside the block; its number of cores. All machines must see the store."""
        store.make()
        with ray_running(self.address, mark(store.folder)):
            yield ray_cores()

    def run(self, tasks: Sequence[CellTrials], *, store: Store, plugins: Sequence[str]) -> Iterator[Measured]:
        """All measurements of all tasks, in the order in which tasks are finished. Lost ones are done again."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_one)
        waiting, running = deque(tasks), set[Any]()
        most = _AHEAD * ray_cores()
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    running.add(task.remote(waiting.popleft(), store.folder.absolute(), tuple(plugins)))
                ready, _ = ray.wait(list(running), num_returns=1)
                for one in ready:
                    running.discard(one)
                    found: list[Measured] | str = ray.get(one)
                    if isinstance(found, str):
                        raise FedhistError(f"a worker failed: {found}")
                    yield from found
        except ray.exceptions.RayError as error:
            raise FedhistError(
                f"a task was lost on Ray and could not be done again ({type(error).__name__}), most likely for want "
                "of memory; free some, or add machines"
            ) from None


def run_one(task: CellTrials, folder: Path, plugins: tuple[str, ...]) -> list[Measured] | str:
    """On Ray: the measurements of one task, or what went wrong."""
    try:
        load_files_once(plugins)
        return list(run_cells(task, _store(folder)))
    except Exception as problem:
        return words_of(problem)


@lru_cache(maxsize=1)
def _store(folder: Path) -> Store:
    """Opened once in each process, which does many tasks."""
    return Store(folder)
