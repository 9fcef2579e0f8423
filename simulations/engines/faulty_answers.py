"""What faulty nodes make of an honest answer, and sums over some of the users alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhist.protocol.histograms import MAX_USER_TOTAL, Histograms, Integers, Labels, Population, labels_of
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.rounds import Request
from fedhist.protocol.wire.codec import decode, encode
from fedhist.simulations.engines.fault_cast import Places
from fedhist.simulations.engines.passes import Adding, Tally
from fedhist.simulations.faults import FaultKind


def inflated(users: Histograms) -> Histograms:
    """The same number of users, each with the last item alone, as often as a user may have anything.

    What is made of them by the honest code is the largest that this number of users can send for one item.
    """
    number = users.users
    return Histograms(
        offsets=np.arange(number + 1),
        items=np.full(number, users.domain_size - 1),
        counts=np.full(number, MAX_USER_TOTAL),
        domain_size=users.domain_size,
        first_user=users.first_user,
    )


@dataclass(frozen=True)
class Inflated:
    """The population of a node that lies within the bounds."""

    true: Population = field(repr=False)

    @property
    def users(self) -> int:
        """As many as there are."""
        return self.true.users

    @property
    def domain_size(self) -> int:
        """The number of items."""
        return self.true.domain_size

    @property
    def labels(self) -> Labels | None:
        """What the items are called."""
        return labels_of(self.true)

    def shards(self) -> Iterator[Histograms]:
        """Made up."""
        return map(inflated, self.true.shards())


def told(population: Population, kind: FaultKind | None) -> Population:
    """The users that a node claims to have."""
    return Inflated(population) if kind is FaultKind.INFLATE else population


def taken_away(request: Request, users: int) -> int:
    """What a node out of bounds adds to each value: below zero, whatever its users have.

    An honest value is at most the largest of each user. So this takes away a little more than they could ever add.
    """
    return -(request.measurement.shape.largest * users + 1)


def spoiled(kind: FaultKind, data: bytes, request: Request) -> bytes:
    """The bytes of an honest answer as a node of this kind sends them."""
    match kind:
        case FaultKind.MALFORMED:
            return data[:-1]
        case FaultKind.OUT_OF_BOUNDS:
            contribution, labels = decode(data, request)
            more = taken_away(request, contribution.users)
            keyed = contribution.keyed
            if keyed is not None:
                if keyed.length == 0:
                    columns = keyed.values.shape[1]
                    keyed, labels = Keyed(np.zeros(1, np.int64), np.zeros((1, columns), np.int64)), ["0"]
                keyed = Keyed(keyed.keys, keyed.values + more)
            lie = replace(contribution, values=contribution.values + more, keyed=keyed)
            return encode(lie, request, labels)
        case _:
            return data


@dataclass(frozen=True, eq=False)
class Among:
    """A tally over some of the users alone.

    Args:
        tally: what is added up.
        kept: the numbers of these users, in ranges that rise.
        lying: whether they claim to have what `inflated` makes of them.
    """

    tally: Tally[Any]
    kept: Places = field(repr=False)
    lying: bool = False

    def begin(self, population: Population) -> _Some:
        """Nobody yet."""
        return _Some(self, self.tally.begin(population))

    def plus(self, sums: Sequence[Any]) -> Any:
        """As of all users."""
        return self.tally.plus(sums)


class _Some:
    def __init__(self, among: Among, adding: Adding[Any]) -> None:
        self._adding, self._lying = adding, among.lying
        self._starts = _column(among.kept, 0)
        self._stops = _column(among.kept, 1)

    def add(self, shard: Histograms) -> None:
        first, end = shard.first_user, shard.first_user + shard.users
        low, high = np.searchsorted(self._stops, first, "right"), np.searchsorted(self._starts, end)
        for start, stop in zip(self._starts[low:high].tolist(), self._stops[low:high].tolist(), strict=True):
            kept = shard.rows(max(start, first) - first, min(stop, end) - first)
            self._adding.add(inflated(kept) if self._lying else kept)

    def result(self) -> Any:
        return self._adding.result()


def among(tally: Tally[Any], places: Places, first: int, *, lying: bool = False) -> Among:
    """A tally over the users at these places, of a population whose first user has this number."""
    return Among(tally, tuple((first + start, first + stop) for start, stop in places), lying)


def _column(kept: Places, side: int) -> Integers:
    return np.array([place[side] for place in kept], dtype=np.int64)
