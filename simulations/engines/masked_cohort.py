"""A cohort of devices that mask, in this process or in a few forked ones, as an exchange for `masked_sum`.

Messages travel as bytes. With several cores the devices are dealt to worker processes that own their sessions: each has
an arc of the graph's ring, so neighbours are nearly always in one process and agree on their keys once. The server
stays here, makes each device's vector when it is due and adds masked inputs as they come, so memory does not grow with
the number of devices times the length of a vector.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from mmap import mmap
from multiprocessing.connection import Connection, wait

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import TO_DEVICE, TO_SERVER
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.client import Checked, DeviceState, advance, start
from fedhist.protocol.masking.crypto import KEY_BYTES, Derive, Identity, KeyPair, draw_bytes
from fedhist.protocol.masking.graph import MaskingTerms, ring_of
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.server import Messages
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.privacy.randomness import SeededSource, Source
from fedhist.server.masked import Exchange, masked_sum
from fedhist.simulations.engines.agreed_once import AgreedOnce

VectorOf = Callable[[int], Integers]
Noised = Callable[[int, Integers], Integers]

Watch = Callable[[str, str, int, bytes], None]
"""Called with every message: its stage, TO_DEVICE or TO_SERVER, the device, and the bytes."""

_BATCH = 64
_VECTOR_BYTES = 1 << 24
"""A worker's batch is smaller where its vectors would take more than this."""

_REPLY_BYTES = 1 << 16
_AHEAD = 8
"""The number of batches that may wait for one worker while another is served."""

_ENDED = (
    "a process with devices ended before its work was done, most likely because memory ran out; nothing was released. "
    "Free some memory, or use fewer participants"
)


def _as_it_is(device: int, vector: Integers) -> Integers:
    return vector


def run_cohort(
    terms: MaskingTerms,
    devices: int,
    vector_of: VectorOf,
    *,
    source: Source,
    noised: Noised = _as_it_is,
    dropouts: Mapping[str, Collection[int]] | None = None,
    identities: Mapping[int, Identity] | None = None,
    cores: int = 1,
    watch: Watch = lambda stage, to, device, message: None,
) -> MaskedSum:
    """One masked sum over the devices 0 to devices - 1. Raises RoundFailed when too few are left.

    Args:
        terms: of the session.
        devices: their number.
        vector_of: what a device has. Called here, once for each device that gets to mask, by ascending number.
        source: for the draws of devices and server.
        noised: what a device adds to the sum, of what it has. Called where the device is.
        dropouts: the devices that fall silent, by stage.
        identities: in signed mode, the devices' keys.
        cores: the number of processes with devices; 1 has them here.
        watch: called with every message.
    """
    # A seeded source repeats itself for the same purpose, and no two sessions may share a key.
    source = source.fork("masking", terms.session.hex())
    everybody = LocalDevices(
        terms,
        range(devices),
        vector_of,
        source_of=lambda device, stage: source.fork("device", device, stage),
        noised=noised,
        silent={stage: frozenset(gone) for stage, gone in (dropouts or {}).items()},
        identities=identities or {},
        derive_for=AgreedOnce(),
    )
    directory = None
    if terms.signed:
        directory = {device: identity.public for device, identity in everybody.identities.items()}
    server = source.fork("server")
    if not server.seeded:
        # So that its first draw, the salt of the graph, is known before the session begins: see `_arcs`.
        server = SeededSource(int.from_bytes(draw_bytes(KEY_BYTES, source=server), "little"))
    with _dealt(everybody, cores, server) as exchange:
        watched = _watched(exchange, watch)
        return masked_sum(terms, watched, source=server, directory=directory)


@dataclass
class LocalDevices:
    """An exchange with devices whose sessions live in this process.

    Args:
        terms: of the session.
        ids: the devices' ids.
        vector_of: what a device has.
        source_of: the randomness of a device at a stage.
        noised: what a device adds, of what it has.
        silent: the devices that fall silent, by stage.
        identities: in signed mode, the devices' keys.
        derive_for: how the devices agree on keys.
    """

    terms: MaskingTerms
    ids: Sequence[int] = field(repr=False)
    vector_of: VectorOf
    source_of: Callable[[int, str], Source]
    noised: Noised = _as_it_is
    silent: Mapping[str, Collection[int]] = field(default_factory=dict, repr=False)
    identities: Mapping[int, Identity] = field(default_factory=dict, repr=False)
    derive_for: Derive = field(default=KeyPair.derive_for, repr=False)
    states: dict[int, DeviceState] = field(default_factory=dict, repr=False, init=False)

    def __call__(self, stage: str, messages: Iterable[tuple[int, bytes]] | None) -> Messages:
        """The answers of all devices that neither fall silent nor give up."""
        silent = self.silent.get(stage, ())
        if messages is None:
            for device in self.ids:
                if device not in silent:
                    source, identity = self.source_of(device, stage), self.identities.get(device)
                    self.states[device], answer = start(self.terms, device, source=source, identity=identity)
                    yield device, answer
            return
        for device, message in messages:
            if device not in silent:
                state, source = self.states[device], self.source_of(device, stage)
                vector = self.noised(device, self.vector_of(device)) if isinstance(state, Checked) else None
                self.states[device], answer = advance(
                    state, message, source=source, vector=vector, derive_for=self.derive_for
                )
                if answer:
                    yield device, answer


