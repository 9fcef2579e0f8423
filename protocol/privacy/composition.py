"""What several mechanisms cost together: by adding up, and by their privacy loss distributions.

A mechanism's privacy loss is ln(P(o) / Q(o)) at an outcome o drawn from P, where P and Q are its output
distributions on two neighbours. The losses of mechanisms that run one after another add up, also when a later
one depends on what the earlier ones showed, and delta(epsilon) = E[max(0, 1 - e^(epsilon - loss))]. It is
enough to know for each mechanism a *dominating pair*: one with no smaller delta at any epsilon (Zhu, Dong &
Wang 2022, theorem 10). The pairs used here:

- **Gaussian** of multiplier z: a loss of N(1/(2z^2), 1/z^2). Several are one: their 1/z^2 add up.
- **Pure**: loss +epsilon or -epsilon, as in randomised response. No epsilon-private mechanism does worse.
- **Approximate**: infinite with probability delta, else pure.
- **Discovery**: Gaussian, and what the bar costs beside everything else (`discovery`); then its release, which is
  Gaussian or pure. All of it is in one entry.
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

All pairs but the first entry's are symmetric: adding and removing a user give the same losses. Swapping P
and Q in the first entry turns t into epsilon - t, and the largest over all t covers both.

Distributions are put on a grid by connecting the dots (Doroshenko et al. 2022), which never lowers a delta.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhist.protocol.histograms import Floats
from fedhist.protocol.privacy.ledger import (
    ApproximateLoss,
    BoundedRangeLoss,
    Charge,
    Cost,
    DiscoveryLoss,
    GaussianLoss,
    PureLoss,
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
# A hundred times the largest error seen in a delta from the Fourier transforms of one composition.
_ROUNDING = 1e-14

_Profile = Callable[[Floats], Floats]
_Groups = tuple[tuple[float, int], ...]


def basic_total(charges: Iterable[Charge]) -> Cost:
    """The sum of all epsilons and of all deltas.

    It also holds when the budgets of later mechanisms were chosen in view of earlier results, as long as a
    limit on the sum was fixed before (Rogers et al. 2016): limits are checked with this one.
    """
    entries = list(charges)
    return Cost(exact_sum(entry.epsilon for entry in entries), exact_sum(entry.delta for entry in entries))


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once; infinite where it is beyond all doubles."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


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
    epsilon = _tight_epsilon(_Losses.of(entries), basic.delta)
    return Cost(epsilon, basic.delta) if epsilon < basic.epsilon else basic


@dataclass(frozen=True)
class _Losses:
    """What the total depends on: few numbers for a ledger of any length, and the same ones for runs of one plan.

    Args:
        first_range: epsilon of the first entry if that is of bounded range, else 0.
        ranges: (epsilon, how many) of the other bounded-range entries.
        pure: (epsilon, how many) of the entries that only promise epsilon.
        precision: sum of 1/z^2 over the Gaussian entries.
        infinite: the probability that an approximate entry fails.
        beside: what discoveries' bars cost of delta, whatever the rest costs.
        plain: epsilons so large that they are just added up.
    """

    first_range: float
    ranges: _Groups
    pure: _Groups
    precision: float
    infinite: float
    beside: float
    plain: float

    @classmethod
    def of(cls, entries: Sequence[Charge]) -> _Losses:
        """Group the entries by kind and epsilon."""
        first_range, precision, log_finite, beside = 0.0, [0.0], [0.0], [0.0]
        ranges: Counter[float] = Counter()
        pure: Counter[float] = Counter()
        plain = []
        for position, entry in enumerate(entries):
            match entry.loss:
                case GaussianLoss(multiplier):
                    precision.append(multiplier**-2)
                case DiscoveryLoss():
                    precision.append(entry.loss.multiplier**-2)
                    beside.append(entry.loss.failure)
                    if entry.loss.release_multiplier is not None:
                        precision.append(entry.loss.release_multiplier**-2)
                    if entry.loss.release_epsilon is not None:
                        pure[entry.loss.release_epsilon] += 1
                case _ if entry.epsilon > _PLAIN_EPSILON:
                    plain.append(entry.epsilon)
                    log_finite.append(math.log1p(-entry.delta))
                case BoundedRangeLoss() if position == 0:
                    first_range = entry.epsilon
                case BoundedRangeLoss():
                    ranges[entry.epsilon] += 1
                case PureLoss() | ApproximateLoss():
                    pure[entry.epsilon] += 1
                    log_finite.append(math.log1p(-entry.delta))
        return cls(
            first_range=first_range,
            ranges=_few_groups(ranges),
            pure=_few_groups(pure),
            precision=math.fsum(precision),
            infinite=-math.expm1(math.fsum(log_finite)),
            beside=math.fsum(beside),
            plain=math.fsum(plain),
        )

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
    rest_delta = (delta - losses.beside - losses.infinite) / (1 - losses.infinite) * (1 - 1e-9)
    if losses.pure or losses.ranges:
        rest_delta -= _ROUNDING
    spread = losses.spread()
    if rest_delta <= 0 or spread < _LEAST_SPREAD:
        return math.inf
    with np.errstate(all="ignore"):  # what overflows is compared with the basic total and loses
        pairs = _distributions(losses, rest_delta, interval=20 * spread / _GRID_POINTS)
        rest = pairs[0]
        for pair in pairs[1:]:
            rest = rest.compose(pair)
        epsilon = float(rest.get_epsilon_for_delta(rest_delta))
        if losses.first_range > 0:
            epsilon = _after_first_range(rest, rest_delta, losses.first_range, start=epsilon)
    return losses.plain + epsilon


def _distributions(losses: _Losses, delta: float, *, interval: float) -> list[Any]:
    """The privacy loss distribution of each group, on one grid; tails far below `delta` become infinite."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    pairs = []
    if losses.precision > 0:
        gaussian = pld.from_gaussian_mechanism(
            1 / math.sqrt(losses.precision),
            pessimistic_estimate=True,
            value_discretization_interval=interval,
            log_mass_truncation_bound=math.log(delta) - 20,
        )
        pairs.append(gaussian)
    for groups, profile in ((losses.pure, _pure_profile), (losses.ranges, _range_profile)):
        for epsilon, count in groups:
            pair = _on_grid(functools.partial(profile, epsilon), epsilon, interval)
            pairs.append(pair.self_compose(count) if count > 1 else pair)
    return pairs


