"""What a ledger's limit counts: zero-concentrated privacy, and plain sums beside it.

A mechanism is rho-zCDP if D_a(P|Q) <= a rho for every order a > 1, where P and Q are its output distributions on two
neighbours and D_a is Rényi's divergence; it is so *but for a failure* of probability d if that holds once events of
probability d are left out of P and of Q (Bun & Steinke 2016, definitions 1.1 and 8.1). Both add up, also over runs that
are chosen in view of earlier results, as long as limits on both sums were fixed before: a *filter* (Feldman & Zrnic
2021, Whitehouse, Ramdas, Rogers & Wu 2023, theorem 1). What each kind of mechanism costs:

- **Gaussian** of multiplier z: 1/(2 z^2), exactly.
- **Bounded range** epsilon: epsilon^2/8 (Cesar & Rogers 2021, lemma 3.4).
- **Pure** epsilon: epsilon tanh(epsilon/2), exactly for randomised response, of which every epsilon-private mechanism
  is a post-processing (Kairouz, Oh & Viswanath 2015). With x = epsilon/2 and s = 2a - 1 >= 1, the divergence of that is
  (a - 1) D_a = ln cosh(s x) - ln cosh(x), and a (a - 1) = (s^2 - 1)/4. So the claim is that (s^2 - 1)/2 x tanh(x) is at
  least ln cosh(s x) - ln cosh(x). Both are 0 at s = 1, and their slopes in s are s x tanh(x) and x tanh(s x), of which
  the first is larger because tanh is concave. The bound is met as a falls to 1.
- **Approximate** (epsilon, delta): pure but for a failure of delta (the same theorem of Kairouz, Oh & Viswanath).
- **Alternatives**: earlier results decide the way, so the dearest way counts, and the failure beside them.
- Noise in **shares of devices** is within a factor of e^slack of the noise it stands for, at every outcome. So it is
  that noise with probability e^-slack at least, and something else otherwise: a failure of at most slack.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.privacy.calibration import is_number
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

# How a limit's delta is divided: see `Limit`. Sums get enough for a few runs whose noise is not Gaussian; to halve the
# delta of a conversion adds about 3 % to an epsilon.
_FOR_CONVERSION, _FOR_FAILURES, _FOR_SUMS = 0.6, 0.1, 0.3
# Relative tolerance for float sums that meet a limit exactly.
_DUST = 1e-12
# Of a converted epsilon, for the error of logarithms: every order gives a valid one, so the search needs no care.
_ROUNDED_UP = 1 + 1e-12
_SEARCH_STEPS = 100
_GOLDEN = (math.sqrt(5) - 1) / 2

NO_END = (1 << 40) - 1
"""The number of runs that a limit has room for where more of them cost nothing more."""


@dataclass(frozen=True)
class Spending:
    """What mechanisms cost together, counted in both ways.

    Args:
        epsilon: the sum of their epsilons.
        delta: the sum of their deltas.
        rho: the sum of their zCDP.
        failure: the sum of their chances to fail; see the top of this module.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    rho: float = 0.0
    failure: float = 0.0

    def __post_init__(self) -> None:
        if not all(value >= 0 for value in (self.epsilon, self.delta, self.rho, self.failure)):
            raise InvalidPlan(f"a cost is {self!r}", allowed="numbers, 0 or more")

    @classmethod
    def of(cls, charges: Iterable[Charge]) -> Spending:
        """The cost of all these."""
        return cls.total(spending_of(charge) for charge in charges)

    @classmethod
    def total(cls, parts: Iterable[Spending]) -> Spending:
        """The sum, rounded once."""
        listed = list(parts)
        return cls(
            epsilon=exact_sum(part.epsilon for part in listed),
            delta=exact_sum(part.delta for part in listed),
            rho=exact_sum(part.rho for part in listed),
            failure=exact_sum(part.failure for part in listed),
        )

    @classmethod
    def of_cost(cls, cost: Cost) -> Spending:
        """The cost of an (epsilon, delta)-private mechanism about which nothing else is known."""
        return cls(cost.epsilon, cost.delta, pure_rho(cost.epsilon), cost.delta)

    @property
    def cost(self) -> Cost:
        """The plain sums."""
        return Cost(self.epsilon, self.delta)

    def __add__(self, other: Spending) -> Spending:
        return Spending.total((self, other))

    def times(self, runs: int) -> Spending:
        """The cost of several runs of the same."""
        return Spending(runs * self.epsilon, runs * self.delta, runs * self.rho, runs * self.failure)

    def within(self, other: Spending) -> bool:
        """Whether nothing of it is above the other. A sum that meets it exactly is not."""
        return all(
            mine <= theirs * (1 + _DUST)
            for mine, theirs in (
                (self.epsilon, other.epsilon),
                (self.delta, other.delta),
                (self.rho, other.rho),
                (self.failure, other.failure),
            )
        )


