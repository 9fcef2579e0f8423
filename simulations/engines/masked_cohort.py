"""A cohort of devices that mask, in this process or in a few forked ones, through the sessions and nothing else.

Messages travel as bytes, and each is counted. With several cores the devices are dealt to worker processes that own
their sessions; the server stays here and adds masked inputs as they come, so memory does not grow with the number of
devices times the length of a vector.
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Protocol

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import TO_DEVICE, TO_SERVER
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.device_session import advance, start
from fedhist.protocol.masking.device_states import Checked, DeviceState
from fedhist.protocol.masking.keys import Identity
from fedhist.protocol.masking.server_session import (
    CollectingAdvertisements,
    CollectingOpenings,
    ServerStage,
)
from fedhist.protocol.masking.server_stage import Messages
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.privacy.randomness import Source

VectorOf = Callable[[int], Integers]
Answers = Iterator[tuple[int, bytes]]
_BATCH = 64
_ENDED = (
    "a process with devices ended before its work was done, most likely for want of memory; nothing was released. "
    "Free some memory, or use fewer participants"
)


class Stage(StrEnum):
    """What devices send, in this order."""

    ADVERTISE = "advertise"
    SHARE = "share"
    CHECK = "check"
    MASK = "mask"
    CONFIRM = "confirm"
    UNMASK = "unmask"


_PLACES = {stage: place for place, stage in enumerate(Stage)}


class Watch(Protocol):
    """Sees every message between the server and the devices."""

    def message(self, stage: int, to: str, device: int, data: bytes) -> None:
        """A message of this stage, the first being 0, to the device or to the server."""

    def close(self) -> None:
        """There are no more."""


@dataclass(frozen=True)
class Traffic:
    """Bytes sent and received by each device in one stage."""

    sent: Integers = field(repr=False)
    received: Integers = field(repr=False)


@dataclass(frozen=True)
class CohortRun:
    """The sum, who is in it, and what it took."""

    values: Integers = field(repr=False)
    included: tuple[int, ...] = field(repr=False)
    rejected: Mapping[str, int]
    left_out: Mapping[str, tuple[int, ...]]
    complaints: Mapping[int, tuple[int, ...]]
    traffic: Mapping[Stage, Traffic]
    seconds: Mapping[str, float]


class _Devices(Protocol):
    """Devices that answer messages."""

    def begin(self) -> Answers:
        """Everybody's advertisement."""

    def answer(self, stage: Stage, messages: Messages) -> Answers:
        """The answers to these messages, as they come."""


def run_cohort(
    terms: MaskingTerms,
    devices: int,
    vector_of: VectorOf,
    *,
    source: Source,
    dropouts: Mapping[Stage, Collection[int]] | None = None,
    identities: Mapping[int, Identity] | None = None,
    cores: int = 1,
    watch: Watch | None = None,
) -> CohortRun:
    """One masked sum over the devices 0 to devices - 1. A device falls silent at the stage where `dropouts` has it.

    Raises RoundFailed when too few are left. `vector_of(i)` is called once, for each device that gets to mask.
    `watch` is told of every message.
    """
    # A seeded source repeats itself for the same purpose, and no two sessions may share a key.
    source = source.fork("masking", terms.session.hex())
    silent = {stage: frozenset((dropouts or {}).get(stage, ())) for stage in Stage}
    settings = _Settings(terms, vector_of, source, silent, identities or {})
    directory = None
    if terms.signed:
        directory = {device: identity.public for device, identity in (identities or {}).items()}
    server: ServerStage = CollectingAdvertisements(terms, source=source.fork("server"), directory=directory)
    meter = _Meter(devices, watch)
    with meter.watched(), _cohort_of(settings, devices, cores) as cohort:
        with meter.clock(Stage.ADVERTISE):
            for device, message in cohort.begin():
                meter.sent(Stage.ADVERTISE, device, message)
                server.add(device, message)
        stages = [stage for stage in Stage if stage is not Stage.ADVERTISE]
        for stage in stages if terms.signed else [s for s in stages if s is not Stage.CONFIRM]:
            with meter.clock(stage):
                if isinstance(server, CollectingOpenings):
                    raise RoundFailed("the session ended before its stages did")
                server, messages = server.close()
                for device, message in cohort.answer(stage, meter.received(stage, messages)):
                    meter.sent(stage, device, message)
                    server.add(device, message)
        if not isinstance(server, CollectingOpenings):
            raise RoundFailed("the stages ended before the session did")
        with meter.clock("rebuild"):
            total = server.close()
    return CohortRun(
        values=total.values,
        included=total.included,
        rejected=total.rejected,
        left_out=total.left_out,
        complaints=total.complaints,
        traffic=meter.traffic,
        seconds=meter.seconds,
    )


