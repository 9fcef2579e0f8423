"""The cohort on this machine: one participant with all users, run by the same code as a phone, on all cores.

The number of shards that the population is read in is told to nobody: a shard is full at a number of entries, so it
depends on the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import cast

from fedhist.client.device import answer_population, answers
from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    WHOLE_ROUND,
    MessageSent,
    Observer,
    Read,
    RoundAsked,
    ignore,
)
from fedhist.protocol.histograms import Divisible, Population, labels_of, names_of
from fedhist.protocol.items import only_held
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Contribution, Request, Total
from fedhist.protocol.wire.envelope import Envelope, encode
from fedhist.server.collection import RoundReport, envelope_size, plan_name, tell_round
from fedhist.simulations.engines.contract import SimulatedTransport, workers_for
from fedhist.simulations.engines.masked import masked_round, unmasked_total
from fedhist.simulations.engines.passes import Answers, Crew, Seen, Tally, alone, unseen
from fedhist.simulations.engines.workers import ForkedCrew
from fedhist.simulations.faults import FaultAssignment, FaultyAnswers, faults_of, first_number
from fedhist.simulations.given_users import GivenUsers

_SAMPLE = 100


@dataclass
class InProcess(SimulatedTransport):
    """A transport over a population on this machine.

    Args:
        population: all users.
        source: of the users' draws.
        masks: whether masked rounds are carried out; False adds up what would have been masked, which is the same sum.
    """

    population: Population
    source: Source
    masks: bool = True

    def total(self, request: Request) -> Total:
        """The sum over all shards, one shard in memory at a time."""
        if request.plan.is_masked:
            run = (
                self._masked
                if self.masks
                else partial(unmasked_total, population=self.population, source=self.source)
            )
            return run(request)
        return plain_round(self, request, self.population, source=self.source)

    def _masked(self, request: Request) -> Total:
        assignment = self.assigned(self.population, request.plan.masks.participants, source=self.source)
        ended = masked_round(
            request, self.population, source=self.source, assignment=assignment, observe=self.observe
        )
        self.totals[request.round] = ended.exact
        self.bytes_per_user[request.round] = ended.bytes_sent
        self.reports[request.round] = ended.report
        return ended.total


@contextmanager
def open_in_process(
    population: Population,
    *,
    seed: int | None,
    dropout: float = 0.0,
    faulty: Mapping[str, float] | None = None,
    nodes: int | None = None,
    workers: int | None = None,
    observe: Observer = ignore,
) -> Iterator[InProcess]:
    """A transport over the population on this machine.

    Args:
        population: all users.
        seed: of the users' draws; None draws from the operating system.
        dropout: the share of the nodes that gives no answer in a round.
        faulty: shares of faulty nodes by kind, see `fedhist.simulations.faults`.
        nodes: the number of nodes that may be faulty; None for 100, or one for each user. Under masking they are the
            plan's participants.
        workers: the number of processes. None is one for each core where there are many users, see `cores`.
        observe: called with the events of the rounds.
    """
    with crew_here(population, workers) as crew:
        yield InProcess(
            population,
            device_source(seed),
            faults=faults_of(dropout, faulty),
            spread_over=checked_nodes(population, nodes),
            observe=observe,
            counts=bool(dropout or faulty),
            crew=crew,
        )


def device_source(seed: int | None) -> Source:
    """Where devices draw from: the same on every engine."""
    return SystemSource() if seed is None else SeededSource(seed)


def checked_nodes(population: Population, nodes: int | None) -> int | None:
    """Refuse nodes without users."""
    if nodes is not None and not 1 <= nodes <= population.users:
        raise InvalidInput(
            f"{population.users} users can't be spread over {nodes} nodes",
            allowed="1 node or more, with at least one user each",
            advice="choose --nodes",
            code="bad-nodes",
        )
    return nodes


@contextmanager
def crew_here(population: Population, workers: int | None = None) -> Iterator[Crew]:
    """Who makes passes over a population on this machine, see `open_in_process`."""
    processes = workers_for(population, workers)
    if processes == 1:
        yield partial(alone, population)
        return
    with ForkedCrew(cast(Divisible, population), processes) as crew:
        yield crew


def plain_round(
    transport: SimulatedTransport, request: Request, population: Population, *, source: Source
) -> Total:
    """A round without masks: one pass of the transport's crew, which the transport remembers."""
    started, crew = perf_counter(), transport.crew or partial(alone, population)
    watch, due = ProcessWatch(transport.observe, request), population.users
    honest, assignment = Answers(request, source), transport.assigned(population, None, source=source)
    answers: Tally[Contribution] = honest
    if assignment is not None:
        answers = FaultyAnswers(honest, assignment, first_number(population))
        due -= assignment.users_of(assignment.missing(request.round, masked=False))
    contribution, *found = crew([answers, *transport.along], reading(transport.observe, population))
    transport.along.clear()
    transport.found += found
    total = _total(contribution, population)
    transport.totals[request.round] = total
    transport.reports[request.round] = watch.end(total, perf_counter() - started, assignment)
    if total.users != due:
        raise RoundFailed(
            f"round {request.round.value}: the shards hold {total.users:,} users and the population says "
            f"{due:,}; nothing was released. Check the population's shards",
            code="users-missing",
        )
    transport.bytes_per_user[request.round] = message_bytes(request, population, source=source)
    return total


