"""Work in several forked processes, which see what is in memory without a copy: passes over all users, and trials.

The processes are forked once, for all passes of a run: a fork copies the page tables of this process, which takes as
long as a pass over a small population. In a pass a worker is handed a part of the users at a time, says when it is done
with it, and sends its sums at the end, so a part is in one worker's sums or the pass has failed. It uses numpy alone,
and no lock that another thread of this process may have held at the fork. It ends when this process does, however that
ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle  # noqa: TID251 - between a run and its own workers
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

from fedhist.protocol.errors import FedhistError, RoundFailed
from fedhist.protocol.histograms import Divisible
from fedhist.protocol.plugins import blamed
from fedhist.server.disk import held_off, leave_signals
from fedhist.simulations.engines.contract import why_not_forked
from fedhist.simulations.engines.passes import Seen, Tally, block_of, check_part, split, unseen

# Enough of them that no worker waits long for the last one.
_PARTS_EACH = 8
_USED = ("cryptography.hazmat.primitives.ciphers", "scipy.sparse", "scipy.special")
"""Loaded before the fork, or every worker would load them for itself."""
_ENDED = (
    "a worker process ended before its work was done, most likely because memory ran out; nothing was released. Use "
    "fewer --workers, or free some memory"
)

Part = tuple[int, int]
T = TypeVar("T")


class _Pass(NamedTuple):
    """A pass begins: what to add up."""

    tallies: list[Tally[Any]]


class _Done(NamedTuple):
    """A worker has read the part that it was given."""

    users: int


class _Sums(NamedTuple):
    """A worker's sums over all its parts."""

    of: list[Any]


class _Problem(NamedTuple):
    """What a worker failed at, pickled."""

    error: bytes


class ForkedCrew:
    """Passes over a population in several processes, which are forked before the first one and end with the block."""

    def __init__(self, population: Divisible, workers: int) -> None:
        parts = split(population.users, _PARTS_EACH * workers, block=block_of(population))
        self._population, self._parts = population, parts
        self._workers = min(workers, len(parts))
        self._pipes: list[Connection] = []
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Nothing is forked yet: there may be no pass at all."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers."""
        self._running.close()

    def __call__(self, tallies: Sequence[Tally[Any]], seen: Seen = unseen) -> list[Any]:
        """The sums over all users. RoundFailed if a worker dies; then the others are ended as well."""
        try:
            if not self._pipes:
                self._pipes = forked(
                    self._running, self._workers, partial(_passes, self._population, os.getpid())
                )
            found = self._collect(list(tallies), seen)
        except BaseException:
            self._running.close()
            raise
        return [tally.plus([sums[place] for sums in found]) for place, tally in enumerate(tallies)]

    def _collect(self, tallies: list[Tally[Any]], seen: Seen) -> list[list[Any]]:
        """Hand out all parts; the sums of each worker."""
        left, given = deque(self._parts), dict[Connection, Part]()
        for pipe in self._pipes:
            given[pipe] = left.popleft()
            send(pipe, _Pass(tallies))
            send(pipe, given[pipe])
        found: list[list[Any]] = []
        waiting = set(self._pipes)
        while waiting:
            for ready in wait(list(waiting)):
                pipe = cast(Connection, ready)
                match receive(pipe):
                    case _Done(users=users):
                        check_part(*given.pop(pipe), users)
                        seen(users)
                        if left:
                            given[pipe] = left.popleft()
                        send(pipe, given.get(pipe))
                    case _Sums(of=sums):
                        found.append(sums)
                        waiting.discard(pipe)
        return found