@dataclass(frozen=True)
class _Settings:
    terms: MaskingTerms
    vector_of: VectorOf
    source: Source
    silent: Mapping[Stage, frozenset[int]]
    identities: Mapping[int, Identity]


class _Local:
    """Devices whose sessions live in this process."""

    def __init__(self, settings: _Settings, ids: Iterable[int]) -> None:
        self._settings = settings
        self._ids = ids
        self._states: dict[int, DeviceState] = {}

    def begin(self) -> Answers:
        for device in self._ids:
            if device not in self._settings.silent[Stage.ADVERTISE]:
                identity = self._settings.identities.get(device)
                source = self._settings.source.fork("device", device, Stage.ADVERTISE)
                state, message = start(self._settings.terms, device, source=source, identity=identity)
                self._states[device] = state
                yield device, message

    def answer(self, stage: Stage, messages: Iterable[tuple[int, bytes]]) -> Answers:
        for device, message in messages:
            state = self._states.pop(device)
            if device in self._settings.silent[stage]:
                continue
            vector = self._settings.vector_of(device) if isinstance(state, Checked) else None
            source = self._settings.source.fork("device", device, stage)
            self._states[device], reply = advance(state, message, source=source, vector=vector)
            if reply:
                yield device, reply


class _Forked:
    """Devices dealt to worker processes, device i to worker i modulo their number."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    def begin(self) -> Answers:
        for connection in self._connections:
            _send(connection, None)
        yield from self._collect()

    def answer(self, stage: Stage, messages: Messages) -> Answers:
        """A worker gets its next batch only when it has answered the last, so no pipe fills up on both sides."""
        workers = len(self._connections)
        while batch := list(islice(messages, _BATCH * workers)):
            for number, connection in enumerate(self._connections):
                _send(connection, (stage, [entry for entry in batch if entry[0] % workers == number]))
            yield from self._collect()

    def _collect(self) -> Answers:
        waiting = set(self._connections)
        while waiting:
            for ready in wait(list(waiting)):
                assert isinstance(ready, Connection)  # noqa: S101 - wait returns what it was given
                try:
                    reply = ready.recv()
                except (EOFError, ConnectionError):
                    raise RoundFailed(_ENDED) from None
                if reply is None:
                    waiting.discard(ready)
                else:
                    yield reply


def _send(connection: Connection, request: object) -> None:
    try:
        connection.send(request)
    except ConnectionError:
        raise RoundFailed(_ENDED) from None


def _work(settings: _Settings, ids: range, connection: Connection) -> None:
    """A worker: answers each request with any number of replies and a None."""
    devices = _Local(settings, ids)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        for reply in devices.begin() if request is None else devices.answer(*request):
            connection.send(reply)
        connection.send(None)


@contextmanager
def _cohort_of(settings: _Settings, devices: int, cores: int) -> Iterator[_Devices]:
    if cores == 1:
        yield _Local(settings, range(devices))
        return
    # Forked, so that workers have `vector_of` without its being sent.
    fork = multiprocessing.get_context("fork")
    with ExitStack() as cleanup:
        connections = []
        for number in range(cores):
            here, there = fork.Pipe()
            worker = fork.Process(
                target=_work, args=(settings, range(number, devices, cores), there), daemon=True
            )
            with warnings.catch_warnings():
                # Python 3.12 warns of forks beside other threads; a worker touches nothing that they might have locked.
                warnings.simplefilter("ignore", DeprecationWarning)
                worker.start()
            there.close()
            cleanup.callback(worker.join)
            cleanup.callback(worker.terminate)
            cleanup.callback(here.close)
            connections.append(here)
        yield _Forked(connections)


class _Meter:
    """Counts bytes by device and seconds by stage."""

    def __init__(self, devices: int, watch: Watch | None) -> None:
        self._devices, self._watch = devices, watch
        self.traffic: dict[Stage, Traffic] = {}
        self.seconds: dict[str, float] = {}

    def sent(self, stage: Stage, device: int, message: bytes) -> None:
        self._of(stage).sent[device] += len(message)
        if self._watch is not None:
            self._watch.message(_PLACES[stage], TO_SERVER, device, message)

    def received(self, stage: Stage, messages: Messages) -> Messages:
        counts = self._of(stage).received
        for device, message in messages:
            counts[device] += len(message)
            if self._watch is not None:
                self._watch.message(_PLACES[stage], TO_DEVICE, device, message)
            yield device, message

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Tell the watch when all is over, well or not."""
        try:
            yield
        finally:
            if self._watch is not None:
                self._watch.close()

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[str(name)] = time.perf_counter() - begin

    def _of(self, stage: Stage) -> Traffic:
        if stage not in self.traffic:
            empty = (np.zeros(self._devices, dtype=np.int64) for _ in range(2))
            self.traffic[stage] = Traffic(*empty)
        return self.traffic[stage]
