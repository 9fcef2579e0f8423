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

Gaussians have a closed form, also beside entries of few losses. Where there are many others, distributions are put on
a grid. Both ways, and where a range is cut into few losses, dots are connected (Doroshenko et al. 2022), which never
lowers a delta.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from fedhist.protocol.histograms import Floats
from fedhist.protocol.privacy.ledger import (
    Alternative,
    AlternativesLoss,
    ApproximateLoss,
    BoundedRangeLoss,
    Charge,
    Cost,
    GaussianLoss,
    PureLoss,
    exact_sum,
)
from fedhist.protocol.privacy.loss_distributions import (
    Gaussian,
    GaussianBeside,
    Shifted,
    crossing,
    on_grid,
    pure_profile,
    range_profile,
)

# Twenty standard deviations in this many steps: 1e-4 a step for a Gaussian of epsilon = 1, delta = 1e-6.
_GRID_POINTS = 50_000
# Cells of the position t of the first bounded-range entry.
_RANGE_CELLS = 256
# If there are more distinct epsilons than this, they are rounded up to this many: each takes a convolution.
_MOST_GROUPS = 24
# An entry this large has the loss +epsilon but for odds of e^-30: plain addition is as tight as anything.
_PLAIN_EPSILON = 30.0
# With less spread than this, the difference of tails that is a Gaussian's delta has no digits left.
_LEAST_SPREAD = 1e-8
# Places of a bounded range's losses for each standard deviation of a Gaussian's beside it, and the most in all.
_ATOM_DENSITY, _MOST_ATOMS, _MOST_FACTORS = 100, 600, 9
# The most ways that are told apart, of all entries with alternatives together.
_MOST_WAYS = 9
# A hundred times the largest error seen in a delta from the Fourier transforms of one composition.
_ROUNDING = 1e-14
# What is cut off, of a delta: e^-20.
_FAR = math.exp(-20)

_Groups = tuple[tuple[float, int], ...]


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
    branching = _branching(entries, basic)
    if branching is None:
        return min(_tight_epsilon(_Losses.of(entries), delta), plain)
    others = _Losses.of(entries, branched=True)
    if len(branching.ways) == 1:
        return min(_tight_epsilon(others.beside(branching.ways[0]), delta - branching.failure), plain)
    most = basic.epsilon if math.isfinite(plain) else 4 * basic.epsilon
    return min(_branched_epsilon(others, branching, Cost(most, delta)), plain)


@dataclass(frozen=True)
class _Branching:
    """The ways of all entries with alternatives, one for each entry, and the sum of their failures."""

    ways: tuple[tuple[Alternative, ...], ...]
    failure: float


def _branching(entries: Sequence[Charge], basic: Cost) -> _Branching | None:
    """The entries with alternatives, if there are any and their ways can be told apart."""
    found = [entry.loss for entry in entries if isinstance(entry.loss, AlternativesLoss)]
    many = math.prod(len(loss.ways) for loss in found) > _MOST_WAYS
    if not found or many or basic.epsilon > _PLAIN_EPSILON:
        return None
    return _Branching(
        tuple(product(*(loss.ways for loss in found))), math.fsum(loss.failure for loss in found)
    )


@dataclass(frozen=True)
class _Losses:
    """What the total depends on: few numbers for a ledger of any length, and the same ones for runs of one plan.

    Args:
        first_range: epsilon of the first entry if that is of bounded range, else 0.
        ranges: (epsilon, how many) of the other bounded-range entries.
        pure: (epsilon, how many) of the entries that only promise epsilon.
        precision: sum of 1/z^2 over the Gaussian entries.
        infinite: the probability that an approximate entry fails.
        plain: epsilons so large that they are just added up.
    """

    first_range: float = 0.0
    ranges: _Groups = ()
    pure: _Groups = ()
    precision: float = 0.0
    infinite: float = 0.0
    plain: float = 0.0

    @classmethod
    def of(cls, entries: Sequence[Charge], *, branched: bool = False) -> _Losses:
        """Group the entries by kind and epsilon; `branched` leaves out those with alternatives."""
        first_range, precision, log_finite = 0.0, [0.0], [0.0]
        ranges: Counter[float] = Counter()
        pure: Counter[float] = Counter()
        plain = []
        for position, entry in enumerate(entries):
            match entry.loss:
                case AlternativesLoss() if branched:
                    pass
                case GaussianLoss(multiplier):
                    precision.append(multiplier**-2)
                case _ if entry.epsilon > _PLAIN_EPSILON:
                    plain.append(entry.epsilon)
                    log_finite.append(math.log1p(-entry.delta))
                case BoundedRangeLoss() if position == 0:
                    first_range = entry.epsilon
                case BoundedRangeLoss():
                    ranges[entry.epsilon] += 1
                case PureLoss() | ApproximateLoss() | AlternativesLoss():
                    pure[entry.epsilon] += 1
                    log_finite.append(math.log1p(-entry.delta))
        return cls(
            first_range=first_range,
            ranges=_few_groups(ranges),
            pure=_few_groups(pure),
            precision=math.fsum(precision),
            infinite=-math.expm1(math.fsum(log_finite)),
            plain=math.fsum(plain),
        )

    def beside(self, ways: Iterable[Alternative]) -> _Losses:
        """These losses and those of one way of each entry."""
        precision, pure = [self.precision], Counter(dict(self.pure))
        for way in ways:
            if way.multiplier is not None:
                precision.append(way.multiplier**-2)
            if way.epsilon is not None:
                pure[way.epsilon] += 1
        return replace(self, precision=math.fsum(precision), pure=_few_groups(pure))

    def spread(self) -> float:
        """The standard deviation of the total loss, first entry aside, from above."""
        variance = self.precision
        variance += sum(count * epsilon**2 / 3 for epsilon, count in self.ranges)
        variance += sum(count * epsilon**2 for epsilon, count in self.pure)
        return math.sqrt(variance)


