"""A masked round in one process or a few: users are dealt to participants in order, and each has a masking session.

Messages travel as bytes. With several cores the devices are dealt to worker processes that own their sessions: each has
an arc of the graph's ring, so neighbours are nearly always in one process and agree on their keys once. The server
stays here, makes each device's vector when it is due and adds masked inputs as they come, so memory does not grow with
the number of devices times the length of a vector.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from mmap import mmap
from multiprocessing.connection import Connection, wait
from time import perf_counter

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.masked_device import participant_vector, with_noise
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    DroppedOut,
    MessageSent,
    Observer,
    RoundAsked,
    ignore,
)
from fedhist.protocol.histograms import Histograms, Integers, Population, labels_of
from fedhist.protocol.masking.client import Checked, DeviceState, advance, start
from fedhist.protocol.masking.crypto import (
    KEY_BYTES,
    Derive,
    Identity,
    KeyPair,
    draw_bytes,
    participant_number,
)
from fedhist.protocol.masking.graph import MaskingTerms, ring_of
from fedhist.protocol.masking.masked_vector import terms_of, to_total, to_vector, vector_length
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.server import Messages
from fedhist.protocol.masking.vectors import to_integers, to_residues, zeros
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.privacy.randomness import SeededSource, Source
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.wire.envelope import Envelope, new_run_name
from fedhist.server.collection import (
    Fault,
    RoundReport,
    StageReport,
    envelope_size,
    numbered,
    plan_name,
    tell_left_out,
    tell_round,
    tell_stage,
)
from fedhist.server.masked import Exchange, masked_sum
from fedhist.simulations.faults import FaultAssignment, inflated_population

_MANY = 500
"""With this many participants or more, a second process pays for itself."""


@dataclass(frozen=True)
class MaskedRound:
    """A masked round's outcome.

    Args:
        total: what the server saw.
        exact: the same without the devices' noise, which only a simulation knows.
        included: the participants in the sum.
        bytes_sent: the mean over participants that sent something.
        report: what happened in the round.
    """

    total: Total
    exact: Total = field(repr=False)
    included: tuple[int, ...] = field(repr=False)
    bytes_sent: int
    report: RoundReport = field(repr=False)


def masked_round(
    request: Request,
    population: Population,
    *,
    source: Source,
    assignment: FaultAssignment | None = None,
    observe: Observer = ignore,
) -> MaskedRound:
    """The round's total through a masking session.

    Args:
        request: of a masked plan.
        population: all users; participant i of P has the users from i n/P to (i+1) n/P.
        source: for the session's keys, and the draws of users and of their noise.
        assignment: which participants drop out at which stage, and which lie; None for nobody.
        observe: called with the events of every stage.
    """
    round_, parts = request.round, request.plan.masks.participants
    envelope = Envelope(run=new_run_name(source=source.fork("masking", "run")), request=request)
    terms = terms_of(envelope)
    draws = source.fork("masking", round_.value)
    lying = set() if assignment is None else assignment.lying(round_, masked=True)
    vectors = _Vectors(request, population, source=source, lying=lying)
    watch = MaskedWatch(observe, envelope, parts)

    def noised(number: int, vector: Integers) -> Integers:
        return with_noise(vector, request, own=draws.fork("noise", number))

    with closing(watch):
        run = run_cohort(
            terms,
            parts,
            vectors,
            source=draws,
            noised=noised,
            dropouts=None if assignment is None else assignment.silent[round_],
            identities=identities(parts, source=draws.fork("identities")) if terms.signed else None,
            cores=min(os.cpu_count() or 1, 4) if parts >= _MANY else 1,
            watch=watch.message,
        )
    labels = labels_of(population)
    known = range(population.domain_size) if labels is None else labels
    exact = vectors.sum_of(run.included)

    def read(values: Integers) -> Total:
        return numbered(to_total(values, request, participants=len(run.included)), known)

    total = read(run.values)
    report = watch.report(run, users=total.users)
    # The mean over the participants that sent something: all of these sent their keys.
    sent = round((report.size or 0) / report.stages[MaskingStage.ADVERTISING].answered)
    return MaskedRound(total, read(exact), run.included, sent, report)


def unmasked_total(request: Request, population: Population, *, source: Source) -> Total:
    """What the server reads of a masked round without drop-outs, to the bit, without keys and masks.

    The participants, their shares of noise, their vectors and the sum modulo 2^width are those of `masked_round`; masks
    cancel in that sum. For experiments that repeat a round many times.
    """
    parts, width = request.plan.masks.participants, request.measurement.masked_width
    draws = source.fork("masking", request.round.value)
    summed = zeros(vector_length(request), width)
    for number, part in enumerate(parts_of(population, parts)):
        own = draws.fork("noise", number)
        summed += to_residues(participant_vector(request, part, source=source, own=own), width)
    labels = labels_of(population)
    known = range(population.domain_size) if labels is None else labels
    return numbered(to_total(to_integers(summed), request, participants=parts), known)


def identities(participants: int, *, source: Source) -> dict[int, Identity]:
    """Keys for signed masking, and the directory of them all, for a simulation."""
    secrets = [draw_bytes(KEY_BYTES, source=source) for _ in range(participants)]
    directory = {number: Identity(secret, {}).public for number, secret in enumerate(secrets)}
    return {number: Identity(secret, directory) for number, secret in enumerate(secrets)}


def numbered_identities(secrets: Sequence[bytes]) -> list[Identity]:
    """The same for participants whose numbers follow from their keys, as on Flower."""
    publics = [Identity(secret, {}).public for secret in secrets]
    directory = {participant_number(public): public for public in publics}
    return [Identity(secret, directory) for secret in secrets]


class _Vectors:
    """Makes each participant's vector when it is due, in the order of their numbers, and adds them up on the way.

    Args:
        request: what is asked.
        population: all users.
        source: for what users draw.
        lying: participants that lie.
    """

    def __init__(
        self,
        request: Request,
        population: Population,
        *,
        source: Source,
        lying: Collection[int],
    ) -> None:
        self._request, self._labels, self._source = request, labels_of(population), source
        self._parts = enumerate(parts_of(population, request.plan.masks.participants))
        self._lying = lying
        self._made: list[int] = []
        self._sum = np.zeros(vector_length(request), dtype=np.int64)

    def __call__(self, number: int) -> Integers:
        """The vector of this participant, without noise."""
        part = next(part for place, part in self._parts if place == number)
        if number in self._lying:
            part = inflated_population(part)
        vector = to_vector(
            answer_population(self._request, part, source=self._source), self._request, self._labels
        )
        self._made.append(number)
        self._sum += vector
        return vector

    def sum_of(self, included: Sequence[int]) -> Integers:
        """The sum over these participants, who are all that were asked for a vector."""
        if self._made != list(included):
            raise RoundFailed("participants that made their vectors are not in the sum; nothing was released")
        return self._sum


@dataclass(frozen=True)
class _Part:
    """Consecutive users, one piece for each shard that they lie in."""

    pieces: Sequence[Histograms] = field(repr=False)
    domain_size: int
    labels: Sequence[str | int] | None = field(repr=False)

    @property
    def users(self) -> int:
        """The number of these users."""
        return sum(piece.users for piece in self.pieces)

    def shards(self) -> Iterator[Histograms]:
        """The pieces."""
        return iter(self.pieces)


def parts_of(population: Population, parts: int) -> Iterator[Population]:
    """The users of each participant, `parts` in all, in one pass over the shards."""
    ends = [(number + 1) * population.users // parts for number in range(parts)]
    labels, pieces, seen, number = labels_of(population), list[Histograms](), 0, 0
    for shard in population.shards():
        start = 0
        while number < parts and ends[number] <= seen + shard.users:
            stop = ends[number] - seen
            yield _Part([*pieces, shard.rows(start, stop)], population.domain_size, labels)
            pieces, start, number = [], stop, number + 1
        if start < shard.users:
            pieces.append(shard.rows(start, shard.users))
        seen += shard.users


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


class MaskedWatch:
    """One masked round over participants 0 to P - 1.

    Args:
        observe: called with the events.
        envelope: the request.
        participants: P.
    """

    def __init__(
        self,
        observe: Observer,
        envelope: Envelope,
        participants: int,
    ) -> None:
        self._observe, self._envelope = observe, envelope
        self._round, self._plan = envelope.request.round.value, plan_name(envelope.request.plan)
        self._began = self._since = perf_counter()
        self._stage: str | None = None
        self._asked: set[int] = set()
        self._answered: set[int] = set()
        self._size = 0
        self._participants = participants
        self.stages: dict[str, StageReport] = {}
        self._enter(MaskingStage.ADVERTISING)
        for device in range(participants):
            self._sent(TO_DEVICE, device, envelope_size(envelope))
            self._asked.add(device)

    def message(self, stage: str, to: str, device: int, data: bytes) -> None:
        """A message of this stage, to the device or to the server."""
        if stage != self._stage:
            self._enter(stage)
        if to == TO_DEVICE:
            self._asked.add(device)
        else:
            self._answered.add(device)
            self._size += len(data)
        self._sent(to, device, len(data))

    def close(self) -> None:
        """End the last stage, whether it succeeded or failed."""
        if (name := self._stage) is None:
            return
        for device in sorted(self._asked - self._answered) if self._observe is not ignore else ():
            self._observe(DroppedOut(self._round, name, _name(device), Fault.NO_ANSWER.value, None))
        report = StageReport(len(self._asked), len(self._answered), self._size, perf_counter() - self._since)
        self.stages[name] = report
        tell_stage(self._observe, self._round, name, report)
        self._stage = None

    def report(self, run: MaskedSum, *, users: int) -> RoundReport:
        """The report of the whole round, which the observer gets too."""
        names = {number: _name(number) for number in range(self._participants)}
        tell_left_out(self._observe, self._envelope, run.left_out, names)
        silent = sum(stage.asked - stage.answered for stage in self.stages.values())
        report = RoundReport(
            round=self._envelope.request.round,
            nodes=self._participants,
            answered=len(run.included),
            users=users,
            faults={Fault.NO_ANSWER: silent} if silent else {},
            size=sum(stage.size for stage in self.stages.values()),
            seconds=perf_counter() - self._began,
            stages=self.stages,
            left_out=run.left_out,
            complaints=run.complaints,
        )
        tell_round(self._observe, report)
        return report

    def _enter(self, stage: str) -> None:
        self.close()
        self._asked, self._answered, self._size = set(), set(), 0
        self._stage, self._since = stage, perf_counter()
        self._observe(RoundAsked(self._round, stage, None, self._plan))

    def _sent(self, to: str, device: int, size: int) -> None:
        if self._observe is not ignore and self._stage is not None:
            self._observe(MessageSent(self._round, self._stage, to, _name(device), size, self._plan))


def _name(device: int) -> str:
    return f"participant {device + 1}"


class AgreedOnce:
    """Stands in for `KeyPair.derive_for` where both sides of a pair are in one process: each pair agrees once.

    A device computes its side of every agreement. Here the second computation would give the bytes of the first,
    because X25519 does: they are kept until the other side asks for them, and then forgotten. Devices run the same
    steps as ever, and what they send does not change.

    What one side derived is found by all that goes into it (purpose, session, size, ids and public keys), so a side
    that was told another key than its peer has gets nothing of the peer's.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, bytes, int], dict[bytes, bytes]] = defaultdict(dict)

    def __call__(  # noqa: PLR0917 - as derive_for
        self,
        pair: KeyPair,
        purpose: bytes,
        context: bytes,
        me: int,
        peers: Iterable[tuple[int, bytes]],
        size: int,
    ) -> Iterator[bytes]:
        """For each peer (id, public key): `size` bytes that only the two can derive."""
        kept, everyone = self._kept[purpose, context, size], list(peers)
        texts = [pair.pair_text(me, peer, public) for peer, public in everyone]
        found = [kept.pop(text, None) for text in texts]
        missing = [peer for peer, known in zip(everyone, found, strict=True) if known is None]
        fresh = pair.derive_for(purpose, context, me, missing, size)
        for text, known in zip(texts, found, strict=True):
            if known is None:
                kept[text] = derived = next(fresh)
                yield derived
            else:
                yield known
