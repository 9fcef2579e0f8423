"""Runs the cells of an experiment: splits them into tasks for the workers and keeps the results in the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fedhist import __version__
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import NotWritten
from fedhist.protocol.plugins import files_for, named_by
from fedhist.server.disk import new_file, why_refused
from fedhist.server.result_folder import NOT_PRIVATE_FILE
from fedhist.simulations.experiments import Counting
from fedhist.simulations.experiments.journal import Journal, open_journal
from fedhist.simulations.experiments.ray_tasks import OnRay
from fedhist.simulations.experiments.summaries import Summary, summarise
from fedhist.simulations.experiments.trials import Cell, CellTrials, Measured
from fedhist.simulations.experiments.user_sets import Store, UserSet
from fedhist.simulations.experiments.workers import run_tasks

NOT_PRIVATE = "NOT private: losses are measured against the true data, and no ledger is charged"
STORE = ".users"
Left = Mapping[tuple[str, int], Mapping[str, Cell]]
Done = Mapping[tuple[str, int], Mapping[str, float]]


@dataclass(frozen=True)
class Group:
    """Cells with the same number of trials."""

    cells: tuple[Cell, ...]
    trials: int


@dataclass(frozen=True)
class Experiment:
    """Cells and their numbers of trials. Trial i of a cell is a function of the seed, the cell and i alone."""

    seed: int
    groups: tuple[Group, ...]

    def description(self) -> dict[str, object]:
        """Everything that a trial depends on. The number of trials is not part of it: more may be added later."""
        cells = sorted({cell.key for group in self.groups for cell in group.cells})
        return {"fedhist": __version__, "seed": self.seed, "cells": cells, "plugins": self.plugins()}

    def plugins(self) -> list[str]:
        """The methods from outside that its cells use, by name and version."""
        settings = [cell.settings for group in self.groups for cell in group.cells]
        found = {name for one in settings for name in named_by(one.get("selector"), one.get("release"))}
        return sorted(found)


@dataclass(frozen=True)
class Results:
    """The measurements of a finished experiment."""

    done: Done
    experiment: Experiment

    def values(self, cell: Cell, name: str) -> list[float]:
        """One measurement of a cell, trial by trial."""
        trials = next(group.trials for group in self.experiment.groups if cell in group.cells)
        return [self.done[cell.key, trial][name] for trial in range(trials)]

    def summary(self, cell: Cell, name: str = "loss") -> Summary:
        """The summary of one measurement of a cell."""
        return summarise(self.values(cell, name))

    def gap(self, cell: Cell, other: Cell, name: str = "loss") -> Summary:
        """A measurement of one cell less the loss of another one over the same users, trial by trial."""
        pairs = zip(self.values(cell, name), self.values(other, "loss"), strict=True)
        return summarise([a - b for a, b in pairs])


@contextmanager
def working_folder(out: Path | None) -> Iterator[Path]:
    """The folder to work in: the user's, or a temporary one.

    A failure to write to the temporary folder is NotWritten and names the folder, because the user did not choose it.
    """
    if out is not None:
        yield out
        return
    place = "a temporary folder"
    try:
        with TemporaryDirectory(prefix="fedhist-") as folder:
            place = f"the temporary folder {folder}"
            yield Path(folder)
    except OSError as error:
        raise NotWritten(
            f"{place} can't be written ({why_refused(error)}): make room, or name a folder on another disk with --out "
            "or the environment variable TMPDIR"
        ) from None


def mark_not_private(folder: Path) -> None:
    """Mark the folder as not private before anything else is written to it."""
    mark = folder / NOT_PRIVATE_FILE
    if not mark.exists():
        with new_file(mark, force=True) as file:
            file.write(f"{NOT_PRIVATE}.\nDo not publish for real users' data.\n".encode())


def run_experiment(
    experiment: Experiment,
    folder: Path,
    populations: Mapping[UserSet, SparsePopulation],
    *,
    workers: int,
    counting: Counting,
    on_ray: OnRay | None = None,
) -> Results:
    """Run all trials that the folder's journal does not have yet, and return all results.

    Args:
        experiment: what to run.
        folder: the folder of the journal; the stored populations are removed at the end, also after an error.
        populations: the users of the sets that come from files.
        workers: the number of processes.
        counting: follows the progress.
        on_ray: runs the trials on Ray, in as many processes as it has cores; None runs them here.
    """
    with open_journal(folder, experiment.description()) as journal:
        mark_not_private(folder)
        store = Store(folder / STORE)
        # The remains of a killed run are not trusted.
        store.clear()
        left = _left(experiment, journal)
        total = sum(len(group.cells) * group.trials for group in experiment.groups)
        counting.begin(total, sum(map(len, left.values())))
        try:
            for users, population in populations.items() if left else ():
                store.put(users, population)
            for measured in _measured(experiment, left, store, workers=workers, on_ray=on_ray):
                journal.add(measured)
                counting.advance()
        finally:
            store.clear()
        return Results(dict(journal.done), experiment)


def _measured(
    experiment: Experiment,
    left: Left,
    store: Store,
    *,
    workers: int,
    on_ray: OnRay | None,
) -> Iterator[Measured]:
    """The missing trials, as they are finished."""
    if on_ray is None or not left:
        plugins = (
            files_for(experiment.plugins(), "worker processes (workers=1 needs none)") if workers > 1 else ()
        )
        yield from run_tasks(
            _tasks(experiment.seed, left, workers), store=store, workers=workers, plugins=plugins
        )
        return
    with on_ray.running(store) as cores:
        plugins = files_for(experiment.plugins(), "Ray's workers")
        yield from on_ray.run(_tasks(experiment.seed, left, cores), store=store, plugins=plugins)


def _left(experiment: Experiment, journal: Journal) -> Left:
    """The cells whose trial the journal does not have, by users and trial."""
    left: dict[tuple[str, int], dict[str, Cell]] = defaultdict(dict)
    for group in experiment.groups:
        for cell in group.cells:
            for trial in range(group.trials):
                if (cell.key, trial) not in journal.done:
                    left[cell.users.key, trial][cell.key] = cell
    return left


def _tasks(seed: int, left: Left, workers: int) -> list[CellTrials]:
    """The missing trials, in enough pieces for all workers."""
    pieces = 1 if len(left) >= 2 * workers else -(-2 * workers // max(len(left), 1))
    tasks = []
    for (_, trial), of_trial in left.items():
        cells = tuple(of_trial.values())
        size = -(-len(cells) // pieces)
        for first in range(0, len(cells), size):
            tasks.append(CellTrials(seed, trial, cells[first : first + size]))
    return tasks
