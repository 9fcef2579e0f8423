"""A pass over all users in several forked processes, which see a population in memory without a copy.

Processes are forked for one pass. A worker is handed a part of the users at a time, says when it is done with it, and
sends its sums at the end, so a part is in one worker's sums or the pass has failed. It uses numpy alone, and no lock
that another thread of this process may have held at the fork. It ends when this process does, however that ends.
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
from typing import Any, NamedTuple, cast

from fedhist.protocol.errors import FedhistError, RoundFailed
from fedhist.protocol.histograms import Divisible
from fedhist.protocol.plugins.loading import blamed
from fedhist.simulations.engines.held_signals import ctrl_c_held_back
from fedhist.simulations.engines.passes import Adding, Seen, Tally, block_of, check_part, split, unseen

# Enough of them that no worker waits long for the last one.
_PARTS_EACH = 8
_USED = ("cryptography.hazmat.primitives.ciphers", "scipy.sparse", "scipy.special")
"""Loaded before the fork, or every worker would load them for itself."""
_ENDED = (
    "a worker process ended before its work was done, most likely because memory ran out; nothing was released. Use "
    "fewer --workers, or free some memory"
)


class _Done(NamedTuple):
    """A worker has read the part that it was given."""

    users: int


class _Sums(NamedTuple):
    """A worker's sums over all its parts."""

    of: list[Any]


class _Problem(NamedTuple):
    """What a worker failed at, pickled."""

    error: bytes


def forked(
    population: Divisible, tallies: Sequence[Tally[Any]], seen: Seen = unseen, *, workers: int
) -> list[Any]:
    """The sums over all users, from so many processes. RoundFailed if one of them dies."""
    for name in _USED:
        import_module(name)
    parts = deque(split(population.users, _PARTS_EACH * workers, block=block_of(population)))
    # Begun before the fork: what this takes, such as finding names in a list, is done once.
    adding = [tally.begin(population) for tally in tallies]
    with ExitStack() as cleanup:
        pipes: list[Connection] = []
        for _ in range(min(workers, len(parts))):
            _start(population, adding, pipes, cleanup)
        found = _collect(parts, pipes, seen)
    return [tally.plus([sums[place] for sums in found]) for place, tally in enumerate(tallies)]


def _start(
    population: Divisible, adding: Sequence[Adding[Any]], pipes: list[Connection], cleanup: ExitStack
) -> None:
    """Fork one worker; its pipe joins the others."""
    fork = multiprocessing.get_context("fork")
    with ctrl_c_held_back(), warnings.catch_warnings():
        # Python 3.12 warns of forks in a process with threads; see above why a worker may be one.
        warnings.simplefilter("ignore", DeprecationWarning)
        ours, theirs = fork.Pipe()
        pipes.append(ours)
        cleanup.callback(ours.close)
        worker = fork.Process(
            target=_work, args=(theirs, tuple(pipes), os.getpid(), population, adding), daemon=True
        )
        worker.start()
        theirs.close()
        cleanup.callback(worker.join)
        cleanup.callback(worker.kill)


def _collect(parts: deque[tuple[int, int]], pipes: Sequence[Connection], seen: Seen) -> list[list[Any]]:
    """Hand out all parts; the sums of each worker."""
    given: dict[Connection, tuple[int, int]] = {}
    found: list[list[Any]] = []
    for pipe in pipes:
        given[pipe] = parts.popleft()
        _send(pipe, given[pipe])
    waiting = set(pipes)
    while waiting:
        for ready in wait(list(waiting)):
            pipe = cast(Connection, ready)
            try:
                reply = pipe.recv()
            except (EOFError, ConnectionError, pickle.UnpicklingError):
                raise RoundFailed(_ENDED) from None
            match reply:
                case _Done(users=users):
                    check_part(*given.pop(pipe), users)
                    seen(users)
                    if parts:
                        given[pipe] = parts.popleft()
                    _send(pipe, given.get(pipe))
                case _Sums(of=sums):
                    found.append(sums)
                    waiting.discard(pipe)
                case _Problem(error=error):
                    raise pickle.loads(error)  # noqa: S301 - from our own process
    return found


def _send(pipe: Connection, part: tuple[int, int] | None) -> None:
    try:
        pipe.send(part)
    except ConnectionError:
        raise RoundFailed(_ENDED) from None


def _work(
    pipe: Connection,
    others: Sequence[Connection],
    parent: int,
    population: Divisible,
    adding: Sequence[Adding[Any]],
) -> None:
    """A worker: reads the parts that it is handed, until there are no more or nobody waits for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A collection would touch, and so copy, every object of the parent.
    gc.freeze()
    # The parent's ends: as long as somebody has one, a worker does not see that the parent is gone.
    for other in others:
        other.close()
    try:
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
        _tell(pipe, problem)


def _tell(pipe: Connection, problem: BaseException) -> None:
    """Send what went wrong; the parent raises it."""
    try:
        pipe.send(_Problem(portable(problem)))
    except (EOFError, ConnectionError):
        return


def portable(problem: BaseException) -> bytes:
    """An error, pickled; one that can't travel as a sentence, without its text, which may hold data."""
    if not isinstance(problem, FedhistError) and (blame := blamed(problem)):
        return pickle.dumps(FedhistError(f"{blame}; run it with one worker to see more"))
    try:
        pickled = pickle.dumps(problem)
        pickle.loads(pickled)  # noqa: S301 - made one line above
    except Exception:
        return pickle.dumps(RoundFailed(f"a worker failed ({type(problem).__name__}); nothing was released"))
    return pickled
