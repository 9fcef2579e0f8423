"""What devices are asked for. A new measurement is a class in this folder and a line in this registry."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.measurements.base import Measurement, Round
from fedhist.protocol.plan.fields import RELEASE_NAMES
from fedhist.protocol.plugins import Kind, Registry

__all__ = ["MEASUREMENTS", "Measurement"]

_PLACES = (
    "keys:KeyWeights",
    "keys:KeyWeightsTable",
    "tails:TailMeasurement",
    "tails:NormTailsMeasurement",
    "noisy_tail:NoisyTailMeasurement",
    "tails:ItemTailMeasurement",
    "key_totals:KeyTotals",
    "sums:ClippedSum",
    "sums:ClippedItems",
    "keys:KeptItems",
)


def _load(place: str) -> type[Measurement[Any]]:
    module, name = place.split(":")
    measurement: type[Measurement[Any]] = getattr(import_module(f"{__name__}.{module}"), name)
    return measurement


def _check(thing: type[Measurement[Any]]) -> None:
    """Refuse anything but a class that measures something new under a name that nobody else has."""
    if not isinstance(thing, type):
        raise InvalidInput(
            f"an instance of the measurement {type(thing).__qualname__}",
            allowed="the class, which is made for each plan",
        )
    missing = [field for field in ("name", "round", "where") if not hasattr(thing, field)]
    if missing or not isinstance(thing.round, Round):
        raise InvalidInput(
            f"the measurement {thing.__qualname__} has no {', '.join(missing) or 'round of a run'}",
            allowed="a measurement with name, round and where",
        )
    # What devices count is the cost of the round, so a measurement is of the round whose cost its sum is charged with.
    of = {Round.SELECT} if thing.offers else {Round.SELECT, Round.RELEASE}
    of &= {Round.RELEASE} if thing.releases else of
    if thing.round not in of:
        raise InvalidInput(
            f"the measurement {thing.name} is of the round {thing.round.value}",
            allowed="select for one that offers something to selectors, and release for one with releases",
            code="wrong-round",
        )
    taken = {
        offer for other, kind in MEASUREMENTS.items() if other != thing.name for offer in kind.offers
    } & thing.offers
    if taken:
        raise InvalidInput(
            f"the measurement {thing.name} offers {', '.join(sorted(taken))}, which another one offers",
            allowed="names of its own in offers",
            code="offers-taken",
        )
    named = {None, *RELEASE_NAMES} & set(thing.releases)
    if named:
        raise InvalidInput(
            f"the measurement {thing.name} is for releases of the project",
            allowed="in releases, the names of release rules from outside",
            code="not-your-release",
        )


MEASUREMENTS: Registry[type[Measurement[Any]]] = Registry(
    Kind.MEASUREMENT,
    {measurement.name: measurement for measurement in map(_load, _PLACES)},
    base=Measurement,
    instances=False,
    check=_check,
)
if len(MEASUREMENTS) < len(_PLACES):
    raise ImportError("two measurements have the same name")
