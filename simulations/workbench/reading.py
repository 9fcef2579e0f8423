"""How `fedhist.compare` and `fedhist.predict` are told to read data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from fedhist.client.files.columns import Columns
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.workbench.arguments import labels_in


def reading_of(
    *,
    user: str | int,
    item: str | int,
    count: str | int | None,
    separator: str | None,
    strict: bool,
    bins: Collection[float] | None,
    items: Any,
    normalise: str | None,
    memory: str | int | None,
    domain: Any,
) -> Wanted:
    """Data that is read like this; `items` is a public list or, as a whole number, the size of synthetic data."""
    columns = Columns(user=user, item=item, count=count, separator=separator, strict=strict, bins=bins)
    reading = Wanted(columns=columns, open_domain=domain == "open", normalise=normalise, memory=memory)
    if isinstance(items, int):
        return replace(reading, items=items)
    return replace(reading, item_names=labels_in(items))
