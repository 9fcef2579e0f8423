"""What touched the data, and what it cost: one entry a mechanism, written before its noise is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any, TypeVar

from fedhist.display.tables import html_table
from fedhist.protocol.errors import InvalidFile, InvalidPlan
from fedhist.protocol.privacy.calibration import is_number

_NEIGHBOURS = ("zero-out", "replace-one", "add-or-remove-one")
_T = TypeVar("_T")
# Relative tolerance for float sums that meet a limit exactly.
_DUST = 1e-12


@dataclass(frozen=True)
class PureLoss:
    """An epsilon-private mechanism about which nothing else is known: its loss lies in [-epsilon, epsilon]."""


@dataclass(frozen=True)
class BoundedRangeLoss:
    """An exponential mechanism: its privacy loss lies in an interval of length epsilon that contains 0.

    Stronger than epsilon-privacy, which allows an interval twice as long (Durfee & Rogers 2019).
    """


@dataclass(frozen=True)
class GaussianLoss:
    """Gaussian noise.

    Args:
        multiplier: the standard deviation over the l2 sensitivity. T steps of multiplier z compose to one of
            z / sqrt(T), so a loop of Gaussian steps is one entry.
    """

    multiplier: float

    def __post_init__(self) -> None:
        if not is_number(self.multiplier) or not 0 < self.multiplier < math.inf:
            raise InvalidPlan(
                f"the noise multiplier is {self.multiplier!r}",
                allowed="a finite number above 0",
                code="bad-noise-multiplier",
            )
        object.__setattr__(self, "multiplier", float(self.multiplier))


@dataclass(frozen=True)
class ApproximateLoss:
    """An (epsilon, delta)-private mechanism about which nothing else is known."""


@dataclass(frozen=True)
class Alternative:
    """Gaussian noise and a pure mechanism, one after the other; None for none of either."""

    multiplier: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        for number in (self.multiplier, self.epsilon):
            if number is not None and not (is_number(number) and 0 < number < math.inf):
                raise InvalidPlan(f"an alternative's noise is {number!r}", allowed="a finite number above 0")


@dataclass(frozen=True)
class AlternativesLoss:
    """A part of a run that ends in one of several public ways, which earlier results decide.

    A run's results split by the way, and those of one way are results of a run that always goes it: the deltas of all
    ways, each composed with the rest of the run, add up.

    Args:
        ways: what each costs.
        failure: of delta, beside all that.
    """

    ways: tuple[Alternative, ...]
    failure: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ways", tuple(self.ways))
        if not self.ways or not (is_number(self.failure) and 0 <= self.failure < 1):
            raise InvalidPlan(
                "a loss without a way, or with a failure that is no chance", allowed="0 to below 1"
            )


PrivacyLoss = PureLoss | BoundedRangeLoss | GaussianLoss | ApproximateLoss | AlternativesLoss

_LOSSES: dict[str, type[PrivacyLoss]] = {
    "pure": PureLoss,
    "bounded-range": BoundedRangeLoss,
    "gaussian": GaussianLoss,
    "approximate": ApproximateLoss,
    "alternatives": AlternativesLoss,
}


@dataclass(frozen=True)
class Cost:
    """A total of (epsilon, delta). An infinite epsilon means no privacy at all."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not is_number(self.epsilon) or not self.epsilon >= 0:
            raise InvalidPlan(f"the epsilon of a cost is {self.epsilon!r}", allowed="0 or more")
        if not is_number(self.delta) or not 0 <= self.delta < math.inf:
            raise InvalidPlan(f"the delta of a cost is {self.delta!r}", allowed="a finite number, 0 or more")

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta)

    def fits(self, *, epsilon: float, delta: float) -> bool:
        """Whether it stays within a limit. A sum that meets the limit exactly does."""
        return self.epsilon <= epsilon * (1 + _DUST) and self.delta <= delta * (1 + _DUST)

    def to_json(self) -> dict[str, float | None]:
        """A dictionary for JSON, which has no infinity: an infinite epsilon is null."""
        return {"epsilon": _or_null(self.epsilon), "delta": float(self.delta)}


