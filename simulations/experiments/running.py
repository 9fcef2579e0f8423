"""Experiments: trials in one pool of processes, a row for each in a file that the next run goes on with."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedhist import __version__
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.plugins import named_by
from fedhist.server.disk import new_file
from fedhist.server.folder import NOT_PRIVATE_FILE
from fedhist.simulations.engines.workers import in_processes
from fedhist.simulations.experiments.choices import Counting
from fedhist.simulations.experiments.tables import Summary, summarise
from fedhist.simulations.experiments.trials import Cell, Trials, UserSet, Values

NOT_PRIVATE = "NOT private: losses are measured against the true data, and no ledger is charged"
TRIALS = "trials.jsonl"
Done = dict[tuple[str, int], Values]
"""The results of trials, by the key of their cell and their number."""


@dataclass(frozen=True)
class Group:
    """Cells with the same number of trials."""

    cells: tuple[Cell, ...]
    trials: int


@dataclass(frozen=True)
class Experiment:
    """Cells and their numbers of trials. Trial i of a cell is a function of the seed, the cell and i alone.

    Args:
        seed: of all trials.
        groups: the cells.
        alone: False if the file may have trials of other cells, too.
    """

    seed: int
    groups: tuple[Group, ...]
    alone: bool = True

    def settings(self) -> dict[str, object]:
        """What a trial depends on, in words of a refusal. The number of trials is not part of it: more may follow."""
        shared: dict[str, object] = {"version of fedhist": __version__, "seed": self.seed}
        if not self.alone:
            return shared
        cells = [cell for group in self.groups for cell in group.cells]
        used = {
            name
            for cell in cells
            for name in named_by(cell.settings.get("selector"), cell.settings.get("release"))
        }
        keys = " ".join(sorted({cell.key for cell in cells}))
        digest = hashlib.sha256(keys.encode()).hexdigest()
        return shared | {"version of plug-ins": sorted(used), "data or settings": digest}


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


def run_experiment(
    experiment: Experiment,
    folder: Path,
    populations: Mapping[UserSet, SparsePopulation],
    *,
    workers: int,
    counting: Counting,
) -> Results:
    """Run all trials that the folder's file does not have yet, and return all results.

    Args:
        experiment: what to run.
        folder: of the file.
        populations: the users of the sets that are the same in every trial.
        workers: the number of processes.
        counting: follows the progress.
    """
    with trial_file(folder, experiment.settings()) as (done, file):
        mark_not_private(folder)
        left: dict[tuple[str, int], dict[str, Cell]] = defaultdict(dict)
        for group in experiment.groups:
            for cell in group.cells:
                for trial in range(group.trials):
                    if (cell.key, trial) not in done:
                        left[cell.users.key, trial][cell.key] = cell
        counting.begin(
            sum(len(group.cells) * group.trials for group in experiment.groups), sum(map(len, left.values()))
        )
        # Enough tasks that every worker has some.
        pieces = 1 if len(left) >= 2 * workers else -(-2 * workers // max(len(left), 1))
        tasks = [
            (trial, tuple(cells.values())[piece::pieces])
            for (_, trial), cells in left.items()
            for piece in range(min(pieces, len(cells)))
        ]
        trials = Trials(experiment.seed, {users.key: whole for users, whole in populations.items()})

        def work(number: int) -> Iterator[tuple[str, int, Values]]:
            trial, cells = tasks[number]
            for cell, values in zip(cells, trials.run(trial, cells), strict=True):
                yield cell.key, trial, values

        for key, trial, values in in_processes(len(tasks), work, workers):
            file.write(json.dumps({"cell": key, "trial": trial, "values": values}).encode() + b"\n")
            file.flush()
            done[key, trial] = values
            counting.advance()
        return Results(done, experiment)


@contextmanager
def trial_file(folder: Path, settings: Mapping[str, Any]) -> Iterator[tuple[Done, IO[bytes]]]:
    """The trials of these settings that the folder has, and the file to add others to.

    A folder that holds anything else is refused and left as it is. A last line that a kill cut off is dropped.
    """
    make_folder(folder)
    header = json.dumps({"settings": settings}).encode() + b"\n"
    try:
        names = {path.name for path in folder.iterdir()}
        if names and TRIALS not in names:
            raise _something_else(folder)
        file = (folder / TRIALS).open("a+b")
    except OSError as error:
        raise _not_writable(folder, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidFile(
                f"another fedhist is at work in {folder}",
                allowed="one run in a folder at a time",
                advice="wait for it to end, or name another folder with --out",
                code="at-work",
            ) from None
        file.seek(0)
        text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        if not whole and header.startswith(text) and names <= {TRIALS}:
            whole = header
            file.truncate(0)
            file.write(header)
            file.flush()
        done = _rows(whole, folder, settings)
        file.truncate(len(whole))
        yield done, file


def _rows(whole: bytes, folder: Path, settings: Mapping[str, Any]) -> Done:
    first, *lines = whole.split(b"\n")[:-1] or [b""]
    try:
        found = json.loads(first)["settings"]
        others = [name for name in settings if found[name] != settings[name]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _something_else(folder) from None
    if others:
        raise _refused(
            f"the trials in {folder} were made with another {' and '.join(others)}",
            "a new folder, or the command with which this one was made",
            "other-settings",
        )
    try:
        return {(row["cell"], int(row["trial"])): dict(row["values"]) for row in map(json.loads, lines)}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise _refused(
            f"{folder / TRIALS} is damaged", "rows as fedhist writes them", "damaged-trials"
        ) from None


def make_folder(folder: Path) -> None:
    """Make the folder unless it exists; a place where it can't be made is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None


def mark_not_private(folder: Path) -> None:
    """Mark the folder as not private before anything else is written to it."""
    mark = folder / NOT_PRIVATE_FILE
    if not mark.exists():
        with new_file(mark, force=True) as file:
            file.write(f"{NOT_PRIVATE}.\nDo not publish for real users' data.\n".encode())


def _something_else(folder: Path) -> InvalidFile:
    problem = f"{folder} holds something other than an experiment"
    return _refused(problem, "a new folder, or that of the same experiment", "not-an-experiment")


def _not_writable(folder: Path, error: OSError) -> InvalidFile:
    return _refused(
        f"can't write into {folder} ({error.strerror or error})", "a writable folder", "not-writable"
    )


def _refused(problem: str, allowed: str, code: str) -> InvalidFile:
    return InvalidFile(problem, allowed=allowed, advice="name another folder with --out", code=code)
