"""A masked round in this process: users are dealt to participants in order, and each has a masking session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.masked_device import participant_vector, with_noise
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.histograms import Histograms, Integers, Population, labels_of
from fedhist.protocol.masking.encoding import to_integers, to_residues, zeros
from fedhist.protocol.masking.identities import participant_number
from fedhist.protocol.masking.keys import KEY_BYTES, Identity, draw_bytes
from fedhist.protocol.masking.masked_vector import apart, joint_terms, to_total, to_vector, vector_length
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.wire.envelope import Envelope, new_run_name
from fedhist.server.collection import RoundReport, numbered
from fedhist.simulations.engines.fault_cast import Cast
from fedhist.simulations.engines.faulty_answers import taken_away, told
from fedhist.simulations.engines.masked_cohort import run_cohort
from fedhist.simulations.engines.masked_watch import MaskedWatch
from fedhist.simulations.faults import FaultKind

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


@dataclass(frozen=True)
class MaskedQuestion:
    """What is asked of whom in a masked round.

    Args:
        request: of a masked plan.
        population: all users; participant i of P has the users from i n/P to (i+1) n/P.
        source: for the draws of users and of their noise.
        observe: called with the events of every stage.
    """

    request: Request
    population: Population = field(repr=False)
    source: Source = field(repr=False)
    observe: Observer = field(default=ignore, repr=False)


def masked_round(
    request: Request,
    population: Population,
    *,
    source: Source,
    cast: Cast | None = None,
    observe: Observer = ignore,
) -> MaskedRound:
    """The round's total through masking sessions, see `MaskedQuestion`.

    `cast` says which participants fall silent at which stage, and which lie; None for nobody.
    """
    [ended] = masked_together([MaskedQuestion(request, population, source, observe)], cast=cast)
    return ended()


def masked_together(
    questions: Sequence[MaskedQuestion], *, cast: Cast | None = None
) -> list[Callable[[], MaskedRound]]:
    """One masking session for the same round of several questions about the same users.

    Each question's outcome is a call, which raises RoundFailed for what is wrong with its sum alone. Sums are to the
    bit those of a session of its own. The sizes and times in its report are of the whole session.

    Args:
        questions: in the order of their vectors. The first one's source draws the session's keys.
        cast: which participants fall silent at which stage, and which lie; None for nobody.
    """
    lead = questions[0]
    round_, parts = lead.request.round, lead.request.plan.masks.participants
    run = new_run_name(source=lead.source.fork("masking", "run"))
    envelopes = [Envelope(run=run, request=one.request) for one in questions]
    terms = joint_terms(envelopes)
    draws = lead.source.fork("masking", round_.value)
    lying = {} if cast is None else cast.lying(round_, masked=True)
    asked = list[_Asked]()
    for one, envelope in zip(questions, envelopes, strict=True):
        watch = MaskedWatch(one.observe, envelope, parts)
        vectors = _Vectors(one.request, one.population, source=one.source, lying=lying)
        asked.append(_Asked(one, vectors, watch, one.source.fork("masking", round_.value)))
    requests = [one.request for one in questions]

    def noised(number: int, vector: Integers) -> Integers:
        own = zip(asked, apart(vector, requests), strict=True)
        return np.concatenate(
            [with_noise(part, one.question.request, own=one.draws.fork("noise", number)) for one, part in own]
        )

    def message(stage: str, to: str, device: int, data: bytes) -> None:
        for one in asked:
            one.watch.message(stage, to, device, data)

    with ExitStack() as watches:
        for question in asked:
            watches.callback(question.watch.close)
        run_ = run_cohort(
            terms,
            parts,
            lambda number: np.concatenate([one.vectors(number) for one in asked]),
            source=draws,
            noised=noised,
            dropouts=None if cast is None else cast.silent[round_],
            identities=identities(parts, source=draws.fork("identities")) if terms.signed else None,
            cores=min(os.cpu_count() or 1, 4) if parts >= _MANY else 1,
            watch=message,
        )
    values = apart(run_.values, requests)
    return [partial(_outcome, one, run_, part) for one, part in zip(asked, values, strict=True)]


@dataclass(frozen=True)
class _Asked:
    """A question in a masked round, with what its participants have and draw."""

    question: MaskedQuestion
    vectors: _Vectors
    watch: MaskedWatch
    draws: Source = field(repr=False)


def _outcome(asked: _Asked, run: MaskedSum, values: Integers) -> MaskedRound:
    """What became of one question."""
    request, watch = asked.question.request, asked.watch
    labels = labels_of(asked.question.population)
    known = range(asked.question.population.domain_size) if labels is None else labels
    exact = asked.vectors.sum_of(run.included)

    def read(values: Integers) -> Total:
        return numbered(to_total(values, request, participants=len(run.included)), known)

    total = read(values)
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
        lying: Mapping[int, FaultKind],
    ) -> None:
        self._request, self._labels, self._source = request, labels_of(population), source
        self._parts = enumerate(parts_of(population, request.plan.masks.participants))
        self._lying = lying
        self._made: list[int] = []
        self._sum = np.zeros(vector_length(request), dtype=np.int64)

    def __call__(self, number: int) -> Integers:
        """The vector of this participant, without noise."""
        kind = self._lying.get(number)
        part = told(next(part for place, part in self._parts if place == number), kind)
        vector = to_vector(
            answer_population(self._request, part, source=self._source), self._request, self._labels
        )
        if kind is FaultKind.OUT_OF_BOUNDS:
            vector[1:] += taken_away(self._request, part.users)
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