@dataclass(frozen=True)
class Charge:
    """One mechanism that touched data.

    A step that is not private at all (an oracle in a simulation) is an entry too: `private` is False, epsilon
    is infinite and delta 0, so that no total can hide it.

    Args:
        round: "discover", "select" or "release".
        name: what was run, such as "exponential-mechanism" or "discrete-gaussian".
        parameters: its settings, for readers. They contain no user's data.
        sensitivity: the largest change one user makes, in `norm`.
        norm: how that change is measured: "l1", "l2", "score", ...
        neighbours: "zero-out", "replace-one" or "add-or-remove-one".
        epsilon: what the mechanism costs alone.
        delta: what the mechanism costs alone.
        loss: what else is known about its privacy loss; tight composition uses it.
        private: False for a step without any guarantee.
    """

    round: str
    name: str
    parameters: Mapping[str, float | int | str] = field(hash=False)
    sensitivity: float
    norm: str
    neighbours: str
    epsilon: float
    delta: float
    loss: PrivacyLoss
    private: bool = True

    def __post_init__(self) -> None:
        # A copy, so that the entry can't change later through the mapping that was passed.
        object.__setattr__(self, "parameters", dict(self.parameters))
        for name in ("epsilon", "delta", "sensitivity"):
            value = getattr(self, name)
            if not is_number(value) or not value >= 0:
                raise InvalidPlan(f"the {name} of {self.name} is {value!r}", allowed="a number, 0 or more")
        if self.neighbours not in _NEIGHBOURS:
            raise InvalidPlan(
                f"the neighbours of {self.name} are {self.neighbours!r}",
                allowed=" or ".join(_NEIGHBOURS),
            )
        for name, parameter in self.parameters.items():
            if not isinstance(parameter, str) and not (is_number(parameter) and math.isfinite(parameter)):
                raise InvalidPlan(
                    f"the parameter {name} of {self.name} is {parameter!r}",
                    allowed="finite numbers and text",
                )
        self._check_guarantee()

    def _check_guarantee(self) -> None:
        if not self.private:
            if self.epsilon != math.inf or self.delta != 0:
                raise InvalidPlan(
                    f"{self.name} is not private but costs ({self.epsilon!r}, {self.delta!r})",
                    allowed="an infinite epsilon and delta = 0 for a step without a guarantee",
                )
            return
        if math.inf in (self.epsilon, self.sensitivity) or self.delta >= 1:
            raise InvalidPlan(
                f"{self.name} claims to be private with epsilon {self.epsilon!r}, delta {self.delta!r} "
                f"and sensitivity {self.sensitivity!r}",
                allowed="finite values and a delta below 1, or private=False",
            )
        if isinstance(self.loss, GaussianLoss) and (self.delta == 0 or self.epsilon == 0):
            raise InvalidPlan(
                f"{self.name} is Gaussian and costs ({self.epsilon!r}, {self.delta!r})",
                allowed="epsilon and delta above 0",
            )
        if isinstance(self.loss, PureLoss | BoundedRangeLoss) and self.delta != 0:
            raise InvalidPlan(
                f"{self.name} has a pure privacy loss and delta {self.delta!r}",
                allowed="delta = 0",
                advice="record it with ApproximateLoss()",
            )

    @property
    def cost(self) -> Cost:
        """What the mechanism costs alone."""
        return Cost(self.epsilon, self.delta)

    def to_json(self) -> dict[str, Any]:
        """A dictionary for JSON, which has no infinity: an infinite epsilon or sensitivity is null."""
        return {
            "round": str(self.round),
            "name": str(self.name),
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
            "sensitivity": _or_null(self.sensitivity),
            "norm": str(self.norm),
            "neighbours": str(self.neighbours),
            "epsilon": _or_null(self.epsilon),
            "delta": float(self.delta),
            "loss": _loss_to_json(self.loss),
            "private": self.private,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Charge:
        """The entry that `to_json` wrote; anything else is an InvalidFile."""
        try:
            return Charge(
                round=_typed(str, value["round"]),
                name=_typed(str, value["name"]),
                parameters=value["parameters"],
                sensitivity=_from_null(value["sensitivity"]),
                norm=_typed(str, value["norm"]),
                neighbours=_typed(str, value["neighbours"]),
                epsilon=_from_null(value["epsilon"]),
                delta=value["delta"],
                loss=_loss_from_json(value["loss"]),
                private=_typed(bool, value["private"]),
            )
        except (KeyError, TypeError, ValueError) as problem:
            raise InvalidFile(
                "a ledger entry can't be read",
                allowed="the dictionary that Charge.to_json writes",
                advice="the file is damaged or was edited; restore it from a copy",
                code="damaged-entry",
            ) from problem


class Ledger:
    """The entries of one run, in the order in which they were charged.

    Args:
        journal: called with each entry before it counts. A ledger file hooks in here; when it raises, nothing
            is charged, the error goes on to the caller, and no noise is drawn.
    """

    def __init__(self, journal: Callable[[Charge], None] | None = None) -> None:
        self._journal = journal
        self._entries: list[Charge] = []

    def charge(self, charge: Charge) -> None:
        """Write an entry. Call it before the mechanism draws its noise."""
        check_same_neighbours(charge, self._entries[:1])
        if self._journal is not None:
            self._journal(charge)
        self._entries.append(charge)

    @property
    def entries(self) -> tuple[Charge, ...]:
        """All entries so far."""
        return tuple(self._entries)

    @property
    def private(self) -> bool:
        """Whether every entry has a guarantee."""
        return all(entry.private for entry in self._entries)

    def _repr_html_(self) -> str:
        """The ledger in a notebook: one row an entry, then their sum."""
        rows = [(c.round, c.name, f"{c.epsilon:.4g}", f"{c.delta:.3g}") for c in self._entries]
        total = self.basic()
        rows.append(("total", "basic composition", f"{total.epsilon:.4g}", f"{total.delta:.3g}"))
        return html_table("Ledger", rows, headings=("round", "mechanism", "epsilon", "delta"))

    def basic(self) -> Cost:
        """The sum of the entries' costs."""
        from fedhist.protocol.privacy.composition import basic_total  # it imports this module

        return basic_total(self._entries)

    def tight(self) -> Cost:
        """The least epsilon that we can prove, at the same delta as `basic`."""
        from fedhist.protocol.privacy.composition import tight_total  # it imports this module

        return tight_total(self._entries)


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once; infinite where it is beyond all doubles."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def check_same_neighbours(charge: Charge, earlier: list[Charge]) -> None:
    """Refuse an entry for other neighbours than those of earlier entries: their epsilons do not add up."""
    for entry in earlier:
        if entry.neighbours != charge.neighbours:
            raise InvalidPlan(
                f"{charge.name} is private for {charge.neighbours} neighbours and the ledger holds "
                f"entries for {entry.neighbours} neighbours",
                allowed="one relation in a ledger, because costs under two of them can't be added",
                advice="name another file with --ledger, or use the same --neighbours",
                code="other-neighbours",
            )


def _loss_to_json(loss: PrivacyLoss) -> dict[str, Any]:
    (kind,) = (kind for kind, known in _LOSSES.items() if known is type(loss))
    return {"kind": kind, **asdict(loss)}


def _loss_from_json(value: Mapping[str, Any]) -> PrivacyLoss:
    said = dict(value)
    if said["kind"] == "alternatives":
        said["ways"] = tuple(Alternative(**way) for way in said["ways"])
    return _LOSSES[said.pop("kind")](**said)


def _plain(value: float | int | str) -> float | int | str:
    """The value as a Python number: JSON does not know numpy's."""
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, Integral) else float(value)