def spending_of(charge: Charge) -> Spending:
    """What one mechanism costs."""
    slack = charge.parameters.get("slack", 0.0)
    failure = slack if isinstance(slack, int | float) else 0.0
    match charge.loss:
        case GaussianLoss(multiplier):
            rho = gaussian_rho(multiplier)
        case BoundedRangeLoss():
            rho = bounded_range_rho(charge.epsilon)
        case PureLoss():
            rho = pure_rho(charge.epsilon)
        case ApproximateLoss():
            rho, failure = pure_rho(charge.epsilon), failure + charge.delta
        case AlternativesLoss(ways, failed):
            rho, failure = max(map(way_rho, ways)), failure + failed
    return Spending(charge.epsilon, charge.delta, rho, failure)


def pure_rho(epsilon: float) -> float:
    """The zCDP of an epsilon-private mechanism about which nothing else is known."""
    return epsilon * math.tanh(epsilon / 2)


def bounded_range_rho(epsilon: float) -> float:
    """The zCDP of a mechanism whose privacy loss lies in an interval of this length."""
    return epsilon**2 / 8


def gaussian_rho(multiplier: float) -> float:
    """The zCDP of Gaussian noise."""
    return 1 / (2 * multiplier**2)


def way_rho(way: Alternative) -> float:
    """The zCDP of Gaussian noise and a pure mechanism, one after the other."""
    gaussian = 0.0 if way.multiplier is None else gaussian_rho(way.multiplier)
    return gaussian + (0.0 if way.epsilon is None else pure_rho(way.epsilon))


