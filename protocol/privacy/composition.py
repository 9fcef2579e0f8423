"""What several mechanisms cost together: by adding up, and by their privacy loss distributions.

A mechanism's privacy loss is ln(P(o) / Q(o)) at an outcome o drawn from P, where P and Q are its output
distributions on two neighbours. The losses of mechanisms that run one after another add up, also when a later
one depends on what the earlier ones showed, and delta(epsilon) = E[max(0, 1 - e^(epsilon - loss))]. It is
enough to know for each mechanism a *dominating pair*: one with no smaller delta at any epsilon (Zhu, Dong &
Wang 2022, theorem 10). The pairs used here:

- **Gaussian** of multiplier z: a loss of N(1/(2z^2), 1/z^2). Several are one: their 1/z^2 add up.
- **Pure**: loss +epsilon or -epsilon, as in randomised response. No epsilon-private mechanism does worse.
- **Approximate**: infinite with probability delta, else pure.
- **Alternatives**: one of several ways, each Gaussian, pure or both, that earlier results decide; the deltas of all
  ways add up, and a failure beside them. Several such entries have a way for each choice of one way of every entry: the
  results split by it, those of one choice are results of a run that always goes these ways, and the failures add up.
  Where these are too many, the entries count as approximate.
- **Bounded range**, the exponential mechanism (Dong, Durfee & Rogers 2020): the loss lies in [t - epsilon, t]
  for some t in [0, epsilon], and given t nothing is worse than having the two ends of that interval as the
  only losses. t is fixed by the mechanism and the neighbours, and so may depend on what was shown earlier:

  - The entry is *first*, as in every run on its own. Nothing was shown, t is one number, and the total is the
    largest over t. We cut [0, epsilon] into cells and allow, for all t in a cell [a, b], the losses b and
    a - epsilon: their interval contains [t - epsilon, t], so by the same theorem nothing is missed. The price
    is a range longer by one cell, for this entry alone.
  - The entry comes *later*. At every e its delta is at most the largest over t, which is that of
    t = (epsilon + e)/2: delta(e) = (1 - e^((e - epsilon)/2))^2 / (1 - e^-epsilon) for |e| <= epsilon. It is
    the delta of a pair, namely densities proportional to e^(x/2) and e^(-x/2) on [-epsilon, epsilon]. So that
    pair dominates every bounded-range mechanism, whatever t depends on.

All pairs but the first entry's are symmetric: adding and removing a user give the same losses. Swapping P and Q in the
first entry turns t into epsilon - t, and the largest over all t covers both.

A sum over the losses of the others of the Gaussian's delta, which is known in closed form, is all that a run of few
entries needs. Long ledgers go through dp_accounting's grid, which takes a second to load. Where losses are put on few
places, dots are connected (Doroshenko et al. 2022), which never lowers a delta.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from fedhist.protocol.histograms import Floats
from fedhist.protocol.privacy.ledger import (
    AlternativesLoss,
    BoundedRangeLoss,
    Charge,
    Cost,
    GaussianLoss,
    exact_sum,
)

# Cells of the position t of the first bounded-range entry.
_RANGE_CELLS = 256
# The most ways that are told apart, of all entries with alternatives together.
_MOST_WAYS = 9
# An entry this large has the loss +epsilon except for odds of e^-30: plain addition is as tight as anything.
_PLAIN_EPSILON = 30.0
# Places of a bounded range's losses for each standard deviation of the Gaussian beside it.
_DENSITY = 100
# The most terms of a delta in closed form, over all cells; where there are more, dp_accounting's grid is faster.
_MOST_TERMS = 30_000
# Twenty standard deviations in this many steps: 1e-4 a step for a Gaussian of epsilon = 1, delta = 1e-6.
_GRID_POINTS = 50_000
# With less between its places than this, the grid's delta has no digits left.
_LEAST_INTERVAL = 1e-11
# A hundred times the largest error seen in a delta from the Fourier transforms of one composition.
_FOURIER_ERROR = 1e-14
# What the grid cuts off, of a delta: e^-20.
_FAR = math.exp(-20)
# Places of a table of its deltas, most of them at its beginning; between two it is linear in e^epsilon, which is no
# lower.
_TABLE_PLACES = 4_000
# Ten times the relative error of a tail that is e to the power of at least -700, known to 2^-52 of that power.
_TAIL_ERROR = 2e-12
# The search for an epsilon ends at this share of it, and what is found is raised by more than all doubles lost.
_CLOSE, _RAISED = 1e-9, 1 + 6e-7

_Deltas = Callable[[Floats], Floats]
_Profile = Callable[[float, Floats], Floats]
_Counted = tuple[tuple[float, int], ...]


def basic_total(charges: Iterable[Charge]) -> Cost:
    """The sum of all epsilons and of all deltas.

    It also holds when the budgets of later mechanisms were chosen in view of earlier results, as long
    as a limit on the sum was fixed before (Rogers et al. 2016): limits are checked with this one.
    """
    listed = list(charges)
    return Cost(exact_sum(entry.epsilon for entry in listed), exact_sum(entry.delta for entry in listed))


def tight_total(charges: Iterable[Charge]) -> Cost:
    """The least epsilon that we can prove at the sum of all deltas; never above the sum of all epsilons.

    | entries                                          | result                                     |
    |--------------------------------------------------|--------------------------------------------|
    | none                                             | (0, 0)                                     |
    | one that is not private                          | an infinite epsilon                        |
    | all pure, so that the deltas sum to 0            | the basic total                            |
    | deltas that sum to 1 or more                     | the basic total, which promises nothing    |

    Args:
        charges: in the order in which they were charged: an exponential mechanism at the very beginning
            costs a little less than a later one (see the top of this module). Which mechanisms run, and
            with which budgets, must not depend on earlier results; else only `basic_total` holds.
    """
    entries = list(charges)
    basic = basic_total(entries)
    if not math.isfinite(basic.epsilon) or not 0 < basic.delta < 1:
        return basic
    return Cost(epsilon_at(entries, basic.delta), basic.delta)


def epsilon_at(charges: Iterable[Charge], delta: float) -> float:
    """The least epsilon that we can prove at a delta of the caller's choice, above 0 and below 1; infinite if none.

    For the same sequences as `tight_total`.
    """
    entries = list(charges)
    basic = basic_total(entries)
    if not math.isfinite(basic.epsilon):
        return math.inf
    # By adding up, which is no way to a smaller delta.
    plain = basic.epsilon if basic.delta <= delta else math.inf
    enough = basic.epsilon if math.isfinite(plain) else 4 * basic.epsilon
    return min(_least_epsilon(_losses(entries), delta, enough), plain)


@dataclass(frozen=True)
class _Way:
    """One way through all entries: 1/z^2 of its Gaussians, summed, and how many others there are of each epsilon."""

    precision: float
    pure: _Counted
    ranges: _Counted


@dataclass(frozen=True)
class _Losses:
    """What a total depends on: the first entry's bounded range, all ways, and what may fail.

    Approximate entries fail independently of the rest, which gets what is left of delta.
    """

    first_range: float
    ways: tuple[_Way, ...]
    failure: float
    infinite: float


def _losses(entries: Sequence[Charge]) -> _Losses:
    alternatives = [entry.loss.ways for entry in entries if isinstance(entry.loss, AlternativesLoss)]
    told_apart = math.prod(map(len, alternatives)) <= _MOST_WAYS
    first_range, precisions, failures, log_finite = 0.0, [0.0], [0.0], [0.0]
    pure, ranges = Counter[float](), Counter[float]()
    for position, entry in enumerate(entries):
        match entry.loss:
            case GaussianLoss(multiplier):
                precisions.append(multiplier**-2)
            case BoundedRangeLoss() if position == 0:
                first_range = entry.epsilon
            case BoundedRangeLoss():
                ranges[entry.epsilon] += 1
            case AlternativesLoss(failure=failure) if told_apart:
                failures.append(failure)
            case _:
                pure[entry.epsilon] += 1
                log_finite.append(math.log1p(-entry.delta))
    ways = tuple(
        _Way(
            math.fsum([*precisions, *(way.multiplier**-2 for way in chosen if way.multiplier is not None)]),
            _counted(pure + Counter(way.epsilon for way in chosen if way.epsilon is not None)),
            _counted(ranges),
        )
        for chosen in itertools.product(*(alternatives if told_apart else ()))
    )
    return _Losses(first_range, ways, math.fsum(failures), -math.expm1(math.fsum(log_finite)))


def _counted(epsilons: Counter[float]) -> _Counted:
    return tuple(sorted((epsilon, count) for epsilon, count in epsilons.items() if epsilon > 0))


@functools.lru_cache(maxsize=256)
def _least_epsilon(losses: _Losses, delta: float, enough: float) -> float:
    """The least epsilon, rounded up, at which failures and the deltas of all ways sum to at most the delta.

    Infinite if it is above `enough`.
    """
    # delta = infinite + (1 - infinite) (failure + the ways' deltas), with what doubles lose of it.
    left = (delta * (1 - 2.0**-50) - losses.infinite) / (1 - losses.infinite) * (1 - 1e-9) - losses.failure
    largest = [losses.first_range, *(max(way.pure + way.ranges, default=(0.0, 0))[0] for way in losses.ways)]
    if left <= 0 or max(largest) > _PLAIN_EPSILON:
        return math.inf
    step = losses.first_range / _RANGE_CELLS
    cells = step * np.arange(-_RANGE_CELLS, _RANGE_CELLS + 1, dtype=np.float64) if step else np.zeros(1)
    # The chance of the larger of each cell's two losses under P, so that those under Q sum to 1 as well.
    low, high = cells[:_RANGE_CELLS], cells[_RANGE_CELLS + 1 :]
    high_share = np.expm1(-low) / (np.expm1(-low) - np.expm1(-high))
    ends = (float(cells[0]), enough + float(cells[-1]))
    deltas_of_ways = [
        _deltas_of(way, left, ends, most_terms=_MOST_TERMS // len(cells)) for way in losses.ways
    ]

    def spent(epsilon: float) -> float:
        total = 0.0
        for deltas_of in deltas_of_ways:
            # In order of epsilon: after the larger of a cell's losses less is left, and delta is larger.
            deltas = deltas_of(epsilon + cells)
            if step:
                after_high, after_low = deltas[_RANGE_CELLS - 1 :: -1], deltas[:_RANGE_CELLS:-1]
                deltas = high_share * after_high + (1 - high_share) * after_low
            total += float(deltas.max())
        return total

    with np.errstate(all="ignore"):  # what overflows is not found to suffice
        if not spent(enough) <= left:
            return math.inf
        few = 0.0
        while enough - few > _CLOSE * enough:
            middle = (few + enough) / 2
            few, enough = (few, middle) if spent(middle) <= left else (middle, enough)
    return enough * _RAISED


def _deltas_of(way: _Way, delta: float, ends: tuple[float, float], *, most_terms: int) -> _Deltas:
    """The delta of one way at epsilons between two ends: a sum over the others' losses, or a table from a grid."""
    density = 2 * _DENSITY / math.sqrt(way.precision) if way.precision else math.inf
    others = [(_pure_profile, epsilon, 2.0) for epsilon, count in way.pure for _ in range(count)]
    others += [
        (_range_profile, epsilon, 2 + density * epsilon)
        for epsilon, count in way.ranges
        for _ in range(count)
    ]
    if math.prod(places for _, _, places in others) > most_terms:
        return _deltas_on_grid(way, delta, ends)
    losses, chances = np.zeros(1), np.ones(1)
    for profile, epsilon, places in others:
        at = np.linspace(-epsilon, epsilon, int(places))
        # Between two places delta is taken as linear in e^e, which never lowers it. A loss at a place then has the
        # chance under Q by which the slope changes there, and e^loss times that under P.
        lengths = np.exp(at[:-1]) * np.expm1(np.diff(at))  # of e^e, not 0 however near the places are
        slopes = np.diff(profile(epsilon, at)) / lengths
        under_q = np.maximum(np.diff(np.concatenate([[-1.0], slopes, [0.0]])), 0)
        losses = np.add.outer(losses, at).ravel()
        chances = np.multiply.outer(chances, under_q * np.exp(at)).ravel()
    shift = math.sqrt(way.precision)
    return lambda epsilons: _gaussian_deltas(shift, epsilons[:, None] - losses) @ chances


