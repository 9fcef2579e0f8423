"""The expected loss at every threshold and the users' sizes, from one pass over a population. NOT private."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedhist.client.populations import item_totals
from fedhist.protocol.clips.clipping import user_squares, user_totals
from fedhist.protocol.grid import to_steps
from fedhist.protocol.histograms import Floats, Histograms, Integers, Population, names_of
from fedhist.protocol.labels.renumbering import Renumbering, numbers_in
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.releases.contract import Release
from fedhist.simulations.prediction.clipped_sums import clipped_sums
from fedhist.simulations.prediction.finding import Narrowed
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
    """One pass over the population, and one more after a discovery, which leaves the items that it found.

    No curve where every item has a bound of its own, or for too many items.
    """
    plan, truth, missed = release.plan, None, 0.0
    if plan.discovers:
        truth = item_totals(population)
        if not release.labels or release.discovery_share is None:
            sizes = _Sizes(plan.releasing.one_way)
            for shard in population.shards():
                sizes.add(shard)
            return Measured(truth=truth, curve=None, users=sizes.found())
        listed = Renumbering(numbers_in(release.labels, names_of(population)), len(release.labels))
        population, missed = Narrowed(population, listed), float(truth[listed.numbers < 0].sum())
    plan = release.round_plan
    sizes = _Sizes(plan)
    steps = _points(plan, population.domain_size, release.threshold)
    table = clipped_sums(population, steps, bits=plan.grid_bits, norm=plan.norm, see=sizes.add, missed=missed)
    curve = None
    if len(steps) > 1 and table.total:
        places = np.arange(len(steps))
        errors = release_errors(plan, table, steps, places)
        parts = (clipping_errors(table, places), errors.noise_alone(), errors.loss())
        clipping, noise, loss = ((part / table.total).tolist() for part in parts)
        curve = Curve(table.thresholds.tolist(), clipping, noise, loss)
    return Measured(truth=table.truth if truth is None else truth, curve=curve, users=sizes.found())


@dataclass
class _Sizes:
    """Counts users by their norm, in bins about evenly spaced in logarithms, to well above the largest threshold."""

    plan: Plan
    empty: int = 0
    _edges: Floats = field(init=False, repr=False)
    _users: Integers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._edges = np.unique(np.geomspace(1, 20 * self.plan.max_threshold, USER_BINS + 1).round())
        self._users = np.zeros(len(self._edges) + 1, dtype=np.int64)

    def add(self, shard: Histograms) -> None:
        norms = np.sqrt(user_squares(shard)) if self.plan.one_way.norm is Norm.L2 else user_totals(shard)
        self.empty += int(np.count_nonzero(norms == 0))
        self._users += np.bincount(np.searchsorted(self._edges, norms[norms > 0]), minlength=len(self._users))

    def found(self) -> UserSizes:
        """Without the empty bins at the end. The first bin includes norms of exactly one."""
        edges = np.append(self._edges, self._edges[-1] * 10)
        users = self._users[1:].copy()
        users[0] += self._users[0]
        last = int(np.flatnonzero(users)[-1]) if users.any() else 0
        return UserSizes(edges[: last + 2].tolist(), users[: last + 1].tolist(), self.empty)


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
