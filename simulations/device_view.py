"""One device's message from both sides, for people who want to see what leaves a device. NOT private."""

from __future__ import annotations

import numpy as np

from fedhist.client.device import answer, bucket_table
from fedhist.protocol.clips.clipping import entry_counts, entry_items, user_totals
from fedhist.protocol.events import VALUES_SHOWN, Viewed
from fedhist.protocol.histograms import Histograms, Population, labels_of
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Contribution, Labels, ReleaseRequest, Request
from fedhist.protocol.wire.codec import bins_per_item

_SAMPLE_RANK = 0.985


def device_view(request: Request, population: Population, *, source: Source) -> Viewed:
    """What one user's own device sends in this round, and what the server sees of it: the same, without masking.

    The user is one of the first shard who has more than most others.
    """
    labels = labels_of(population)
    shard = next(iter(population.shards()))
    user = _sample(shard)
    device = shard.rows(user, user + 1)
    names: Labels = range(population.domain_size) if labels is None else labels
    contribution = answer(request, device, source=source, bucket_of=bucket_table(request.plan, names))
    if isinstance(request, ReleaseRequest):
        return _release_view(request, device, contribution, names)
    return _select_view(request, device, contribution, names)


def _sample(shard: Histograms) -> int:
    """Somebody who has much, but not most: the same user in both rounds."""
    totals = user_totals(shard)
    return int(np.argsort(totals, kind="stable")[int(_SAMPLE_RANK * (len(totals) - 1))])


def _release_view(
    request: ReleaseRequest, device: Histograms, contribution: Contribution, names: Labels
) -> Viewed:
    """The device's items, largest first: their counts, and what clipping made of them."""
    items, counts = entry_items(device), entry_counts(device)
    order = np.argsort(-counts, kind="stable")[:VALUES_SHOWN]
    if contribution.keyed is None:
        sent = np.ldexp(contribution.values[items].astype(np.float64), -request.plan.grid_bits)
    else:
        kept = dict(
            zip(contribution.keyed.keys.tolist(), contribution.keyed.values[:, 0].tolist(), strict=True)
        )
        sent = np.array([float(kept.get(item, 0)) for item in items.tolist()])
    values = sent[order].tolist()
    return Viewed(
        round=request.round.value,
        participant=_name(device),
        places=[str(names[item]) for item in items[order].tolist()],
        data=counts[order].astype(np.float64).tolist(),
        had=values,
        seen=list(values),
        masked=False,
    )


def _select_view(request: Request, device: Histograms, contribution: Contribution, names: Labels) -> Viewed:
    """The values of round 1 that are not zero, by bin; by item and bin where names travel."""
    places, values = [], []
    bins = len(contribution.values) // 2
    closed = not request.plan.is_open and not request.plan.per_item
    for place in np.flatnonzero(contribution.values)[:VALUES_SHOWN].tolist():
        value = float(contribution.values[place])
        weight = closed and place >= bins
        places.append(
            f"weight in bin {place - bins}"
            if weight
            else f"users in bin {place}"
            if closed
            else f"value {place}"
        )
        values.append(value / 2**WEIGHT_BITS if weight else value)
    if contribution.keyed is not None:
        width = bins_per_item(request)
        for key, row in zip(
            contribution.keyed.keys.tolist(), contribution.keyed.values.tolist(), strict=True
        ):
            if len(places) >= VALUES_SHOWN:
                break
            item, place = divmod(key, width)
            places.append(f"{names[item]}, bin {place}")
            values.append(float(max(row)))
    return Viewed(
        round=request.round.value,
        participant=_name(device),
        places=places,
        data=None,
        had=values,
        seen=list(values),
        masked=False,
    )


def _name(device: Histograms) -> str:
    return f"user {device.first_user}"
