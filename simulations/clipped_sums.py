"""What clipping takes from every item at many thresholds, from one pass over a population; and what noise adds to it.

A user of norm r (l2 for the Gaussian mechanism, l1 for the others) keeps the share min(1, C/r) of every count, on
average over the draws of rounding and of random clipping. So the expected clipped sum of item j is

    A_j(C) = sum of N_ij over the users with r_i <= C  +  C times the sum of N_ij/r_i over the others,

and two sums by item and bin of the user's norm give it for all thresholds at once. Left out: under l2 a clipped user is
aimed a few steps of the grid below the bound (`protocol/clipping.py`), at most 0.15 % of it.

A release's error in one item is |noise + bias|, and bias hides part of the noise and noise part of the bias: its mean
is less than the sum of their means. NOT private: all of it is computed from the exact data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedhist.protocol.clipping import entry_counts, entry_items, user_squares, user_totals
from fedhist.protocol.grid import Threshold, to_steps
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels, Population, names_of
from fedhist.protocol.items import Renumbering, numbers_in
from fedhist.protocol.measurements.keys import KeptItems
from fedhist.protocol.measurements.sums import ClippedSum
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.releases import RULES, rule_for
from fedhist.server.releases.central_noise import release_noise
from fedhist.server.releases.contract import Release
from fedhist.simulations.engines.in_process import crew_here
from fedhist.simulations.engines.passes import ItemTotals, added_up

MAX_POINTS = 64
MAX_CELLS = 1 << 22
"""Of a table of items by thresholds. With more items there is no curve."""
_FEWEST_POINTS = 8
USER_BINS = 40
# Shares N_ij/r_i are at most 1: sums over 2^31 users in these units stay below 2^62.
_SHARE_BITS = 30
# Items times thresholds that are priced in one piece.
_PIECE_CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class ClippedSums:
    """What clipping leaves of every item.

    Args:
        thresholds: rising, in counts.
        users_above: the number of users above each threshold.
        mass, share: by item and bin of the norm, the counts and the counts over their user's norm.
        missed: the counts of items that are not in the table: a discovery has not found them.
    """

    thresholds: Floats
    users_above: Floats
    mass: Floats = field(repr=False)
    share: Floats = field(repr=False)
    missed: float = 0.0

    @cached_property
    def truth(self) -> Floats:
        """N_j of every item."""
        truth: Floats = self.mass.sum(axis=1)
        return truth

    @cached_property
    def total(self) -> float:
        """All counts of all users."""
        return float(self.truth.sum()) + self.missed

    @cached_property
    def kept(self) -> Floats:
        """A_j(C) by item and threshold."""
        above = np.cumsum(self.share[:, ::-1], axis=1)[:, -2::-1]
        kept = np.cumsum(self.mass, axis=1)[:, :-1] + above * self.thresholds
        return np.minimum(kept, self.truth[:, np.newaxis])


@dataclass(frozen=True, eq=False)
class Binned:
    """The sums that a table is made of, over some users: `users` by bin of their norm, `cells` by item and bin."""

    users: Integers
    cells: Integers = field(repr=False)

    def table(self, steps: Integers, *, bits: int, scale: float = 1.0, missed: float = 0.0) -> ClippedSums:
        """The table for the thresholds that the bins are of, each user counted `scale` times."""
        mass, share = self.cells * np.reshape([scale, math.ldexp(scale, -_SHARE_BITS)], (2, 1, 1))
        return ClippedSums(
            thresholds=np.ldexp(steps.astype(np.float64), -bits),
            users_above=np.cumsum(self.users[::-1])[::-1][1:] * np.float64(scale),
            mass=mass,
            share=share,
            missed=missed,
        )


class Binning:
    """The sums as they grow, over a closed domain of `items`; `steps` of 2^-bits are the thresholds, rising."""

    def __init__(self, steps: Integers, *, bits: int, norm: Norm, items: int) -> None:
        self._norm, self._width = norm, len(steps) + 1
        self._cuts = steps >> bits if norm is Norm.L1 else (steps * steps) >> (2 * bits)
        self._users = np.zeros(self._width, dtype=np.int64)
        self._cells = np.zeros((2, items * self._width), dtype=np.int64)

    def add(self, shard: Histograms) -> None:
        """The sums grow by these users'. Bins are those of round 1."""
        counts, items = entry_counts(shard), entry_items(shard).astype(np.int64)
        sizes = user_totals(shard) if self._norm is Norm.L1 else user_squares(shard)
        bins = np.searchsorted(self._cuts, sizes, side="left")
        self._users += np.bincount(bins, minlength=self._width)
        norms = sizes.astype(np.float64) if self._norm is Norm.L1 else np.sqrt(sizes.astype(np.float64))
        users = np.repeat(np.arange(shard.users), np.diff(shard.offsets))
        cells = items * self._width + bins[users]
        shares = np.rint(np.ldexp(counts / np.maximum(norms[users], 1.0), _SHARE_BITS))
        np.add.at(self._cells[0], cells, counts)
        np.add.at(self._cells[1], cells, shares.astype(np.int64))

    def result(self) -> Binned:
        """The sums over the users so far."""
        return Binned(self._users, self._cells.reshape(2, -1, self._width))


