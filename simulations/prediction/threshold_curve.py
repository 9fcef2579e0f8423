"""The expected loss at every threshold and the users' sizes, from one pass over a population. NOT private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.protocol.clips.clipping import user_squares, user_totals
from fedhist.protocol.grid import to_steps
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels, Population, names_of
from fedhist.protocol.labels.renumbering import Renumbering, numbers_in
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.releases.contract import Release
from fedhist.simulations.engines.in_process import crew_here
from fedhist.simulations.engines.passes import ItemTotals, added_up
from fedhist.simulations.prediction.clipped_sums import BinnedSum, Binning
from fedhist.simulations.prediction.release_errors import clipping_errors, is_predicted, release_errors

MAX_POINTS = 64
# The most items times points to compute.
_MAX_CELLS = 1 << 24
_FEWEST_POINTS = 8
USER_BINS = 40


@dataclass(frozen=True)
class Curve:
    """Expected relative losses by threshold; l1 norms over the true total.

    Args:
        thresholds: rising, in counts, the chosen one among them.
        clipping: of the clipped sum before noise; after a discovery, with all items that were not found.
        noise: of the noise alone; over an open domain, with the keys that it withholds.
        loss: of the release. Bias hides part of the noise and noise part of the bias: it is less than their sum.
    """

    thresholds: list[float]
    clipping: list[float]
    noise: list[float]
    loss: list[float]


@dataclass(frozen=True)
class UserSizes:
    """The number of users with a norm between each two edges, and of users without any count."""

    edges: list[float]
    users: list[int]
    empty: int


@dataclass(frozen=True)
class Measured:
    """The true counts by item, the curve if there is one, and the users' norms."""

    truth: Integers
    curve: Curve | None
    users: UserSizes


def measure(population: Population, release: Release) -> Measured:
    """One pass over the population, on all cores if it is large."""
    with crew_here(population) as crew:
        truth, sums = crew([ItemTotals(), Measuring.of(population, release)])
    return measured(population, release, sums, truth)


@dataclass(frozen=True, eq=False)
class Sums:
    """What is measured of some users: what clipping leaves of their items, and how many there are of each norm."""

    binned: BinnedSum | None
    sizes: Integers


@dataclass(frozen=True, eq=False)
class Measuring:
    """The tally of all that is measured. After a discovery, over the items that it found.

    Args:
        steps: the thresholds; None where there is nothing to clip, because a discovery found nothing.
        bits: of the grid.
        norm: of the clipping.
        edges: between the bins of norms, of `size_norm`.
        size_norm: of the users' sizes.
        listed: the items that a discovery found; None without one.
    """

    steps: Integers | None
    bits: int
    norm: Norm
    edges: Floats
    size_norm: Norm
    listed: Labels | None

    @classmethod
    def of(cls, population: Population, release: Release) -> Measuring:
        """For a release over this population."""
        nothing = release.plan.discovers and (not release.labels or release.discovery_share is None)
        plan = release.plan.releasing if nothing else release.round_plan
        listed = release.labels if release.plan.discovers and not nothing else None
        items = population.domain_size if listed is None else len(listed)
        return cls(
            steps=None if nothing else _points(plan, items, release.threshold),
            bits=plan.grid_bits,
            norm=plan.one_way.norm if nothing else plan.norm,
            edges=np.unique(np.geomspace(1, 20 * plan.one_way.max_threshold, USER_BINS + 1).round()),
            size_norm=plan.one_way.norm,
            listed=listed,
        )

    def begin(self, population: Population) -> _Measuring:
        """Nobody yet."""
        return _Measuring(self, population)

    def plus(self, sums: Sequence[Sums]) -> Sums:
        """Of all of them together."""
        binned = [one.binned for one in sums if one.binned is not None]
        return Sums(binned[0].plus(binned[1:]) if binned else None, added_up([one.sizes for one in sums]))

    def renumbering(self, population: Population) -> Renumbering | None:
        """From the population's items to those that were found."""
        if self.listed is None:
            return None
        return Renumbering(numbers_in(self.listed, names_of(population)), len(self.listed))


class _Measuring:
    def __init__(self, tally: Measuring, population: Population) -> None:
        self._tally, self._listed = tally, tally.renumbering(population)
        items = population.domain_size if self._listed is None else self._listed.size
        # The last place is for users without any count.
        self._sizes = np.zeros(len(tally.edges) + 2, dtype=np.int64)
        self._binning = (
            None
            if tally.steps is None
            else Binning(tally.steps, bits=tally.bits, norm=tally.norm, items=items)
        )

    def add(self, held: Histograms) -> None:
        shard = held if self._listed is None else self._listed.of(held)
        l2 = self._tally.size_norm is Norm.L2
        norms = np.sqrt(user_squares(shard)) if l2 else user_totals(shard)
        places = np.where(norms > 0, np.searchsorted(self._tally.edges, norms), len(self._sizes) - 1)
        self._sizes += np.bincount(places, minlength=len(self._sizes))
        if self._binning is not None:
            self._binning.add(shard)

    def result(self) -> Sums:
        return Sums(None if self._binning is None else self._binning.result(), self._sizes)


def measured(population: Population, release: Release, sums: Sums, truth: Integers) -> Measured:
    """What the sums over all users say; no curve where every item has a bound of its own, or for too many items."""
    tally = Measuring.of(population, release)
    users = _sizes(tally, sums.sizes)
    if sums.binned is None or tally.steps is None:
        return Measured(truth=truth, curve=None, users=users)
    plan, steps, listed = release.round_plan, tally.steps, tally.renumbering(population)
    missed = 0.0 if listed is None else float(truth[listed.numbers < 0].sum())
    table = sums.binned.table(steps, bits=tally.bits, missed=missed)
    curve = None
    if len(steps) > 1 and table.total:
        places = np.arange(len(steps))
        errors = release_errors(plan, table, steps, places)
        parts = (clipping_errors(table, places), errors.noise_alone(), errors.loss())
        clipping, noise, loss = ((part / table.total).tolist() for part in parts)
        curve = Curve(table.thresholds.tolist(), clipping, noise, loss)
    return Measured(truth=truth, curve=curve, users=users)


def _sizes(tally: Measuring, counted: Integers) -> UserSizes:
    """Without the empty bins at the end. The first bin includes norms of exactly one."""
    edges = np.append(tally.edges, tally.edges[-1] * 10)
    users = counted[1:-1].copy()
    users[0] += counted[0]
    last = int(np.flatnonzero(users)[-1]) if users.any() else 0
    return UserSizes(edges[: last + 2].tolist(), users[: last + 1].tolist(), int(counted[-1]))


def _points(plan: Plan, items: int, chosen: float) -> Integers:
    """Candidates, evenly picked, and the chosen threshold; that alone where there is no curve."""
    room = min(MAX_POINTS, _MAX_CELLS // max(items, 1) - 1)
    at_chosen = np.array([to_steps(chosen, plan.grid_bits)])
    if not is_predicted(plan) or room < _FEWEST_POINTS:
        return at_chosen
    steps = plan.candidate_steps
    places = np.unique(np.linspace(0, len(steps) - 1, room).round().astype(np.int64))
    every: Integers = np.union1d(steps[places], at_chosen)
    return every