def _on_grid(profile: _Profile, epsilon: float, interval: float) -> Any:
    """The distribution on the grid whose delta agrees with `profile` there and is no smaller between."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    last = math.ceil(epsilon / interval)
    deltas = profile(np.arange(-last, last + 1, dtype=np.float64) * interval)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -last, last, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


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


def _after_first_range(rest: Any, delta: float, epsilon: float, *, start: float) -> float:
    """Epsilon of a bounded-range mechanism followed by `rest`, which alone costs (start, delta).

    It lies between start and start + epsilon. With step = epsilon / cells, all that is needed of the rest is
    its delta at whole steps from start, because a cell's two losses are whole steps. Between two steps the
    total delta is convex in e^epsilon, so that the chord which we follow lies above it.
    """
    if not start < 500:
        return start + epsilon  # e^start would not fit
    cells, step = _RANGE_CELLS, epsilon / _RANGE_CELLS
    rest_deltas = np.asarray(rest.get_delta_for_epsilon(start + step * np.arange(-cells, 2 * cells + 1)))
    cell = np.arange(cells)
    high, low = (cell + 1) * step, (cell - cells) * step
    # The two losses' probabilities under P, so that those under Q, e^-loss times as large, sum to 1 as well.
    high_share = np.expm1(-low) / (np.expm1(-low) - np.expm1(-high))
    steps = np.arange(cells + 1)[:, None]
    after_high = rest_deltas[cells + steps - (cell + 1)]
    after_low = rest_deltas[cells + steps - (cell - cells)]
    totals = np.max(high_share * after_high + (1 - high_share) * after_low, axis=1)
    enough = int(np.argmax(totals <= delta)) if totals[-1] <= delta else cells
    if enough == 0:
        return start
    above, below = totals[enough - 1], totals[enough]
    share = (above - delta) / (above - below) if below < delta < above else 1.0
    return float(start + step * (enough - 1) + math.log1p(math.expm1(step) * share))