def forked(running: ExitStack, workers: int, work: Callable[[Connection], None]) -> list[Connection]:
    """Fork processes that do this work, and return our ends of their pipes.

    They have what this process has in memory, ignore Ctrl-C, and end with the stack or when this process does. An error
    comes through the pipe.
    """
    for name in _USED:
        import_module(name)
    fork, pipes = multiprocessing.get_context("fork"), list[Connection]()
    for _ in range(workers):
        with held_off(starting=True), warnings.catch_warnings():
            # Python 3.12 warns of forks in a process with threads; see above why a worker may be one.
            warnings.simplefilter("ignore", DeprecationWarning)
            ours, theirs = fork.Pipe()
            pipes.append(ours)
            running.callback(ours.close)
            worker = fork.Process(target=_work, args=(theirs, tuple(pipes), work), daemon=True)
            worker.start()
            theirs.close()
            running.callback(worker.join)
            running.callback(worker.kill)
    return pipes


def in_processes(count: int, work: Callable[[int], Iterable[T]], workers: int) -> Iterator[T]:
    """What the tasks 0 to count - 1 yield, as it comes: from this process, or from forked ones that take one each."""
    if min(workers, count) < 2 or why_not_forked():
        for number in range(count):
            yield from work(number)
        return
    with ExitStack() as running:
        left, busy = deque(range(count)), set[Connection]()
        for pipe in forked(running, min(workers, count), partial(_tasks, work)):
            send(pipe, left.popleft())
            busy.add(pipe)
        while busy:
            for ready in wait(list(busy)):
                pipe = cast(Connection, ready)
                match receive(pipe):
                    case [found]:
                        yield cast(T, found)
                    case None if left:
                        send(pipe, left.popleft())
                    case None:
                        busy.discard(pipe)


def _tasks(work: Callable[[int], Iterable[object]], pipe: Connection) -> None:
    """A worker: does one task after the other."""
    while True:
        for found in work(pipe.recv()):
            pipe.send([found])
        pipe.send(None)


def send(pipe: Connection, message: object) -> None:
    """Tell a worker; RoundFailed if it has ended."""
    try:
        pipe.send(message)
    except OSError:
        raise RoundFailed(_ENDED, code="worker-ended") from None


def receive(pipe: Connection) -> object:
    """What a worker says; RoundFailed if it has ended, and its own error if it failed."""
    try:
        received = pipe.recv()
    except (EOFError, OSError, pickle.UnpicklingError):
        raise RoundFailed(_ENDED, code="worker-ended") from None
    if isinstance(received, _Problem):
        raise pickle.loads(received.error)  # noqa: S301 - from our own process
    return received


def _work(pipe: Connection, others: Sequence[Connection], work: Callable[[Connection], None]) -> None:
    """A worker, until there is no more to do or nobody waits for it."""
    leave_signals()
    # A collection would touch, and so copy, every object of the parent.
    gc.freeze()
    # The parent's ends: as long as somebody has one, a worker does not see that the parent is gone.
    for other in others:
        other.close()
    try:
        work(pipe)
    except (EOFError, ConnectionError):
        return
    except BaseException as problem:
        try:
            pipe.send(_Problem(portable(problem)))
        except OSError:
            return


def _passes(population: Divisible, parent: int, pipe: Connection) -> None:
    """A worker: makes its share of every pass."""
    while True:
        adding = [tally.begin(population) for tally in pipe.recv().tallies]
        while (part := pipe.recv()) is not None:
            users = 0
            for shard in population.part(*part).shards():
                if os.getppid() != parent:
                    return
                for one in adding:
                    one.add(shard)
                users += shard.users
            pipe.send(_Done(users))
        pipe.send(_Sums([one.result() for one in adding]))


def portable(problem: BaseException) -> bytes:
    """An error, pickled; one that can't travel as a sentence, without its text, which may hold data."""
    if not isinstance(problem, FedhistError) and (blame := blamed(problem)):
        return pickle.dumps(FedhistError(f"{blame}; run it with one worker to see more"))
    try:
        pickled = pickle.dumps(problem)
        pickle.loads(pickled)  # noqa: S301 - made one line above
    except Exception:
        failed = f"a worker failed ({type(problem).__name__}); nothing was released"
        return pickle.dumps(RoundFailed(failed, code="worker-failed"))
    return pickled