def reading(observe: Observer, population: Population) -> Seen:
    """Tells the observer how far a pass is."""
    if isinstance(population, GivenUsers):
        return unseen
    done, of = 0, population.users

    def seen(users: int) -> None:
        nonlocal done
        done += users
        observe(Read(done, of))

    return unseen if observe is ignore else seen


def exact_total(request: Request, population: Population, *, source: Source) -> Total:
    """The sum over all users, without masks or noise, in this process."""
    return _total(answer_population(request, population, source=source), population)


def _total(summed: Contribution, population: Population) -> Total:
    users = population.users if isinstance(population, GivenUsers) else summed.users
    return Total(users, summed.values, summed.keyed, labels_of(population))


def message_bytes(request: Request, population: Population, *, source: Source) -> int:
    """The size of what one user's own device would send.

    The same for every user where the message has a fixed length; else the mean over the first users.
    """
    names, labels = names_of(population), labels_of(population)
    shard = next(iter(population.shards()))
    sample = _SAMPLE if request.measurement.names_travel else 1
    users = shard.rows(0, min(sample, shard.users))
    if request.plan.items is None:
        users, names = only_held(users, names)
        labels = names
    devices = (users.rows(i, i + 1) for i in range(users.users))
    sizes = [len(encode(one, request, labels)) for one in answers(request, devices, names, source=source)]
    return round(sum(sizes) / len(sizes))


PROCESS = "process 1"
# A run's name has as many characters in a real message.
_RUN_NAME = "0" * 32
_NAMED_MEASURED = 100_000


class ProcessWatch:
    """One round in this process.

    No message is really sent, so sizes are those of the message that would be sent for all users together. Where names
    travel, to write one costs as much as to answer, so one with many rows is not measured.

    Args:
        observe: called with each event.
        request: what is asked.
    """

    def __init__(self, observe: Observer, request: Request) -> None:
        self._observe, self._request = observe, request
        self._round, self._plan = request.round.value, plan_name(request.plan)
        if observe is not ignore:
            asked = envelope_size(Envelope(run=_RUN_NAME, request=request))
            observe(RoundAsked(self._round, WHOLE_ROUND, None, self._plan))
            observe(MessageSent(self._round, WHOLE_ROUND, TO_DEVICE, PROCESS, asked, self._plan))

    def end(self, total: Total, seconds: float, assignment: FaultAssignment | None = None) -> RoundReport:
        """Report the end of the round, with this sum; of one with faults as the server of these nodes would."""
        size = None if self._observe is ignore else self._size(total)
        if self._observe is not ignore:
            self._observe(MessageSent(self._round, WHOLE_ROUND, TO_SERVER, PROCESS, size, self._plan))
        nodes = 1 if assignment is None else assignment.nodes
        missing = {} if assignment is None else assignment.missing(self._request.round, masked=False)
        report = RoundReport(
            round=self._request.round,
            nodes=nodes,
            answered=nodes - len(missing),
            users=total.users,
            faults=Counter(kind.seen_as for kind in missing.values()),
            size=size,
            seconds=seconds,
        )
        tell_round(self._observe, report)
        return report

    def _size(self, total: Total) -> int | None:
        if total.keyed is not None and len(total.keyed.keys) > _NAMED_MEASURED:
            return None
        whole = Contribution(
            self._request.round,
            self._request.plan.digest,
            self._request.plan.most_users,
            total.values,
            keyed=total.keyed,
        )
        return len(encode(whole, self._request, total.labels))