def _or_null(value: float) -> float | None:
    return None if math.isinf(value) else float(value)


def _from_null(value: float | None) -> float:
    return math.inf if value is None else value


def _typed(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value


# What a ledger's limit counts: zero-concentrated privacy, and plain sums beside it.
#
# A mechanism is rho-zCDP if D_a(P|Q) <= a rho for every order a > 1, where P and Q are its output distributions on two
# neighbours and D_a is Rényi's divergence; it is so *but for a failure* of probability d if that holds once events of
# probability d are left out of P and of Q (Bun & Steinke 2016, definitions 1.1 and 8.1). Both add up, also over runs
# that are chosen in view of earlier results, as long as limits on both sums were fixed before: a *filter* (Feldman &
# Zrnic 2021, Whitehouse, Ramdas, Rogers & Wu 2023, theorem 1). What each kind of mechanism costs:
#
# - **Gaussian** of multiplier z: 1/(2 z^2), exactly.
# - **Bounded range** epsilon: epsilon^2/8 (Cesar & Rogers 2021, lemma 3.4).
# - **Pure** epsilon: epsilon tanh(epsilon/2), exactly for randomised response, of which every epsilon-private
#   mechanism is a post-processing (Kairouz, Oh & Viswanath 2015). With x = epsilon/2 and s = 2a - 1 >= 1, the
#   divergence of that is (a - 1) D_a = ln cosh(s x) - ln cosh(x), and a (a - 1) = (s^2 - 1)/4. So the claim is that
#   (s^2 - 1)/2 x tanh(x) is at least ln cosh(s x) - ln cosh(x). Both are 0 at s = 1, and their slopes in s are s x
#   tanh(x) and x tanh(s x), of which the first is larger because tanh is concave. The bound is met as a falls to 1.
# - **Approximate** (epsilon, delta): pure except for a failure of delta (the same theorem of Kairouz, Oh & Viswanath).
# - **Alternatives**: earlier results decide the way, so the dearest way counts, and the failure beside them.
# - Noise in **shares of devices** is within a factor of e^slack of the noise it stands for, at every outcome. So it is
#   that noise with probability e^-slack at least, and something else otherwise: a failure of at most slack.

# How a limit's delta is divided: see `Limit`. Sums get enough for a few runs whose noise is not Gaussian; to halve the
# delta of a conversion adds about 3 % to an epsilon.
_FOR_CONVERSION, _FOR_FAILURES, _FOR_SUMS = 0.6, 0.1, 0.3
# Relative tolerance for float sums that meet a limit exactly.
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