def _gaussian_deltas(shift: float, epsilons: Floats) -> Floats:
    """Delta of Gaussian noise that one user moves by `shift` = 1/z standard deviations (Balle & Wang 2018, theorem 8).

    Rounded up by a multiple of what the two tails, whose difference it is, may be wrong by. Without a shift nothing is
    lost, and delta is above 0 at epsilons below 0 alone.
    """
    if shift == 0:
        return -np.expm1(np.minimum(epsilons, 0))
    upper = special.ndtr(shift / 2 - epsilons / shift)
    lower = np.exp(epsilons + special.log_ndtr(-shift / 2 - epsilons / shift))
    result: Floats = np.minimum(np.maximum(upper - lower, 0) + _TAIL_ERROR * upper, 1)
    return result


def _deltas_on_grid(way: _Way, delta: float, ends: tuple[float, float]) -> _Deltas:
    """The same from dp_accounting's grid, whose tails far below `delta` become infinite losses."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    variance = way.precision + sum(count * epsilon**2 for epsilon, count in way.pure)
    variance += sum(count * epsilon**2 / 3 for epsilon, count in way.ranges)
    interval = 20 * math.sqrt(variance) / _GRID_POINTS
    if interval < _LEAST_INTERVAL:
        return lambda epsilons: np.full(epsilons.shape, np.inf)

    def on_grid(profile: _Profile, epsilon: float, count: int) -> Any:
        last = math.ceil(epsilon / interval)
        deltas = profile(epsilon, np.arange(-last, last + 1, dtype=np.float64) * interval)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -last, last, deltas)
        one = privacy_loss_distribution.PrivacyLossDistribution(pmf)
        return one.self_compose(count) if count > 1 else one

    parts = [on_grid(_pure_profile, *group) for group in way.pure]
    parts += [on_grid(_range_profile, *group) for group in way.ranges]
    if way.precision:
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(
            way.precision**-0.5,
            pessimistic_estimate=True,
            value_discretization_interval=interval,
            log_mass_truncation_bound=math.log(delta * _FAR),
        )
        parts.insert(0, gaussian)
    whole = functools.reduce(lambda one, other: one.compose(other), parts)
    # No less than this is the answer, after any first choice, whose cells begin at the negative end.
    least = float(whole.get_epsilon_for_delta(delta))
    if not least < ends[1]:
        return lambda epsilons: np.full(epsilons.shape, np.inf)
    start = max(least + min(ends[0], 0.0), ends[0])
    places: Floats = start + (ends[1] - start) * np.linspace(0, 1, _TABLE_PLACES) ** 3
    with np.errstate(all="ignore"):
        table = np.asarray(whole.get_delta_for_epsilon(places)) + _FOURIER_ERROR
    table[~np.isfinite(table)] = np.inf  # what overflows is not found to suffice

    def deltas(epsilons: Floats) -> Floats:
        before = np.clip(np.searchsorted(places, epsilons) - 1, 0, _TABLE_PLACES - 2)
        share = np.expm1(epsilons - places[before]) / np.expm1(places[before + 1] - places[before])
        between: Floats = table[before] + (table[before + 1] - table[before]) * share
        return between

    return deltas


def _pure_profile(epsilon: float, at: Floats) -> Floats:
    """delta(at) of randomised response: loss +epsilon with probability 1/(1 + e^-epsilon), else -epsilon."""
    upper = -np.expm1(np.minimum(at - epsilon, 0)) / (1 + math.exp(-epsilon))
    result: Floats = np.maximum(upper, -np.expm1(np.minimum(at, 0)))
    return result


def _range_profile(epsilon: float, at: Floats) -> Floats:
    """delta(at) of the pair that dominates all mechanisms of bounded range (see the top of this module)."""
    inside = np.expm1(np.minimum(at - epsilon, 0) / 2) ** 2 / -math.expm1(-epsilon)
    result: Floats = np.where(at < -epsilon, -np.expm1(np.minimum(at, 0)), inside)
    return result