@dataclass
class _Worker:
    """A process with devices, as seen from here: what waits for it, and where it reads its devices' vectors."""

    connection: Connection
    vectors: Integers
    waiting: deque[tuple[int, bytes, Integers | None]] = field(default_factory=deque, repr=False)

    def send(self, stage: str, count: int) -> None:
        """Send the next requests, at most `count` of them, with their vectors in memory that both share."""
        batch = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        for row, (_, _, vector) in enumerate(batch):
            if vector is not None:
                self.vectors[row] = vector
        _send(self.connection, (stage, [(device, message) for device, message, _ in batch]))


class _Forked:
    """An exchange with devices dealt to worker processes."""

    def __init__(
        self, everybody: LocalDevices, workers: Sequence[_Worker], arcs: Sequence[Sequence[int]]
    ) -> None:
        self._everybody, self._workers = everybody, workers
        self._of = {device: worker for worker, arc in zip(workers, arcs, strict=True) for device in arc}
        self._batch = min(len(worker.vectors) for worker in workers)

    def __call__(self, stage: str, messages: Messages | None) -> Messages:
        """Each worker gets its next batch when it has answered the last, so no pipe fills up on both sides."""
        busy = {}
        requests = iter(()) if messages is None else self._requests(stage, messages)
        for worker in self._workers:
            if messages is None:
                _send(worker.connection, (stage, None))
                busy[worker.connection] = worker
        while True:
            for worker in self._workers:
                if worker.connection not in busy and self._fill(worker, requests):
                    worker.send(stage, self._batch)
                    busy[worker.connection] = worker
            if not busy:
                return
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)  # noqa: S101 - wait returns what it was given
                try:
                    replies = ready.recv()
                except (EOFError, ConnectionError):
                    raise RoundFailed(_ENDED, code="worker-ended") from None
                if replies is None:
                    del busy[ready]
                else:
                    yield from replies

    def _requests(self, stage: str, messages: Messages) -> Iterator[None]:
        """Puts one message after the other into the queue of its worker, with the vector that is due."""
        silent = self._everybody.silent.get(stage, ())
        for device, message in messages:
            if device not in silent:
                vector = self._everybody.vector_of(device) if stage == MaskingStage.MASKING else None
                self._of[device].waiting.append((device, message, vector))
            yield

    def _fill(self, worker: _Worker, requests: Iterator[None]) -> bool:
        """Take messages until there is a batch for this worker. False if there is nothing for it now."""
        most = _AHEAD * self._batch
        while len(worker.waiting) < self._batch and max(len(one.waiting) for one in self._workers) < most:
            if next(requests, self) is self:
                break
        return bool(worker.waiting)


def _send(connection: Connection, request: object) -> None:
    try:
        connection.send(request)
    except ConnectionError:
        raise RoundFailed(_ENDED) from None


def _work(devices: LocalDevices, connection: Connection, vectors: Integers) -> None:
    """A worker: answers each request with any number of lists of replies, and a None."""
    rows: dict[int, int] = {}
    devices.vector_of = lambda device: vectors[rows[device]]
    while True:
        try:
            stage, messages = connection.recv()
        except EOFError:
            return
        rows = {device: row for row, (device, _) in enumerate(messages or ())}
        replies, size = list[tuple[int, bytes]](), 0
        for reply in devices(stage, messages):
            replies.append(reply)
            size += len(reply[1])
            if size >= _REPLY_BYTES:
                connection.send(replies)
                replies, size = [], 0
        connection.send(replies)
        connection.send(None)


@contextmanager
def _dealt(everybody: LocalDevices, cores: int, server: Source) -> Iterator[Exchange]:
    if cores == 1:
        yield everybody
        return
    # Forked, so that workers have what the devices need without its being sent.
    fork = multiprocessing.get_context("fork")
    length = everybody.terms.length
    batch = max(1, min(_BATCH, _VECTOR_BYTES // (8 * length)))
    arcs = _arcs(everybody, cores, server)
    with ExitStack() as cleanup:
        workers = []
        for arc in arcs:
            here, there = fork.Pipe()
            vectors = np.frombuffer(mmap(-1, 8 * batch * length), dtype=np.int64).reshape(batch, length)
            process = fork.Process(
                target=_work, args=(replace(everybody, ids=arc), there, vectors), daemon=True
            )
            with warnings.catch_warnings():
                # Python 3.12 warns of forks in threaded processes; a worker uses nothing that another thread may lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            there.close()
            cleanup.callback(process.join)
            cleanup.callback(process.terminate)
            cleanup.callback(here.close)
            workers.append(_Worker(here, vectors))
        yield _Forked(everybody, workers, arcs)


def _arcs(everybody: LocalDevices, cores: int, server: Source) -> list[list[int]]:
    """The devices of each worker: those who will stand side by side on the graph's ring.

    The server's first draw is the ring's salt. A fork of its stream for no purpose is the same stream.
    """
    salt = draw_bytes(KEY_BYTES, source=server.fork())
    silent = everybody.silent.get(MaskingStage.ADVERTISING, ())
    present = [device for device in everybody.ids if device not in silent]
    ring = [present[place] for place in ring_of(len(present), salt, everybody.terms.digest).tolist()]
    return [ring[number * len(ring) // cores : (number + 1) * len(ring) // cores] for number in range(cores)]


def _watched(exchange: Exchange, watch: Watch) -> Exchange:
    """The same exchange; `watch` is called with every message as it passes."""

    def passing(stage: str, to: str, messages: Iterable[tuple[int, bytes]]) -> Messages:
        for device, message in messages:
            watch(stage, to, device, message)
            yield device, message

    def watched(stage: MaskingStage, messages: Messages | None) -> Messages:
        asked = None if messages is None else passing(stage, TO_DEVICE, messages)
        return passing(stage, TO_SERVER, exchange(stage, asked))

    return watched
