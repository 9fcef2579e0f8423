"""How far a release is from the exact data, which only a simulation knows: NOT private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from fedhist.display.html_table import html_table
from fedhist.protocol.clipping import entry_counts, entry_items, is_clipped, row_sums
from fedhist.protocol.grid import Threshold, to_steps
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels, Population, names_of
from fedhist.protocol.items import Renumbering, numbers_in
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.rounds import Contribution, Round, Total
from fedhist.server.releases.contract import Release


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