def _few_groups(epsilons: Counter[float]) -> _Groups:
    """The groups in order. If there are too many, adjacent ones take the largest of their epsilons, which is sound."""
    distinct = sorted(epsilon for epsilon in epsilons if epsilon > 0)
    width = -(-len(distinct) // _MOST_GROUPS)
    shares = (distinct[start : start + width] for start in range(0, len(distinct), max(width, 1)))
    return tuple((share[-1], sum(epsilons[epsilon] for epsilon in share)) for share in shares)


@functools.lru_cache(maxsize=256)
def _tight_epsilon(losses: _Losses, delta: float) -> float:
    """Epsilon at delta, or something larger where the computation has too few digits."""
    # Approximate entries fail with probability `infinite`, independently of the rest, which gets what is
    # left: delta = infinite + (1 - infinite) rest_delta.
    rest_delta = (delta - losses.infinite) / (1 - losses.infinite) * (1 - 1e-9)
    if losses.pure or losses.ranges:
        rest_delta -= _ROUNDING
    if rest_delta <= 0 or losses.spread() < _LEAST_SPREAD:
        return math.inf
    with np.errstate(all="ignore"):  # what overflows is compared with the basic total and loses
        rest = _rest_of(losses, rest_delta)
        epsilon = float(rest.get_epsilon_for_delta(rest_delta))
        if losses.first_range > 0:
            epsilon = _after_first_range(rest, rest_delta, losses.first_range, start=epsilon)
    return losses.plain + epsilon


def _rest_of(losses: _Losses, delta: float) -> Any:
    """The losses but the first entry's range and what is plainly added up, as one distribution."""
    if not (losses.pure or losses.ranges):
        return Gaussian(math.sqrt(losses.precision))
    if losses.precision > 0 and (atoms := _few_atoms(losses)) is not None:
        return GaussianBeside(Gaussian(math.sqrt(losses.precision)), *atoms)
    pairs = _distributions(losses, delta, interval=20 * losses.spread() / _GRID_POINTS)
    return functools.reduce(lambda one, other: one.compose(other), pairs)


@functools.lru_cache(maxsize=256)
def _branched_epsilon(others: _Losses, branching: _Branching, basic: Cost) -> float:
    """An epsilon at which failure and the deltas of all ways sum to at most the delta: the least, up to chords."""
    of_ways = [others.beside(way) for way in branching.ways]
    # With approximate entries beside it: delta = infinite + (1 - infinite) (failure + the ways' deltas).
    left = (basic.delta - others.infinite) / (1 - others.infinite) * (1 - 1e-9) - branching.failure
    left -= len(of_ways) * _ROUNDING
    if left <= 0 or any(losses.spread() < _LEAST_SPREAD for losses in of_ways):
        return math.inf
    step = (others.first_range or basic.epsilon / 16) / _RANGE_CELLS

    def spent(steps: int) -> float:
        shifted = (Shifted(rest, step * steps) for rest in rests)
        return sum(float(_lattice_deltas(rest, others.first_range, step, 0)[0]) for rest in shifted)

    with np.errstate(all="ignore"):
        rests = [_rest_of(losses, left) for losses in of_ways]
        few, enough = -1, math.ceil(basic.epsilon / step)
        if not spent(enough) <= left:
            return math.inf
        # Deltas fall. A range of steps may be of any length, so it is halved instead of listed.
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if spent(middle) <= left else (middle, enough)
        if enough == 0:
            return 0.0
        return step * few + crossing(np.array([spent(few), spent(enough)]), left, step)


def _lattice_deltas(rest: Any, first_range: float, step: float, count: int) -> Floats:
    """Delta of `rest` at 0, 1, ..., count steps; after a bounded range at the very beginning, if there is one."""
    if first_range == 0:
        return np.asarray(rest.get_delta_for_epsilon(step * np.arange(count + 1)))
    cells, high_share = _RANGE_CELLS, _high_shares(first_range)
    after = np.asarray(rest.get_delta_for_epsilon(step * np.arange(-cells, count + cells + 1)))
    places, cell = np.arange(count + 1)[:, None] + cells, np.arange(cells)
    deltas: Floats = np.max(
        high_share * after[places - (cell + 1)] + (1 - high_share) * after[places - (cell - cells)], axis=1
    )
    return deltas


def _high_shares(epsilon: float) -> Floats:
    """The chance of the larger of each cell's two losses under P, so that those under Q sum to 1 as well."""
    cell, step = np.arange(_RANGE_CELLS), epsilon / _RANGE_CELLS
    high, low = (cell + 1) * step, (cell - _RANGE_CELLS) * step
    shares: Floats = np.expm1(-low) / (np.expm1(-low) - np.expm1(-high))
    return shares


def _few_atoms(losses: _Losses) -> tuple[Floats, Floats] | None:
    """The sums of losses of all entries but Gaussian ones, with their chances; None if they are too many."""
    if sum(count for _, count in (*losses.pure, *losses.ranges)) > _MOST_FACTORS:
        return None
    places_each = _ATOM_DENSITY / math.sqrt(losses.precision)
    ends = [(epsilon, pure_profile, 1) for epsilon, count in losses.pure for _ in range(count)]
    ends += [
        (epsilon, range_profile, math.ceil(2 * epsilon * places_each))
        for epsilon, count in losses.ranges
        for _ in range(count)
    ]
    if math.prod(cells + 1 for _, _, cells in ends) > _MOST_ATOMS:
        return None
    sums, chances = np.zeros(1), np.ones(1)
    for epsilon, profile, cells in ends:
        places = np.linspace(-epsilon, epsilon, cells + 1)
        # Between two places delta is taken as linear in e^e, which never lowers it. A loss at a place then has the
        # chance under Q by which the slope changes there, and e^loss times that under P.
        lengths = np.exp(places[:-1]) * np.expm1(np.diff(places))  # of e^e, not 0 however near the places are
        slopes = np.diff(profile(epsilon, places)) / lengths
        under_q = np.maximum(np.diff(np.concatenate([[-1.0], slopes, [0.0]])), 0)
        sums = np.add.outer(sums, places).ravel()
        chances = np.multiply.outer(chances, under_q * np.exp(places)).ravel()
    return sums, chances


def _distributions(losses: _Losses, delta: float, *, interval: float) -> list[Any]:
    """The privacy loss distribution of each group, on one grid; tails far below `delta` become infinite."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    pairs = []
    if losses.precision > 0:
        gaussian = pld.from_gaussian_mechanism(
            1 / math.sqrt(losses.precision),
            pessimistic_estimate=True,
            value_discretization_interval=interval,
            log_mass_truncation_bound=math.log(delta * _FAR),
        )
        pairs.append(gaussian)
    for groups, profile in ((losses.pure, pure_profile), (losses.ranges, range_profile)):
        for epsilon, count in groups:
            pair = on_grid(functools.partial(profile, epsilon), epsilon, interval)
            pairs.append(pair.self_compose(count) if count > 1 else pair)
    return pairs


def _after_first_range(rest: Any, delta: float, epsilon: float, *, start: float) -> float:
    """Epsilon of a bounded-range mechanism followed by `rest`, which alone costs (start, delta).

    It lies between start and start + epsilon. With step = epsilon / cells, all that is needed of the rest is
    its delta at whole steps from start, because a cell's two losses are whole steps. Between two steps the
    total delta is convex in e^epsilon, so that the chord which we follow lies above it.
    """
    if not start < 500:
        return start + epsilon  # e^start would not fit
    step = epsilon / _RANGE_CELLS
    deltas = _lattice_deltas(Shifted(rest, start), epsilon, step, _RANGE_CELLS)
    return start + (epsilon if deltas[-1] > delta else crossing(deltas, delta, step))
