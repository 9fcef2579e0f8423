"""One device's message from both sides, for people who want to see what leaves a device. NOT private."""

from __future__ import annotations

import numpy as np

from fedhist.client.device import answer
from fedhist.protocol.clips.clipping import entry_counts, entry_items, user_totals
from fedhist.protocol.events import VALUES_SHOWN, Viewed
from fedhist.protocol.histograms import Population, names_of
from fedhist.protocol.labels.renumbering import numbers_in, only_held
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round

_SAMPLE_RANK = 0.985


def device_view(request: Request, population: Population, *, source: Source) -> Viewed:
    """What one user's own device sends in this round, and what the server sees of it: the same, without masking.

    The user is one of the first shard who has more than most others. In round 2 the view has the device's items,
    largest first, with their counts and what clipping made of them.
    """
    shard = next(iter(population.shards()))
    # Somebody who has much, but not most: the same user in both rounds.
    user = int(np.argsort(user_totals(shard), kind="stable")[int(_SAMPLE_RANK * (shard.users - 1))])
    device = shard.rows(user, user + 1)
    names = names_of(population)
    if request.plan.items is None:
        device, names = only_held(device, names)
    contribution = answer(request, device, source=source, labels=names)
    shown = request.measurement.shown(contribution.summed, request.settled.names(names), VALUES_SHOWN)
    data = None
    if request.round is Round.RELEASE:
        # By number: two names may be written alike.
        keys = request.settled.keys
        places = range(device.domain_size) if keys is None else numbers_in(keys, names).tolist()
        numbers = range(device.domain_size if keys is None else len(keys))
        sent = dict(request.measurement.shown(contribution.summed, numbers, len(numbers)))
        counts = entry_counts(device)
        order = np.argsort(-counts, kind="stable")[:VALUES_SHOWN]
        held = entry_items(device)[order].tolist()
        shown = [(str(names[item]), sent.get(str(places[item]), 0.0)) for item in held]
        data = counts[order].astype(np.float64).tolist()
    places, values = [name for name, _ in shown[:VALUES_SHOWN]], [value for _, value in shown[:VALUES_SHOWN]]
    return Viewed(
        round=request.round.value,
        participant=f"user {device.first_user}",
        places=places,
        data=data,
        had=values,
        seen=list(values),
        masked=False,
    )
