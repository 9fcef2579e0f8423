"""A cohort of devices that mask, in this process or in a few forked ones, as an exchange for `masked_sum`.

Messages travel as bytes. With several cores the devices are dealt to worker processes that own
their sessions; the server stays here and adds masked inputs as they come, so memory does not grow with the number of
devices times the length of a vector.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import Connection, wait

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import TO_DEVICE, TO_SERVER
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.device_session import advance, start
from fedhist.protocol.masking.device_states import Checked, DeviceState
from fedhist.protocol.masking.keys import Identity
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.server_stage import Messages
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.masked_round import Exchange, masked_sum

VectorOf = Callable[[int], Integers]

Watch = Callable[[str, str, int, bytes], None]
"""Called with every message: its stage, TO_DEVICE or TO_SERVER, the device, and the bytes."""

_BATCH = 64
_ENDED = (
    "a process with devices ended before its work was done, most likely because memory ran out; nothing was released. "
    "Free some memory, or use fewer participants"
)


def run_cohort(
    terms: MaskingTerms,
    devices: int,
    vector_of: VectorOf,
    *,
    source: Source,
    dropouts: Mapping[str, Collection[int]] | None = None,
    identities: Mapping[int, Identity] | None = None,
    cores: int = 1,
    watch: Watch = lambda stage, to, device, message: None,
) -> MaskedSum:
    """One masked sum over the devices 0 to devices - 1. A device falls silent at the stage where `dropouts` has it.

    Raises RoundFailed when too few are left. `vector_of(i)` is called once, for each device that gets to mask.
    """
    # A seeded source repeats itself for the same purpose, and no two sessions may share a key.
    source = source.fork("masking", terms.session.hex())
    everybody = LocalDevices(
        terms,
        range(devices),
        vector_of,
        source_of=lambda device, stage: source.fork("device", device, stage),
        silent={stage: frozenset(gone) for stage, gone in (dropouts or {}).items()},
        identities=identities or {},
    )
    directory = None
    if terms.signed:
        directory = {device: identity.public for device, identity in everybody.identities.items()}
    with _dealt(everybody, cores) as exchange:
        watched = _watched(exchange, watch)
        return masked_sum(terms, watched, source=source.fork("server"), directory=directory)


@dataclass
class LocalDevices:
    """An exchange with devices whose sessions live in this process.

    Args:
        terms: of the session.
        ids: the devices' ids.
        vector_of: what a device adds.
        source_of: the randomness of a device at a stage.
        silent: the devices that fall silent, by stage.
        identities: in signed mode, the devices' keys.
    """

    terms: MaskingTerms
    ids: Sequence[int] = field(repr=False)
    vector_of: VectorOf
    source_of: Callable[[int, str], Source]
    silent: Mapping[str, Collection[int]] = field(default_factory=dict, repr=False)
    identities: Mapping[int, Identity] = field(default_factory=dict, repr=False)
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
                vector = self.vector_of(device) if isinstance(state, Checked) else None
                self.states[device], answer = advance(state, message, source=source, vector=vector)
                if answer:
                    yield device, answer


class _Forked:
    """An exchange with devices dealt to worker processes, device i to worker i modulo their number."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    def __call__(self, stage: str, messages: Messages | None) -> Messages:
        """A worker gets its next batch only after it has answered the last, so no pipe fills up on both sides."""
        workers = len(self._connections)
        if messages is None:
            for connection in self._connections:
                _send(connection, (stage, None))
            yield from self._collect()
            return
        while batch := list(islice(messages, _BATCH * workers)):
            for number, connection in enumerate(self._connections):
                _send(connection, (stage, [entry for entry in batch if entry[0] % workers == number]))
            yield from self._collect()

    def _collect(self) -> Messages:
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


def _work(devices: LocalDevices, connection: Connection) -> None:
    """A worker: answers each request with any number of replies and a None."""
    while True:
        try:
            stage, messages = connection.recv()
        except EOFError:
            return
        for reply in devices(stage, messages):
            connection.send(reply)
        connection.send(None)


@contextmanager
def _dealt(everybody: LocalDevices, cores: int) -> Iterator[Exchange]:
    if cores == 1:
        yield everybody
        return
    # Forked, so that workers have `vector_of` without its being sent.
    fork = multiprocessing.get_context("fork")
    with ExitStack() as cleanup:
        connections = []
        for number in range(cores):
            here, there = fork.Pipe()
            devices = replace(everybody, ids=everybody.ids[number::cores])
            worker = fork.Process(target=_work, args=(devices, there), daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 warns of forks in threaded processes; a worker uses nothing that another thread may lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                worker.start()
            there.close()
            cleanup.callback(worker.join)
            cleanup.callback(worker.terminate)
            cleanup.callback(here.close)
            connections.append(here)
        yield _Forked(connections)


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
