"""A masked round in this process: users are dealt to participants in order, and each has a masking session."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.masked_device import participant_vector, with_noise
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.histograms import Histograms, Integers, Population, labels_of
from fedhist.protocol.masking.crypto import KEY_BYTES, Identity, draw_bytes, participant_number
from fedhist.protocol.masking.masked_vector import terms_of, to_total, to_vector, vector_length
from fedhist.protocol.masking.vectors import to_integers, to_residues, zeros
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.wire.envelope import Envelope, new_run_name
from fedhist.server.collection import RoundReport, numbered
from fedhist.simulations.engines.masked_cohort import run_cohort
from fedhist.simulations.engines.masked_watch import MaskedWatch
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
