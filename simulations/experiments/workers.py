"""Worker processes: they take tasks and return measurements as they come.

A worker is a fresh interpreter (never a fork of one with threads) at the other end of a pipe. It computes in one thread
and ends when the pipe is closed, so that a killed command leaves nothing running.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

from fedhist.protocol.errors import FedhistError
from fedhist.protocol.plugins import blamed, load_files_once
from fedhist.server.disk import held_off
from fedhist.simulations.experiments.trials import CellTrials, Measured, run_cells
from fedhist.simulations.experiments.user_sets import Store

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)
_ENDED = (
    "a worker process ended before its work was done, most likely for want of memory; use fewer --workers"
)


def run_tasks(
    tasks: Sequence[CellTrials], *, store: Store, workers: int, plugins: Sequence[str] = ()
) -> Iterator[Measured]:
    """All measurements of all tasks, in the order in which they are finished.

    Args:
        tasks: what to do.
        store: the users that are the same in every trial.
        workers: the number of processes; one means this one.
        plugins: the files with methods from outside that the tasks use.
    """
    if workers == 1 or len(tasks) <= 1:
        for task in tasks:
            yield from run_cells(task, store)
        return
    with _pool(min(workers, len(tasks)), store.folder, plugins) as pipes:
        yield from _collect(list(tasks), pipes)


def _collect(waiting: list[CellTrials], pipes: list[Connection]) -> Iterator[Measured]:
    waiting.reverse()
    busy = set()
    for pipe in pipes:
        with _alive():
            pipe.send(waiting.pop())
        busy.add(pipe)
    while busy:
        for ready in wait(list(busy)):
            pipe = cast(Connection, ready)
            with _alive():
                received = pipe.recv()
            match received:
                case Measured() as measured:
                    yield measured
                case None if waiting:
                    with _alive():
                        pipe.send(waiting.pop())
                case None:
                    busy.remove(pipe)
                case str() as problem:
                    raise FedhistError(f"a worker failed: {problem}", code="worker-failed")


@contextmanager
def _alive() -> Iterator[None]:
    """Talk to a worker, which must not have ended."""
    try:
        yield
    except (EOFError, ConnectionError):
        raise FedhistError(_ENDED, code="worker-ended") from None


@contextmanager
def _pool(size: int, folder: Path, plugins: Sequence[str]) -> Iterator[list[Connection]]:
    context = get_context("spawn")
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    # The tracker unblocks Ctrl-C when it starts; without this it would do so during the first process's start.
    resource_tracker.ensure_running()
    os.environ.update(ONE_THREAD)
    try:
        for _ in range(size):
            with held_off(starting=True):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, folder, plugins), daemon=True)
                with _script_left_alone():
                    process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
        yield pipes
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def _script_left_alone() -> Iterator[None]:
    """A process started in here does not run the caller's script once more, which may compare at its top level."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    main.__file__ = None
    try:
        yield
    finally:
        del main.__file__
        for name, value in kept.items():
            setattr(main, name, value)


def _work(pipe: Connection, folder: Path, plugins: Sequence[str]) -> None:
    """Do tasks until the pipe is closed. Ctrl-C is handled by the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = Store(folder)
    try:
        while True:
            task = cast(CellTrials, pipe.recv())
            try:
                load_files_once(plugins)
                for measured in run_cells(task, store):
                    pipe.send(measured)
                pipe.send(None)
            except Exception as problem:
                pipe.send(words_of(problem))
    except (EOFError, ConnectionError):
        return


def words_of(problem: Exception) -> str:
    """What a worker failed at, in words; a bug is raised as it is."""
    if isinstance(problem, FedhistError):
        return str(problem)
    if blame := blamed(problem):
        return blame
    if isinstance(problem, MemoryError | ArithmeticError | ValueError | OSError):
        return f"{type(problem).__name__}: {problem}"
    raise problem
