"""What one participant answers. A phone is a batch of one user, a node a batch of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Histograms, Integers, Labels, Population, labels_of, names_of
from fedhist.protocol.keyed import KeyedSum
from fedhist.protocol.labels.renumbering import Renumbering, numbers_in
from fedhist.protocol.measurements import Measurement
from fedhist.protocol.privacy.randomness import KeyedSource, Source
from fedhist.protocol.rounds import Contribution, Request
from fedhist.protocol.wire.codec import encode
from fedhist.protocol.wire.envelope import Envelope


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
    measurement, listed = request.measurement.with_labels(names), _listed(request, names)
    for device in devices:
        yield _contribution(request, measurement, (device,), listed, source)


def answer_population(request: Request, population: Population, *, source: Source) -> Contribution:
    """The contribution of all users of a participant, one shard in memory at a time."""
    names = names_of(population)
    measurement = request.measurement.with_labels(names)
    return _contribution(request, measurement, population.shards(), _listed(request, names), source)


def _listed(request: Request, names: Labels) -> Renumbering | None:
    """The places of the participant's items in the list that the request settles; None if it settles none."""
    keys = request.settled.keys
    return None if keys is None else Renumbering(numbers_in(keys, names), len(keys))


def _contribution(
    request: Request,
    measurement: Measurement[Any],
    shards: Iterable[Histograms],
    listed: Renumbering | None,
    source: Source,
) -> Contribution:
    plan, shape = request.round_plan, measurement.shape
    draws = source.fork("device", request.round.value)
    values = np.zeros(shape.length, dtype=np.int64)
    keyed = KeyedSum(shape.columns) if shape.columns else None
    users = 0
    for held in shards:
        shard = held if listed is None else listed.of(held)
        if plan.items not in (None, shard.domain_size):
            raise InvalidPopulation(
                f"the data has {shard.domain_size} items and the plan {plan.items}",
                allowed="the same closed domain on every device",
            )
        summed = measurement.of(shard, source=draws)
        values += summed.values
        if keyed is not None and summed.keyed is not None:
            keyed.add(summed.keyed)
        users += shard.users
    return Contribution(
        round=request.round,
        plan_digest=request.plan.digest,
        users=users,
        values=values,
        keyed=None if keyed is None else keyed.total(),
    )


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
    draws = source if source.seeded else KeyedSource(secret, purpose=envelope.fingerprint)
    contribution = answer_population(envelope.request, population, source=draws)
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
        )
    return values + share.draw(len(values), source=source.fork("device", "noise-share", request.round.value))
