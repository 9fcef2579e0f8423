"""What devices are asked for. A new measurement is a file here and a line in MEASUREMENTS."""

from __future__ import annotations

from typing import Any

from fedhist.protocol.measurements.bucket_totals import BucketTotals
from fedhist.protocol.measurements.clipped_items import ClippedItems
from fedhist.protocol.measurements.clipped_sum import ClippedSum
from fedhist.protocol.measurements.contract import Measurement
from fedhist.protocol.measurements.item_tail import ItemTailMeasurement
from fedhist.protocol.measurements.kept_items import KeptItems
from fedhist.protocol.measurements.kept_table import KeptTable
from fedhist.protocol.measurements.key_totals import KeyTotals
from fedhist.protocol.measurements.noisy_tail import NoisyTailMeasurement
from fedhist.protocol.measurements.tail import TailMeasurement

__all__ = ["MEASUREMENTS", "Measurement"]

MEASUREMENTS: dict[str, type[Measurement[Any]]] = {
    measurement.name: measurement
    for measurement in (
        TailMeasurement,
        NoisyTailMeasurement,
        ItemTailMeasurement,
        KeyTotals,
        BucketTotals,
        ClippedSum,
        ClippedItems,
        KeptItems,
        KeptTable,
    )
}
