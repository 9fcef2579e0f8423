"""What earlier releases of a campaign give to the next window. Releases are public, so this costs nothing.

- **Items.** The keys that an open domain's windows released are known items of the next, which counts them without
  finding them first. With `--discover first` they are the whole list from then on: the next window's domain is closed.
- **The threshold.** With `--thresholds first`, the first one is fixed for all later windows. With `narrow`, the next
  choice is between C/8 and 8 C, within the plan's own range, where C is the last one.

Why the ledger's count still holds: a later plan is a function of earlier releases, which is what its filter allows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.plan.window import Window
from fedhist.server.campaign.budget import SOME_ITEMS, WindowBudget
from fedhist.server.campaign.definition import Definition
from fedhist.server.campaign.state import WindowState

HISTOGRAM_FILE = "histogram.csv"
NARROW_FACTOR = 8.0
"""A later choice is between the last threshold divided by this and multiplied by it."""


@dataclass(frozen=True)
class Earlier:
    """What is public of the windows so far.

    Args:
        keys: the items that they released, in the order in which they first were.
        first_threshold, last_threshold: those of the first and the last window that has one; None if none has.
    """

    keys: tuple[str, ...] = ()
    first_threshold: float | None = None
    last_threshold: float | None = None


def earlier_of(states: Sequence[WindowState]) -> Earlier:
    """What the released windows among these tell, in the order of the calendar."""
    released = [state for state in states if state.document is not None]
    keys = dict.fromkeys(key for state in released for key in keys_in(state.folder))
    # A release that found nothing has the threshold 0.
    found = [float(state.document["threshold"] or 0) for state in released if state.document is not None]
    thresholds = [threshold for threshold in found if threshold > 0]
    return Earlier(tuple(keys), *((thresholds[0], thresholds[-1]) if thresholds else ()))


def keys_in(folder: Path) -> Iterator[str]:
    """The names of a release's items that a list of known items can hold."""
    try:
        with (folder / HISTOGRAM_FILE).open(newline="", encoding="utf-8", errors="surrogatepass") as file:
            for row in csv.DictReader(file):
                if row["item"] and "\n" not in row["item"] and "\r" not in row["item"]:
                    yield row["item"]
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        raise InvalidFile(
            f"{folder / HISTOGRAM_FILE} is missing or damaged",
            allowed="the release as the campaign wrote it",
            advice="restore it from a copy",
        ) from None


def next_window(
    definition: Definition, window: Window, earlier: Earlier
) -> tuple[dict[str, Any], tuple[str, ...] | None, WindowBudget]:
    """The fields of the window's plan, the public list of its items if there is one, and its budget."""
    fields, items = dict(definition.plan), definition.items
    finds = fields.get("domain") == "open" and fields.get("release") in (None, "discover")
    settled = definition.thresholds != "first" or earlier.first_threshold is not None
    settled = settled and (definition.discover != "first" or bool(earlier.keys))
    if finds and earlier.keys:
        own = (fields.get("known_items") or "").split("\n") if fields.get("known_items") else []
        known = tuple(dict.fromkeys([*own, *earlier.keys]))
        if definition.discover == "first" and settled:
            fields |= of_known_items(fields)
            items = known
        else:
            fields["known_items"] = "\n".join(known)
    if definition.thresholds == "first" and settled:
        fields |= {"selector": "fixed", "threshold": earlier.first_threshold}
    elif definition.thresholds == "narrow" and earlier.last_threshold is not None:
        fields |= narrowed(fields, earlier.last_threshold)
    budget = definition.later if settled else definition.first
    return fields | dict(budget.fields) | {"window": window.text}, items, budget


def narrowed(fields: Mapping[str, Any], threshold: float) -> dict[str, float]:
    """The range of a later choice, within that of the plan."""
    low, high = float(fields["min_threshold"]), float(fields["max_threshold"])
    least = min(max(threshold / NARROW_FACTOR, low), high)
    return {"min_threshold": least, "max_threshold": max(min(threshold * NARROW_FACTOR, high), least)}


def of_known_items(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the plan of a window whose items are all known, in the place of one that finds them."""
    return {"domain": "closed", "release": None, "known_items": None}


def like_later(fields: Mapping[str, Any], *, thresholds: str, discover: str) -> dict[str, Any]:
    """The fields of a later window's plan, as far as its cost is concerned."""
    later = dict(fields)
    if discover == "first":
        later |= of_known_items(fields) | {"items": SOME_ITEMS}
    if thresholds == "first":
        later |= {"selector": "fixed", "threshold": fields["min_threshold"]}
    return later
