"""What one participant answers. A phone is a batch of one user, a node a batch of many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhist.protocol.clips.clipping import sum_clipped
from fedhist.protocol.clips.random_clip import sum_random_clipped
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Histograms, Integers, Population, labels_of
from fedhist.protocol.keyed import Keyed, KeyedSum
from fedhist.protocol.measurements.item_tail import item_tail_vector, sum_clipped_items
from fedhist.protocol.measurements.noisy_tail import noisy_tail_vector
from fedhist.protocol.measurements.open_statistics import bucketed_statistic, plain_statistic
from fedhist.protocol.measurements.tail import tail_vector
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import KeyedSource, Source
from fedhist.protocol.rounds import Contribution, ReleaseRequest, Request, SelectRequest
from fedhist.protocol.sketch.buckets import bucket_numbers
from fedhist.protocol.wire.codec import encode
from fedhist.protocol.wire.envelope import Envelope

_NOTHING = np.zeros(0, dtype=np.int64)


def answer(
    request: Request, histograms: Histograms, *, source: Source, bucket_of: Integers | None = None
) -> Contribution:
    """The participant's contribution to this round: the sum of the asked statistic over its users.

    Args:
        request: what the server asks.
        histograms: the participant's users.
        source: for what clipping draws.
        bucket_of: the bucket of each item number, for a plan that asks for the bucketed statistic.
    """
    plan = request.plan
    if not plan.is_open and histograms.domain_size != plan.items:
        raise InvalidPopulation(
            f"the data has {histograms.domain_size} items and the plan {plan.items}",
            allowed="the same closed domain on every device",
        )
    values, keyed = _statistic(request, histograms, source, bucket_of)
    return Contribution(
        round=request.round, plan_digest=plan.digest, users=histograms.users, values=values, keyed=keyed
    )


def answer_population(request: Request, population: Population, *, source: Source) -> Contribution:
    """The contribution of all users of a participant, one shard in memory at a time."""
    labels = labels_of(population)
    bucket_of = bucket_table(request.plan, range(population.domain_size) if labels is None else labels)
    values = np.zeros(request.length, dtype=np.int64)
    keyed = KeyedSum(request.keyed_columns) if request.keyed_columns else None
    users = 0
    for shard in population.shards():
        contribution = answer(request, shard, source=source, bucket_of=bucket_of)
        values += contribution.values
        if keyed is not None and contribution.keyed is not None:
            keyed.add(contribution.keyed)
        users += contribution.users
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
    share = request.noise_share
    if share is None or len(values) != request.length:
        raise InvalidInput(
            "a share of noise for values that take none",
            allowed="the whole answer to a request of a plan with noise from devices",
        )
    return values + share.draw(len(values), source=source.fork("device", "noise-share", request.round.value))


def bucket_table(plan: Plan, labels: Sequence[str | int]) -> Integers | None:
    """The bucket of each of a participant's items, if the plan asks for buckets; salted with the plan's public name."""
    if not plan.is_open or plan.statistic != "bucketed":
        return None
    return bucket_numbers(labels, plan.buckets, salt=plan.digest)


def _statistic(
    request: Request, histograms: Histograms, source: Source, bucket_of: Integers | None
) -> tuple[Integers, Keyed | None]:
    plan = request.plan
    match request:
        case SelectRequest() if plan.is_open:
            return _open_statistic(plan, histograms, bucket_of)
        case SelectRequest():
            return _closed_statistic(plan, histograms), None
        case ReleaseRequest(item_thresholds=thresholds) if thresholds is not None:
            return sum_clipped_items(histograms, thresholds, bits=plan.grid_bits), None
        case ReleaseRequest(threshold=threshold) if plan.is_open:
            draws = source.fork("device", request.round.value)
            return _NOTHING, _support(sum_random_clipped(histograms, threshold.steps, source=draws))
        case ReleaseRequest(threshold=threshold):
            draws = source.fork("device", request.round.value)
            return sum_clipped(histograms, threshold, norm=plan.norm, source=draws), None


def _closed_statistic(plan: Plan, histograms: Histograms) -> Integers:
    if plan.noise_by_devices:
        return noisy_tail_vector(histograms, plan)
    if plan.per_item:
        return item_tail_vector(histograms, plan.candidate_steps, bits=plan.grid_bits)
    return tail_vector(
        histograms, plan.candidate_steps, bits=plan.grid_bits, norm=plan.norm, cap=plan.tail_cap
    )


def _open_statistic(
    plan: Plan, histograms: Histograms, bucket_of: Integers | None
) -> tuple[Integers, Keyed | None]:
    candidates = plan.candidate_steps
    cap = int(candidates[-1])
    if plan.statistic == "plain":
        return plain_statistic(histograms, candidates, cap)
    assert bucket_of is not None  # noqa: S101 - whoever asks for buckets made the table
    return bucketed_statistic(histograms, candidates, cap, bucket_of=bucket_of, buckets=plan.buckets), None


def _support(counts: Integers) -> Keyed:
    """The items with a positive clipped sum, and nothing of the others: their absence must not show."""
    present = np.flatnonzero(counts)
    return Keyed(keys=present, values=counts[present][:, np.newaxis])
