"""What touched the data, and what it cost: one entry a mechanism, written before its noise is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any, TypeVar

from fedhist.display.html_table import html_table
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
