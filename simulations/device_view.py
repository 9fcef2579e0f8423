"""One device's message from both sides, for people who want to see what leaves a device. The device is made up."""

from __future__ import annotations

import numpy as np

from fedhist.client.device import answer
from fedhist.protocol.events import VALUES_SHOWN, Viewed
from fedhist.protocol.histograms import Histograms, Labels
from fedhist.protocol.masking.masked_vector import to_vector
from fedhist.protocol.masking.vectors import to_integers, to_residues
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Request, Round

_LARGEST = 40
MADE_UP = "a made-up user"
"""Who is shown: nobody."""


def device_view(request: Request, listed: Labels | None) -> Viewed:
    """What a device would send in this round, and what the server would see of it: the same, without masking.

    No user of the run is looked at. The device has the counts 40, 20, 13, 10, ... of the first items of a closed
    domain, of those that a discovery released, or of made-up ones. With masks the server sees their sum with numbers
    that are drawn evenly, as masks are.

    Args:
        request: of the round.
        listed: the names of a closed domain; None for numbers.
    """
    plan, keys = request.plan, request.settled.keys
    names: Labels = range(plan.items or 0) if listed is None else listed
    if plan.items is None:
        names = [f"item {number + 1}" for number in range(VALUES_SHOWN)] if keys is None else list(keys)
    shown = min(VALUES_SHOWN, len(names))
    counts = _LARGEST // np.arange(1, shown + 1)
    device = Histograms(np.array([0, shown]), np.arange(shown), counts, len(names))
    source = SeededSource(0)
    sent = answer(request, device, source=source, labels=names)
    data: list[float] | None = None
    if plan.is_masked:
        vector = to_vector(sent, request, names)
        masks, width = source.words(len(vector)).view(np.int64), request.measurement.masked_width
        masked = to_integers(to_residues(vector, width) + to_residues(masks, width))
        at = np.flatnonzero(vector)[:VALUES_SHOWN]
        named = request.round is Round.RELEASE and request.measurement.masked_length == len(names)
        places = [_place(place, names if named else None) for place in at.tolist()]
        had, seen = vector[at].astype(np.float64).tolist(), masked[at].astype(np.float64).tolist()
    elif request.round is Round.RELEASE:
        kept = dict(request.measurement.shown(sent.summed, range(len(names)), shown))
        places, data = [str(names[item]) for item in range(shown)], counts.astype(np.float64).tolist()
        had = seen = [kept.get(str(item), 0.0) for item in range(shown)]
    else:
        measured = request.measurement.shown(sent.summed, names, VALUES_SHOWN)
        places, had = [name for name, _ in measured], [value for _, value in measured]
        seen = had
    return Viewed(
        round=request.round.value,
        participant=MADE_UP,
        places=places,
        data=data,
        had=had,
        seen=seen,
        masked=plan.is_masked,
    )


def _place(place: int, names: Labels | None) -> str:
    """The name of a value in the masked vector; the first is the number of users."""
    if place == 0:
        return "users"
    return f"value {place}" if names is None else str(names[place - 1])
