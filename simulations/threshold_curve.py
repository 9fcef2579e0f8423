"""What every threshold would have cost, from one pass over a population: bias of clipping and noise. NOT private.

A user of norm r (l2 for the Gaussian mechanism, l1 for the others) keeps the share min(1, C/r) of every count, on
average over the draws of rounding and random clipping. So the expected clipped sum of item j is

    A_j(C) = sum of N_ij over the users with r_i <= C  +  C times the sum of N_ij/r_i over the others,

and two sums by item and bin of the user's norm give it for all thresholds at once. The expected error of an item is
then E|noise + A_j - N_j|, in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.protocol.clipping import entry_counts, entry_items, user_squares, user_totals
from fedhist.protocol.grid import to_steps
from fedhist.protocol.histograms import Floats, Histograms, Integers, Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.release import Release
from fedhist.server.selection.oracle import item_loss

MAX_POINTS = 64
# Items times points of one table of doubles: 32 MB.
_MAX_CELLS = 1 << 22
_FEWEST_POINTS = 8
USER_BINS = 40


@dataclass(frozen=True)
class Curve:
    """Expected relative losses by threshold; l1 norms over the true total.

    Args:
        thresholds: rising, in counts, the chosen one among them.
        clipping: of the clipped sum before noise.
        noise: of the noise alone; over an open domain, with the keys that it withholds.
        loss: of the release. Bias hides part of the noise and noise part of the bias: it is less than their sum.
    """

    thresholds: list[float]
    clipping: list[float]
    noise: list[float]
    loss: list[float]


@dataclass(frozen=True)
class UserSizes:
    """How many users have a norm between each two edges; those without any count stand apart."""

    edges: list[float]
    users: list[int]
    empty: int


@dataclass(frozen=True)
class Measured:
    """What the pass found: the true counts by item, the curve if there is one, and the users' norms."""

    truth: Integers
    curve: Curve | None
    users: UserSizes


def measure(population: Population, release: Release) -> Measured:
    """One pass over the population. No curve where every item has a bound of its own, or for too many items."""
    plan = release.plan
    points = _points(plan, population.domain_size, release.threshold)
    edges = _edges(plan)
    truth = np.zeros(population.domain_size, dtype=np.int64)
    users = np.zeros(len(edges) + 1, dtype=np.int64)
    width = len(points) + 1
    mass, share = np.zeros((2, population.domain_size * width))
    empty = 0
    for shard in population.shards():
        norms = _norms(shard, plan.norm)
        counts, items = entry_counts(shard), entry_items(shard)
        truth += np.bincount(items, weights=counts, minlength=len(truth)).astype(np.int64)
        empty += int(np.count_nonzero(norms == 0))
        users += np.bincount(np.searchsorted(edges, norms[norms > 0]), minlength=len(users))
        if len(points):
            lengths = np.diff(shard.offsets)
            cells = items * width + np.repeat(np.searchsorted(points, norms), lengths)
            mass += np.bincount(cells, weights=counts, minlength=len(mass))
            scaled = counts / np.repeat(np.maximum(norms, 1.0), lengths)
            share += np.bincount(cells, weights=scaled, minlength=len(share))
    curve = None
    if len(points) and truth.any():
        shape = (population.domain_size, width)
        curve = _curve(release, points, truth, mass.reshape(shape), share.reshape(shape))
    return Measured(truth=truth, curve=curve, users=_sizes(edges, users, empty))


def _norms(shard: Histograms, norm: Norm) -> Floats:
    if norm is Norm.L1:
        return user_totals(shard).astype(np.float64)
    return np.sqrt(user_squares(shard).astype(np.float64))


def _points(plan: Plan, items: int, chosen: float) -> Floats:
    """Some of the candidates and the chosen threshold; none where there is no curve."""
    room = min(MAX_POINTS, _MAX_CELLS // max(items, 1) - 2)
    if plan.per_item or room < _FEWEST_POINTS:
        return np.zeros(0)
    steps = plan.candidate_steps
    places = np.unique(np.linspace(0, len(steps) - 1, room).round().astype(np.int64))
    every = np.union1d(steps[places], to_steps(chosen, plan.grid_bits))
    return np.ldexp(every.astype(np.float64), -plan.grid_bits)


def _edges(plan: Plan) -> Floats:
    """Whole numbers, about evenly spaced in logarithms, to well above the largest threshold."""
    return np.unique(np.geomspace(1, 20 * plan.max_threshold, USER_BINS + 1).round())


def _curve(release: Release, points: Floats, truth: Integers, mass: Floats, share: Floats) -> Curve:
    plan = release.plan
    total = float(truth.sum())
    true = truth.astype(np.float64)[:, np.newaxis]
    up_to = np.cumsum(mass, axis=1)[:, :-1]
    above = np.cumsum(share[:, ::-1], axis=1)[:, -2::-1]
    kept = np.minimum(up_to + above * points, true)
    bias = true - kept
    if plan.is_open:
        noises = plan.open_noises(np.rint(points).astype(np.int64))
        bars = np.array([noise.bar for noise in noises])
        scales = np.array([float(noise.scale) for noise in noises])
        noise = item_loss(kept, kept, bars, scales).sum(axis=0)
        loss = item_loss(kept, true, bars, scales).sum(axis=0)
    else:
        # The noise is in proportion to the threshold, whoever draws it.
        deviations = release.standard_error / release.threshold * points
        scales = deviations / np.sqrt(2) if plan.mechanism == "laplace" else deviations
        noise = len(truth) * _distance(plan, np.zeros(1), scales)
        loss = _distance(plan, bias, scales).sum(axis=0)
    return Curve(
        thresholds=points.tolist(),
        clipping=(bias.sum(axis=0) / total).tolist(),
        noise=(noise / total).tolist(),
        loss=(loss / total).tolist(),
    )


def _distance(plan: Plan, gap: Floats, scale: Floats) -> Floats:
    """E|Z - gap|: a folded normal, or b + s exp(-b/s) for Laplace noise of scale s."""
    if plan.mechanism == "laplace":
        result: Floats = gap + scale * np.exp(-gap / scale)
        return result
    from scipy.special import erf  # noqa: PLC0415 - loads when something is measured

    scaled = gap / (scale * np.sqrt(2))
    folded: Floats = scale * np.sqrt(2 / np.pi) * np.exp(-(scaled**2)) + gap * erf(scaled)
    return folded


def _sizes(edges: Floats, users: Integers, empty: int) -> UserSizes:
    """Without the bins at the end that nobody is in. The first bin holds norms of exactly one."""
    last = int(np.flatnonzero(users)[-1]) if users.any() else 0
    kept = users[1 : last + 1].copy() if last else users[:0].copy()
    inside = edges[: len(kept) + 1] if len(kept) else edges[:2]
    if len(kept) == 0:
        kept = np.zeros(1, dtype=np.int64)
    kept[0] += users[0]
    if last >= len(edges):
        inside = np.append(edges, edges[-1] * 10)[: len(kept) + 1]
    return UserSizes(edges=inside.tolist(), users=kept.tolist(), empty=empty)
