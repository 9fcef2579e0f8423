"""`simulation.json` in a result folder: what only a simulation knows, for reports and figures. NOT private.

A deployment writes none: its result folder holds nothing but the release.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.events import Event, Scored, Viewed
from fedhist.protocol.histograms import Integers, Population
from fedhist.server.releases.contract import Release
from fedhist.simulations.clipped_sums import Measured, measure
from fedhist.simulations.diagnostics import released_numbers

SIMULATION_FILE = "simulation.json"
SIMULATION_VERSION = 1
WARNING = "not private, simulation only: computed from the exact data; never publish it for real users"
ITEMS_KEPT = 2_000
"""The true counts of this number of released items are kept, largest values first."""

_MISSED_KEPT = 20


def simulation_document(
    population: Population,
    release: Release,
    events: Iterable[Event],
    labels: Sequence[str | int] | None,
    measured: Measured | None = None,
) -> dict[str, Any]:
    """The document of a run, from what was measured of its users and from its events.

    Args:
        population: the users.
        release: the run's release.
        events: of the run; scores and views are taken from them.
        labels: names of the items.
        measured: what was measured; None takes one more pass over the population.
    """
    measured = measured or measure(population, release)
    numbers = released_numbers(population, release)
    document: dict[str, Any] = {
        "simulation": SIMULATION_VERSION,
        "warning": WARNING,
        "norm": release.round_plan.one_way.norm.value,
        "total": int(measured.truth.sum()),
        "curve": None if measured.curve is None else asdict(measured.curve),
        "users": asdict(measured.users),
        "true": _true_counts(release, numbers, measured.truth),
        "missed": _missed(numbers, measured.truth, labels),
        "scores": None,
        "views": [],
    }
    for event in events:
        if isinstance(event, Scored):
            document["scores"] = asdict(event)
        elif isinstance(event, Viewed):
            document["views"].append(asdict(event))
    return document


def write_simulation(folder: Path, document: dict[str, Any]) -> None:
    """Write the document into this folder."""
    text = json.dumps(document, allow_nan=False) + "\n"
    (folder / SIMULATION_FILE).write_text(text, encoding="ascii")


def read_simulation(path: Path) -> dict[str, Any]:
    """The document in this file; InvalidFile if it is none, or of another version."""
    document = read_object(path)
    if document is None or document.get("simulation") != SIMULATION_VERSION:
        raise InvalidFile(
            f"{path} is not a {SIMULATION_FILE} of version {SIMULATION_VERSION}",
            allowed="the file as a run wrote it",
            advice="remove it to get a report of the release alone",
        )
    return document


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in this file; None if it holds none, has a number that is not finite, or can't be read."""
    try:
        document = json.loads(path.read_bytes(), parse_float=_finite, parse_constant=_finite)
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _true_counts(release: Release, numbers: Integers, truth: Integers) -> list[list[int]]:
    """Pairs of a row of the histogram and its true count, for the rows with the largest values.

    A known item that nobody has is released too, and has a number beyond those of the population.
    """
    rows = np.argsort(-release.histogram, kind="stable")[:ITEMS_KEPT]
    truth = np.append(truth, 0)
    return (
        np.stack([rows, truth[np.minimum(numbers[rows], len(truth) - 1)]], axis=1).tolist()
        if len(rows)
        else []
    )


def _missed(numbers: Integers, truth: Integers, labels: Sequence[str | int] | None) -> list[list[str | int]]:
    """The largest items that were not released, with their true counts."""
    hidden = truth.copy()
    hidden[numbers[numbers < len(truth)]] = 0
    largest = np.argsort(-hidden, kind="stable")[:_MISSED_KEPT].tolist()
    return [
        [str(item if labels is None else labels[item]), int(hidden[item])] for item in largest if hidden[item]
    ]