def is_predicted(plan: Plan) -> bool:
    """Whether the errors of the plan's release are known: not of single items, nor of rules that build on their own."""
    rule, own = rule_for(plan), [type(RULES[name]).build for name in RULES.built_in]
    return type(rule).build in own and rule.measures in (ClippedSum.name, KeptItems.name)


@dataclass(frozen=True)
class Errors:
    """Expected l1 errors at several thresholds, over all counts; and the expected number of released items.

    Args:
        loss: of the release. Of an item that is withheld or was not found, all is lost.
        clipping: of the clipped sum before noise, with all items that were not found.
        noise: of the noise alone; above a bar, with the keys that it withholds.
        shown: released items.
    """

    loss: Floats
    clipping: Floats
    noise: Floats
    shown: Floats


def release_errors(plan: Plan, table: ClippedSums, steps: Integers, places: Integers) -> Errors:
    """The errors at these places of the table, whose thresholds are `steps` of the plan's grid."""
    if rule_for(plan).measures == KeptItems.name:
        noises = plan.open_noises(steps[places])
        scale, bar = (np.array([float(getattr(one, name)) for one in noises]) for name in ("scale", "bar"))
    else:
        bits = plan.grid_bits
        spreads = [
            float(release_noise(plan, Threshold(steps=one, bits=bits)).spread)
            for one in steps[places].tolist()
        ]
        scale = np.ldexp(np.sqrt(spreads) if plan.norm is Norm.L2 else np.array(spreads), -bits)
        bar = np.full(len(places), -np.inf)
    normal, summed = plan.norm is Norm.L2, np.zeros((4, len(places)))
    step = max(1, _PIECE_CELLS // max(len(places), 1))
    for first in range(0, len(table.truth), step):
        kept, true = table.kept[first : first + step, places], table.truth[first : first + step, np.newaxis]
        gap, over = true - kept, bar - kept + 0.5
        if normal or not np.isfinite(bar).all():
            loss, noise = (distance(one, scale, normal=normal) for one in (gap, np.zeros((1, len(places)))))
            noise, shown = np.broadcast_to(noise, gap.shape), np.ones(gap.shape)
        else:
            held = np.minimum(kept, 1.0)
            shown = held * reaching(over, scale)
            loss = held * barred(gap, true, over, scale) + (1 - held) * true
            noise = held * barred(np.zeros(gap.shape), kept, over, scale) + (1 - held) * kept
        summed += [part.sum(axis=0) for part in (loss, gap, noise, shown)]
    summed[:2] += table.missed
    loss, clipping, noise = summed[:3] / table.total
    return Errors(loss, clipping, noise, summed[3])


def distance(gap: Floats, scale: Floats, *, normal: bool) -> Floats:
    """E|Z - gap| for a gap of 0 or more: Z normal of deviation `scale`, or Laplace.

    Releases draw from discrete laws: of s steps of the grid, their means differ by a relative 1/(12 s^2), and s is at
    least 3 and usually thousands.
    """
    if normal:
        from scipy.special import erf

        scaled = gap / (scale * math.sqrt(2))
        found: Floats = scale * math.sqrt(2 / math.pi) * np.exp(-(scaled**2)) + gap * erf(scaled)
        return found
    return gap + scale * np.exp(-gap / scale)


def reaching(least: Floats, scale: Floats) -> Floats:
    """P(Z >= least) for a Laplace Z."""
    tail = np.exp(-np.abs(least) / scale) / 2
    return np.where(least > 0, tail, 1 - tail)


def barred(gap: Floats, true: Floats, least: Floats, scale: Floats) -> Floats:
    """E|shown - true| of a key that is shown with an error of Z - gap where Z >= least, and lost otherwise."""
    passed = reaching(least, scale)
    excess = scale * np.exp(-np.abs(least) / scale) / 2 + np.maximum(-least, 0.0)
    near = excess + (least - gap) * passed
    beyond = distance(gap, scale, normal=False) - (least + excess) - (gap - least) * (1 - passed)
    return true * (1 - passed) + np.where(gap <= least, near, beyond)


@dataclass(frozen=True)
class Curve:
    """The errors of a release by threshold, see `Errors`; thresholds rise, in counts, the chosen one among them."""

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

    binned: Binned | None
    sizes: Integers


@dataclass(frozen=True, eq=False)
class Measuring:
    """The tally of all that is measured. After a discovery, over the items that it found.

    Args:
        steps: the thresholds; None where there is no curve.
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
        sizes = added_up([one.sizes for one in sums])
        binned = [one.binned for one in sums if one.binned is not None]
        if not binned:
            return Sums(None, sizes)
        users, cells = added_up([one.users for one in binned]), added_up([one.cells for one in binned])
        return Sums(Binned(users, cells), sizes)

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
        self._binning = None
        if tally.steps is not None:
            self._binning = Binning(tally.steps, bits=tally.bits, norm=tally.norm, items=items)

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
    listed = tally.renumbering(population)
    missed = 0.0 if listed is None else float(truth[listed.numbers < 0].sum())
    table = sums.binned.table(tally.steps, bits=tally.bits, missed=missed)
    curve = None
    if table.total:
        errors = release_errors(release.round_plan, table, tally.steps, np.arange(len(tally.steps)))
        parts = (one.tolist() for one in (errors.clipping, errors.noise, errors.loss))
        curve = Curve(table.thresholds.tolist(), *parts)
    return Measured(truth=truth, curve=curve, users=users)


def _sizes(tally: Measuring, counted: Integers) -> UserSizes:
    """Without the empty bins at the end. The first bin includes norms of exactly one."""
    edges = np.append(tally.edges, tally.edges[-1] * 10)
    users = counted[1:-1].copy()
    users[0] += counted[0]
    last = int(np.flatnonzero(users)[-1]) if users.any() else 0
    return UserSizes(edges[: last + 2].tolist(), users[: last + 1].tolist(), int(counted[-1]))


def _points(plan: Plan, items: int, chosen: float) -> Integers | None:
    """Candidates, evenly picked, and the chosen threshold; None where there is no curve."""
    room = min(MAX_POINTS, MAX_CELLS // max(items, 1) - 1)
    if not is_predicted(plan) or room < _FEWEST_POINTS:
        return None
    steps = plan.candidate_steps
    places = np.unique(np.linspace(0, len(steps) - 1, room).round().astype(np.int64))
    every: Integers = np.union1d(steps[places], to_steps(chosen, plan.grid_bits))
    return every if len(every) > 1 else None
