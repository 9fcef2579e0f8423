"""What devices are asked for. A new measurement is a file here and a line in this registry."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedhist.protocol.measurements.contract import Measurement

__all__ = ["MEASUREMENTS", "Measurement"]

_PLACES = (
    "key_weights:KeyWeights",
    "key_weights_table:KeyWeightsTable",
    "tail:TailMeasurement",
    "norm_tails:NormTailsMeasurement",
    "noisy_tail:NoisyTailMeasurement",
    "item_tail:ItemTailMeasurement",
    "key_totals:KeyTotals",
    "bucket_totals:BucketTotals",
    "clipped_sum:ClippedSum",
    "clipped_items:ClippedItems",
    "kept_items:KeptItems",
    "kept_table:KeptTable",
)


def _load(place: str) -> type[Measurement[Any]]:
    module, name = place.split(":")
    measurement: type[Measurement[Any]] = getattr(import_module(f"{__name__}.{module}"), name)
    return measurement


MEASUREMENTS = {measurement.name: measurement for measurement in map(_load, _PLACES)}
if len(MEASUREMENTS) < len(_PLACES):
    raise ImportError("two measurements have the same name")
