"""What one participant answers. A phone is a batch of one user, a node a batch of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fedhist.client.freed_memory import keep_freed_memory
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Histograms, Integers, Labels, Population, labels_of, names_of
from fedhist.protocol.items import Renumbering, numbers_in
from fedhist.protocol.keyed import KeyedSum
from fedhist.protocol.privacy.randomness import KeyedSource, Source
from fedhist.protocol.rounds import Contribution, Request
from fedhist.protocol.wire.envelope import Envelope, encode


def answer(
    request: Request, histograms: Histograms, *, source: Source, labels: Labels | None = None
) -> Contribution:
    """The contribution of these users to this round: the sum of what is measured.

    Args:
        request: what the server asks.
        histograms: the users.
        source: for what clipping draws.
        labels: what the participant calls its items; None by their numbers.
    """
    names = range(histograms.domain_size) if labels is None else labels
    return next(answers(request, (histograms,), names, source=source))


def answers(
    request: Request, devices: Iterable[Histograms], names: Labels, *, source: Source
) -> Iterator[Contribution]:
    """The contribution of each of these devices by itself; all call their items by these names."""
    answering = Answering(request, names, source=source)
    for device in devices:
        answering.add(device)
        yield answering.result()


def answer_population(request: Request, population: Population, *, source: Source) -> Contribution:
    """The contribution of all users of a participant, one shard in memory at a time."""
    answering = Answering(request, names_of(population), source=source)
    for shard in population.shards():
        answering.add(shard)
    return answering.result()


class Answering:
    """A contribution as it adds up, shard by shard."""

    def __init__(self, request: Request, names: Labels, *, source: Source) -> None:
        """Of users that call their items by these names."""
        keep_freed_memory()
        self._request, keys = request, request.settled.keys
        self._measurement = request.measurement.with_labels(names)
        # The places of the participant's items in the list that the request settles, if it settles one.
        self._listed = None if keys is None else Renumbering(numbers_in(keys, names), len(keys))
        self._source = source
        self._begin()

    def _begin(self) -> None:
        shape = self._measurement.shape
        self._values = np.zeros(shape.length, dtype=np.int64)
        self._keyed = KeyedSum(shape.columns) if shape.columns else None
        self._draws = self._source.fork("device", self._request.round.value)
        self._users = 0

    def add(self, held: Histograms) -> None:
        """The sum grows by what these users are asked for."""
        shard = held if self._listed is None else self._listed.of(held)
        items = self._request.round_plan.items
        if items not in (None, shard.domain_size):
            raise InvalidPopulation(
                f"the data has {shard.domain_size} items and the plan {items}",
                allowed="the same closed domain on every device",
                code="other-number-of-items",
            )
        summed = self._measurement.of(shard, source=self._draws)
        self._values += summed.values
        if self._keyed is not None and summed.keyed is not None:
            self._keyed.add(summed.keyed)
        self._users += shard.users

    def result(self) -> Contribution:
        """The contribution of the users since the last result."""
        done = Contribution(
            round=self._request.round,
            plan_digest=self._request.plan.digest,
            users=self._users,
            values=self._values,
            keyed=None if self._keyed is None else self._keyed.total(),
        )
        self._begin()
        return done


def clear_answer(envelope: Envelope, population: Population, *, secret: bytes, source: Source) -> bytes:
    """A participant's answer to a request without masks, as bytes. One request, one view.

    A server that asks again must not see another draw of the clipping: at C = 5, sixty of them would show nearly all of
    a user's items. So what users draw comes from a secret of the participant and from the request, and the same request
    has the same answer.

    Args:
        envelope: the request, with the name of its run.
        population: the participant's users.
        secret: the participant's own, which it keeps.
        source: of a simulation, if it is seeded; any other is not used.
    """
    if not source.seeded:  # audited: draws repeated
        source = KeyedSource(secret, purpose=envelope.fingerprint)
    contribution = answer_population(envelope.request, population, source=source)
    return encode(contribution, envelope.request, labels_of(population))


def add_noise_share(request: Request, values: Integers, *, source: Source) -> Integers:
    """The sum over a participant's users plus its share of the noise: once for each participant and round.

    The result leaves the participant only under a mask. One share alone is far less noise than the sum needs.

    Args:
        request: what the server asks, of a plan whose devices add the noise.
        values: the sum over all users of the participant, as `answer_population` returns it; not changed.
        source: the participant's own: two participants that share a seeded source would add the same noise.
    """
    share = request.measurement.share
    if share is None or len(values) != request.measurement.shape.length:
        raise InvalidInput(
            "a share of noise for values that take none",
            allowed="the whole answer to a request of a plan with noise from devices",
            code="no-noise-to-share",
        )
    return values + share.draw(len(values), source=source.fork("device", "noise-share", request.round.value))
