"""The cohort in this process: one participant with all users, run by the same code as a phone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from fedhist.client.device import answer_population, answers
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.histograms import Population, labels_of, names_of
from fedhist.protocol.labels.renumbering import only_held
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.wire.codec import encode
from fedhist.simulations.engines.contract import SimulatedTransport
from fedhist.simulations.engines.masked_in_process import masked_round
from fedhist.simulations.engines.process_watch import ProcessWatch

_SAMPLE = 100


@dataclass
class InProcess(SimulatedTransport):
    """A transport over a population in this process."""

    population: Population
    source: Source

    def total(self, request: Request) -> Total:
        """The sum over all shards, one shard in memory at a time."""
        if request.plan.is_masked:
            outcome = masked_round(
                request, self.population, source=self.source, dropout=self.dropout, observe=self.observe
            )
            self.totals[request.round] = outcome.exact
            self.bytes_per_user[request.round] = outcome.bytes_sent
            self.reports[request.round] = outcome.report
            return outcome.total
        started = perf_counter()
        watch = ProcessWatch(self.observe, request)
        total = exact_total(request, self.population, source=self.source)
        self.totals[request.round] = total
        self.reports[request.round] = watch.end(total, perf_counter() - started)
        if total.users != self.population.users:
            raise RoundFailed(
                f"round {request.round.value}: the shards hold {total.users:,} users and the population says "
                f"{self.population.users:,}; nothing was released. Check the population's shards"
            )
        self.bytes_per_user[request.round] = message_bytes(request, self.population, source=self.source)
        return total


@contextmanager
def open_in_process(
    population: Population, *, seed: int | None, dropout: float = 0.0, observe: Observer = ignore
) -> Iterator[InProcess]:
    """A transport over the population in this process; under masking this share of the participants drops out."""
    source = SystemSource() if seed is None else SeededSource(seed)
    yield InProcess(population, source, dropout=dropout, observe=observe)


def exact_total(request: Request, population: Population, *, source: Source) -> Total:
    """The sum over all users, without masks or noise."""
    summed = answer_population(request, population, source=source)
    return Total(summed.users, summed.values, summed.keyed, labels_of(population))


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