def epsilon_of(rho: float, delta: float) -> float:
    """An epsilon at delta of everything that is rho-zCDP, rounded up; infinite for a delta of 0.

    The least over the order a of a rho + ln(1/(a delta))/(a - 1) + ln(1 - 1/a), each of which holds (Canonne, Kamath &
    Steinke 2020, proposition 12). It falls and then rises in ln(a - 1), where it is searched.
    """
    if rho == 0:
        return 0.0
    if not 0 < delta < 1 or not math.isfinite(rho):
        return 0.0 if delta >= 1 else math.inf

    def at(place: float) -> float:
        order = 1 + math.exp(place)
        return order * rho - (math.log(order) + math.log(delta)) / (order - 1) + math.log1p(-1 / order)

    # Near the best order for a Gaussian, sqrt(ln(1/delta)/rho), and far to both sides of it.
    centre = math.log(-math.log(delta) / rho) / 2
    low, high = max(centre - 8, -30.0), min(centre + 8, 600.0)
    for _ in range(_SEARCH_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if at(left) < at(right) else (left, high)
    return max(at((low + high) / 2), 0.0) * _ROUNDED_UP


def rho_within(epsilon: float, delta: float) -> float:
    """The largest rho whose epsilon at this delta is at most this one, rounded down."""
    if not 0 < delta < 1 or epsilon <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while epsilon_of(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(_SEARCH_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


@dataclass(frozen=True)
class Limit:
    """What all runs together may cost: (epsilon, delta) at most, whatever later runs are chosen in view of.

    Spending that never leaves a rectangle which was fixed before is a filter. There are two, and a third case:

    | filter       | bound                                                    | guarantees              |
    |--------------|----------------------------------------------------------|-------------------------|
    | sums         | epsilons up to epsilon, deltas up to 0.3 delta           | (epsilon, 0.3 delta)    |
    | concentrated | rho up to the largest that is epsilon at 0.6 delta, and  | (epsilon, 0.7 delta)    |
    |              | failures up to 0.1 delta                                 |                         |
    | one run      | a first run that neither has room for, and which fits    | (epsilon, delta)        |
    |              | into the limit by itself; it counts in full for ever     |                         |

    *What is filtered* are charges. Each is written before its mechanism draws, so that they only grow. What the ledger
    counts, open runs with all that they reserved, is never less. It may fall when a run ends, and falls within the
    region: below a point of a rectangle there are only points of the rectangle. So charges are in the region always,
    for runs that failed or were closed as for others.

    *A run is admitted if one of the two has room for it.* Split the possible histories of the ledger into those whose
    charges end within the sums' rectangle and the others, which end within the other one. Charges only grow, so a
    history of the first kind was inside all along, and has the same probability as under a ledger with that filter
    alone; likewise the others. So for a set S of histories P(S) <= e^epsilon Q(S) + 0.3 delta + 0.7 delta, adding up
    both parts. One region that is not a rectangle, such as all pairs of rho and failure whose epsilon is small enough
    at what the failure leaves of delta, would not do: who takes risks while luck lasts, and fails on purpose once it
    has gone, gets more (a test plays that).

    *One run* is chosen before anything is known of anybody, and is then all there is: the guarantee is the run's own.
    Were it given back what it did not charge when it fails, the choice to go on without it would be made in view of
    its first results, and both guarantees would add up to 2 delta. Only one that charged nothing has shown nothing.

    *Runs at the same time.* Draws of noise have an order in time, also those of runs that overlap: each is a mechanism
    that was chosen in view of all draws before it, and was charged before. What is concentrated is counted draw by
    draw: T Gaussian draws under one charge are T/(2 z^2) wherever others come in between. What is only known to be
    (epsilon, delta)-private as a whole may be interrupted by others, too: every
    such interaction is a post-processing of one randomised response with this epsilon and delta, drawn when it begins
    (Lyu 2022, Vadhan & Zhang 2023; for filters Haney et al. 2023), and that is the mechanism which is counted.

    *A limit that is replaced.* A lower one keeps the promise of the one before. A higher one promises what it says if
    it was not chosen in view of results.

    With a delta of 0 only sums are there, of pure mechanisms.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        numbers = is_number(self.epsilon) and is_number(self.delta)
        if not numbers or not (0 <= self.epsilon < math.inf and 0 <= self.delta < 1):
            raise InvalidPlan(
                f"the limit is epsilon {self.epsilon!r}, delta {self.delta!r}",
                allowed="two numbers: a finite epsilon, 0 or more, and a delta from 0 to below 1",
                code="bad-limit",
            )

    def admits(self, spent: Spending, run: Spending) -> bool:
        """Whether a run of this cost may follow what was spent."""
        alone = spent == Spending() and run.cost.fits(epsilon=self.epsilon, delta=self.delta)
        return alone or self.has_room(spent + run)

    def has_room(self, total: Spending) -> bool:
        """Whether one of the two filters holds this; not so for a first run that is admitted as the only one."""
        return self._has_sums(total) or self._has_concentrated(total)

    def claimed(self, spent: Spending) -> float:
        """The least epsilon of a limit with this delta under which all this could have been spent, rounded up."""
        by_sums = spent.epsilon if spent.delta <= self._of_sums * (1 + _DUST) else math.inf
        whole = spent.failure <= self.delta * _FOR_FAILURES * (1 + _DUST)
        by_rho = epsilon_of(spent.rho, self.delta * _FOR_CONVERSION) if whole else math.inf
        return min(by_sums, by_rho)

    def runs_left(self, spent: Spending, run: Spending) -> int:
        """The number of runs of this cost that would still be admitted, one after another; NO_END for any number."""
        if not self.admits(spent, run):
            return 0
        low, high = 1, 2
        while self.admits(spent + run.times(high - 1), run) and high <= NO_END:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.admits(spent + run.times(middle - 1), run) else (low, middle)
        return low

    @property
    def rho(self) -> float:
        """The largest zCDP that the limit has room for."""
        return rho_within(self.epsilon, self.delta * _FOR_CONVERSION)

    @property
    def failure(self) -> float:
        """The largest chance of failures that it has room for."""
        return self.delta * _FOR_FAILURES

    @property
    def _of_sums(self) -> float:
        return self.delta * _FOR_SUMS

    def _has_sums(self, spent: Spending) -> bool:
        return spent.cost.fits(epsilon=self.epsilon, delta=self._of_sums)

    def _has_concentrated(self, spent: Spending) -> bool:
        if spent.failure > self.failure * (1 + _DUST):
            return False
        return epsilon_of(spent.rho, self.delta * _FOR_CONVERSION) <= self.epsilon * (1 + _DUST)
