"""How far a release is from the exact data, and `simulation.json`, which keeps it for reports and figures. NOT private.

Only an evaluated run has it: a deployment writes nothing but the release.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedhist.display.tables import html_table
from fedhist.protocol.clipping import entry_counts, entry_items, is_clipped, row_sums
from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.events import Event, Scored, Viewed
from fedhist.protocol.grid import Threshold, to_steps
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels, Population, names_of
from fedhist.protocol.items import Renumbering, numbers_in
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.rounds import Contribution, Round, Total
from fedhist.server.releases.contract import Release
from fedhist.simulations.clipped_sums import Measured, measure

SIMULATION_FILE = "simulation.json"
SIMULATION_VERSION = 1
WARNING = "not private, simulation only: computed from the exact data; never publish it for real users"
ITEMS_KEPT = 2_000
"""The true counts of this number of released items are kept, largest values first."""

_MISSED_KEPT = 20


@dataclass(frozen=True)
class Diagnostics:
    """What the simulation knows of the truth. NOT private: never publish it for real users' data.

    All errors are l1 norms over the true total.

    Args:
        relative_loss: of the released values.
        estimate_loss: of the estimates.
        clipping_error: of the clipped sum before noise.
        noise_error: of the noise alone.
        clipped_users: share of users above the threshold.
        clipped_mass: share of all counts that clipping removed.
        precision, recall: of the released keys of an open domain against the items that somebody has.
        relative_loss_clipped: before debiasing, where items were debiased.
    """

    relative_loss: float
    estimate_loss: float
    clipping_error: float
    noise_error: float
    clipped_users: float
    clipped_mass: float
    precision: float | None = None
    recall: float | None = None
    relative_loss_clipped: float | None = None

    def _repr_html_(self) -> str:
        """How a notebook shows it: by name."""
        known = (
            (name.replace("_", " "), f"{value:.4f}")
            for name, value in asdict(self).items()
            if value is not None
        )
        return html_table("Diagnostics (not private, simulation only)", known)

    def to_json(self) -> dict[str, Any]:
        """By name; `precision_recall` over an open domain only."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        keys = {name: known.pop(name) for name in ("precision", "recall") if name in known}
        return known | {"precision_recall": keys} if keys else known


def diagnose(
    population: Population,
    release: Release,
    totals: Mapping[Round, Total],
    truth: Integers,
    clipped_users: int,
    *,
    clean: Contribution | None = None,
) -> Diagnostics:
    """The errors of a release against the exact histogram, and what clipping and noise have in them.

    Args:
        population: the users.
        release: over them.
        totals: the exact totals of the rounds.
        truth: how often all users together have each item.
        clipped_users: from how many clipping took something, as `ClippedUsers` counts them.
        clean: what all users would have answered in the last round, where nodes were faulty: for the clipping.
    """
    plan, total = release.plan, int(truth.sum())
    numbers = released_numbers(population, release)
    clipped, released, estimated = dense(population, release, totals.get(Round.RELEASE))
    summed = clipped
    if clean is not None:
        answered = Total(clean.users, clean.values, clean.keyed)
        clipped = _padded(dense(population, release, answered).clipped, len(summed))
    # Known items that nobody holds are released, too, and their true count is 0.
    truth = np.concatenate([truth, np.zeros(len(clipped) - len(truth), dtype=np.int64)])
    losses = {
        "relative_loss": np.abs(released - truth).sum() / total,
        "estimate_loss": np.abs(estimated - truth).sum() / total,
        "clipping_error": np.abs(clipped - truth).sum() / total,
        "noise_error": np.abs(released - summed).sum() / total,
        "clipped_users": clipped_users / population.users,
        "clipped_mass": 1 - clipped.sum() / total,
    }
    if plan.is_open:
        shown = np.count_nonzero(truth[numbers])
        losses["precision"] = shown / max(len(numbers), 1)
        losses["recall"] = shown / np.count_nonzero(truth)
    if release.item_release is not None:
        before = release.item_release.clipped
        losses["relative_loss_clipped"] = np.abs(before - truth).sum() / total
        losses["noise_error"] = np.abs(before - summed).sum() / total
    return Diagnostics(**{name: float(loss) for name, loss in losses.items()})


def released_numbers(population: Population, release: Release) -> Integers:
    """The population's number of each released item; numbers beyond its own for items that it does not have."""
    if release.keys is not None or release.labels is None:
        return np.arange(len(release.histogram)) if release.keys is None else release.keys
    places = numbers_in(release.labels, names_of(population))
    numbers = population.domain_size + np.arange(len(release.labels))
    held = np.flatnonzero(places >= 0)[::-1]
    numbers[places[held]] = held
    return numbers


class Dense(NamedTuple):
    """The clipped sums, the values and the estimates of all items, released or not; first those of the population."""

    clipped: Floats
    released: Floats
    estimated: Floats


def dense(population: Population, release: Release, total: Total | None) -> Dense:
    """A release over all items, and the total that it was made from."""
    numbers = released_numbers(population, release)
    size = max(population.domain_size, int(numbers.max(initial=-1)) + 1)
    clipped, released, estimated = np.zeros(size), np.zeros(size), np.zeros(size)
    released[numbers], estimated[numbers] = release.histogram, release.estimate
    if total is not None and total.keyed is not None:
        clipped[total.keyed.keys] = total.keyed.values[:, 0]
    elif total is not None:
        clipped[numbers] = np.ldexp(
            total.values[: len(numbers)].astype(np.float64), -release.round_plan.grid_bits
        )
    return Dense(clipped, released, estimated)


def _padded(values: Floats, size: int) -> Floats:
    return np.concatenate([values, np.zeros(size - len(values))])


@dataclass(frozen=True, eq=False)
class ClippedUsers:
    """The tally of users from whom clipping took something.

    Args:
        threshold: for all items of a user together; None if each has its own, or nothing was clipped.
        norm: of the threshold.
        bounds: of each item by itself.
        listed: the items that a discovery found, which are clipped alone; None for all.
    """

    threshold: Threshold | None = None
    norm: Norm = Norm.L1
    bounds: Floats | None = None
    listed: Labels | None = None

    @classmethod
    def by(cls, release: Release) -> ClippedUsers:
        """By the clipping of this release."""
        if release.found_nothing:
            return cls()
        if release.item_release is not None:
            return cls(bounds=release.item_release.thresholds)
        plan = release.round_plan
        threshold = Threshold(steps=to_steps(release.threshold, plan.grid_bits), bits=plan.grid_bits)
        listed = release.labels if release.plan.discovers else None
        return cls(threshold, plan.norm, listed=listed)

    def begin(self, population: Population) -> _Clipped:
        """Nobody yet."""
        return _Clipped(self, population)

    def plus(self, sums: Sequence[int]) -> int:
        """All of them."""
        return sum(sums)


class _Clipped:
    def __init__(self, tally: ClippedUsers, population: Population) -> None:
        self._tally, self._users, listed = tally, 0, tally.listed
        self._listed = (
            None if listed is None else Renumbering(numbers_in(listed, names_of(population)), len(listed))
        )

    def add(self, held: Histograms) -> None:
        shard = held if self._listed is None else self._listed.of(held)
        threshold, bounds = self._tally.threshold, self._tally.bounds
        if threshold is not None:
            self._users += int(is_clipped(shard, threshold, norm=self._tally.norm).sum())
        elif bounds is not None:
            above = entry_counts(shard) > bounds[entry_items(shard)]
            self._users += int(np.count_nonzero(row_sums(above.astype(np.int64), shard.offsets)))

    def result(self) -> int:
        return self._users


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
