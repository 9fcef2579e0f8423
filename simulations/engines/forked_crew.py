"""Passes over all users in several forked processes, which see a population in memory without a copy.

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
import pickle
import signal
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from fedhist.protocol.errors import FedhistError, RoundFailed
from fedhist.protocol.histograms import Divisible
from fedhist.protocol.plugins import blamed
from fedhist.server.disk import held_off
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
                self._start()
            found = self._collect(list(tallies), seen)
        except BaseException:
            self._running.close()
            raise
        return [tally.plus([sums[place] for sums in found]) for place, tally in enumerate(tallies)]

    def _start(self) -> None:
        for name in _USED:
            import_module(name)
        fork = multiprocessing.get_context("fork")
        for _ in range(self._workers):
            with held_off(starting=True), warnings.catch_warnings():
                # Python 3.12 warns of forks in a process with threads; see above why a worker may be one.
                warnings.simplefilter("ignore", DeprecationWarning)
                ours, theirs = fork.Pipe()
                self._pipes.append(ours)
                self._running.callback(ours.close)
                worker = fork.Process(
                    target=_work,
                    args=(theirs, tuple(self._pipes), os.getpid(), self._population),
                    daemon=True,
                )
                worker.start()
                theirs.close()
                self._running.callback(worker.join)
                self._running.callback(worker.kill)

    def _collect(self, tallies: list[Tally[Any]], seen: Seen) -> list[list[Any]]:
        """Hand out all parts; the sums of each worker."""
        left, given = deque(self._parts), dict[Connection, Part]()
        for pipe in self._pipes:
            given[pipe] = left.popleft()
            _send(pipe, _Pass(tallies))
            _send(pipe, given[pipe])
        found: list[list[Any]] = []
        waiting = set(self._pipes)
        while waiting:
            for ready in wait(list(waiting)):
                pipe = cast(Connection, ready)
                match _receive(pipe):
                    case _Done(users=users):
                        check_part(*given.pop(pipe), users)
                        seen(users)
                        if left:
                            given[pipe] = left.popleft()
                        _send(pipe, given.get(pipe))
                    case _Sums(of=sums):
                        found.append(sums)
                        waiting.discard(pipe)
                    case _Problem(error=error):
                        raise pickle.loads(error)  # noqa: S301 - from our own process
        return found


def _send(pipe: Connection, message: object) -> None:
    try:
        pipe.send(message)
    except OSError:
        raise RoundFailed(_ENDED, code="worker-ended") from None


def _receive(pipe: Connection) -> object:
    try:
        return pipe.recv()
    except (EOFError, OSError, pickle.UnpicklingError):
        raise RoundFailed(_ENDED, code="worker-ended") from None


def _work(pipe: Connection, others: Sequence[Connection], parent: int, population: Divisible) -> None:
    """A worker: makes its share of every pass, until there are no more or nobody waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A collection would touch, and so copy, every object of the parent.
    gc.freeze()
    # The parent's ends: as long as somebody has one, a worker does not see that the parent is gone.
    for other in others:
        other.close()
    try:
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
    except (EOFError, ConnectionError):
        return
    except BaseException as problem:
        try:
            pipe.send(_Problem(portable(problem)))
        except OSError:
            return


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
