"""What is measured: a vector that each device computes from its users and the server learns the sum of.

A measurement answers every question about itself in one class: how long its vector is and how large one user can make
it, how far one user moves the sum (with the proof), how a device computes it, what a server can refuse of it, how the
sum is read, and how all this is said to a person. Transports, codecs, masks and reports ask; they know no other way
to tell measurements apart. A new one is a class in this folder and a line in the registry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.errors import DecodeError, InvalidInput, OutOfBounds, UnexpectedMessage
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Histograms, Integers, Labels
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.masking.vectors import width_for
from fedhist.protocol.plugins import Kind, measured_by, plugin_named
from fedhist.protocol.privacy.neighbours import Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.privacy.shares import Share
from fedhist.protocol.sketch import SALT_BYTES

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


GivenField = str | int | bytes | list[int]

# Sums are taken in doubles first; an honest vector may exceed the bound by their rounding only.
SLACK = 1 + 1e-9


class Given(ABC):
    """A value that travels beside the plan."""

    @abstractmethod
    def to_fields(self) -> dict[str, GivenField]:
        """The value as flat fields of a request."""

    @classmethod
    @abstractmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Self:
        """The value in these fields; DecodeError if there is none, or none that the plan admits."""


@dataclass(frozen=True)
class Nothing(Given):
    """The first round of a run."""

    def to_fields(self) -> dict[str, GivenField]:
        """No fields."""
        return {}

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Self:
        """Always there."""
        return cls()


NOTHING = Nothing()


@dataclass(frozen=True)
class Column(Given):
    """The one part of the statistic that the plan's selector reads."""

    name: str

    def to_fields(self) -> dict[str, GivenField]:
        """By its name."""
        return {"column": self.name}

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Self:
        """The measurement knows which there are."""
        return cls(take(fields, "column", str))


@dataclass(frozen=True)
class Bound(Given):
    """The threshold for all items of a user together."""

    threshold: Threshold

    def to_fields(self) -> dict[str, GivenField]:
        """In steps of the plan's grid."""
        return {"threshold-steps": self.threshold.steps}

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Self:
        """Inside the plan's public range."""
        steps = take(fields, "threshold-steps", int)
        lowest, highest = plan.step_range
        if not lowest <= steps <= highest:
            raise DecodeError("the threshold is outside the plan's public range")
        return cls(Threshold(steps=steps, bits=plan.grid_bits))


@dataclass(frozen=True, eq=False)
class ItemBounds(Given):
    """A threshold for each item, in steps of the plan's grid."""

    steps: Integers = field(repr=False)

    def to_fields(self) -> dict[str, GivenField]:
        """As a list."""
        return {"item-thresholds": self.steps.tolist()}

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Self:
        """One for each item, inside the plan's public range."""
        values = take(fields, "item-thresholds", list)
        lowest, highest = plan.step_range
        if len(values) != plan.items or not all(
            type(value) is int and lowest <= value <= highest for value in values
        ):
            raise DecodeError("the item-thresholds are not one for each item inside the plan's public range")
        return cls(np.array(values, dtype=np.int64))


@dataclass(frozen=True)
class Salt(Given):
    """Where keys go in a table.

    It is new for each run and drawn after the rounds before, so that nobody could choose their data in view of it.
    """

    salt: bytes

    def __post_init__(self) -> None:
        if len(self.salt) != SALT_BYTES:
            raise InvalidInput(
                f"a table's salt of {len(self.salt)} bytes",
                allowed=f"{SALT_BYTES} bytes",
                advice="draw a new one for each run",
                code="bad-salt",
            )

    def to_fields(self) -> dict[str, GivenField]:
        """As bytes."""
        return {"table-salt": self.salt}

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], plan: Plan) -> Self:
        """A whole salt."""
        salt: bytes = take(fields, "table-salt", bytes)
        if len(salt) != SALT_BYTES:
            raise DecodeError(f"the table's salt has {len(salt)} bytes; allowed: {SALT_BYTES}")
        return cls(salt)


def take(fields: Mapping[str, object], name: str, kind: type[Any]) -> Any:
    """The field of this name, of this very type."""
    value = fields.get(name)
    if type(value) is not kind:
        raise DecodeError(f"the field {name} is missing or not of type {kind.__name__}")
    return value


def exactly(counted: Integers, users: int) -> None:
    """Refuse bins that do not hold each user once."""
    # First each, so that the sum can't wrap around to the right number.
    if (counted > users).any() or int(counted.sum()) != users:
        raise OutOfBounds("the users of all bins are not the declared number")


def at_most(values: Integers, bounds: Integers | int, what: str) -> None:
    """Refuse values above what the declared users can add up to."""
    if (np.asarray(values) > bounds).any():
        raise beyond(what)


def sum_at_most(rows: Integers, bounds: Integers | int, what: str) -> None:
    """The same of sums over the first axis. In doubles first: sums of whole numbers that pass that can't wrap."""
    if (rows.sum(axis=0, dtype=np.float64) > np.multiply(bounds, SLACK)).any():
        raise beyond(what)
    at_most(rows.sum(axis=0), bounds, what)


def beyond(what: str) -> OutOfBounds:
    """The refusal."""
    return OutOfBounds(f"{what} is above what the declared number of users can add up to")


GivenT = TypeVar("GivenT", bound=Given)


class Round(StrEnum):
    """What a round is for. A run has those that its plan's parts ask for, in this order."""

    DISCOVER = "discover"
    SELECT = "select"
    RELEASE = "release"

    @property
    def under_way(self) -> str:
        """The state of a run in this round, in traces."""
        return f"{self.value.removesuffix('e')}ing"


@dataclass(frozen=True)
class Shape:
    """What a transport needs to know to carry and add up a measurement.

    Args:
        length: the number of values in the vector.
        largest: the most that one user adds to any value, noise aside.
        columns: the number of values of each key, 0 where no keys travel.
        bins: the number of keys of each item.
        noise: the most that noise adds to the sum anywhere, either way, but with probability 2^-40.
    """

    length: int
    largest: int
    columns: int = 0
    bins: int = 1
    noise: int = 0


@dataclass(frozen=True)
class Words:
    """A measurement in words, for reports, traces and --verbose.

    Args:
        asks: what the server asks for, as the end of "The server asks for ...".
        work: what a device does, in two or three words.
        sends: what a device sends, in two or three words; under masks, what it masks.
        detail: what the device computes, as sentences.
        clip: of what is released, how users are clipped, in two or three words.
        bound: of what is released, what that means for a user, as a sentence with {C} for the threshold.
        sharper: of what is chosen by, what makes the choice sharper, beside its budget and more users.
        fewer: which users it takes fewer of to be resolved.
    """

    asks: str
    work: str
    sends: str
    detail: str
    clip: str = ""
    bound: str = ""
    sharper: str = ""
    fewer: str = ""


@dataclass(frozen=True, eq=False)
class Summed:
    """A measurement, summed over some users. Sums by item number where keys travel."""

    values: Integers = field(repr=False)
    keyed: Keyed | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Total:
    """A measurement, summed over the cohort, as a transport hands it to the coordinator.

    Args:
        users: the number of users in the sum.
        values: the vector.
        keyed: sums by item number, where keys travel.
        labels: what the items are called; None means by their numbers.
        shares: under masks, the number of participants' vectors, and so of shares of noise, in the sum.
        width: under masks, values are known modulo 2^width only: see `protocol/circle.py` for what may be done with
            them.
        unread: the sum is a table that does not decode. A transport hands it on like any other, so that nothing that
            it reports depends on this.
    """

    users: int
    values: Integers = field(repr=False)
    keyed: Keyed | None = field(default=None, repr=False)
    labels: Labels | None = field(default=None, repr=False)
    shares: int = 0
    width: int = WIDEST
    unread: bool = False


@dataclass(frozen=True, eq=False)
class Measurement(ABC, Generic[GivenT]):
    """One way to measure, for one plan and for what earlier rounds handed on."""

    name: ClassVar[str]
    """In requests, and in the registry."""

    round: ClassVar[Round]
    """The round that asks for it. A device answers each round once."""

    takes: ClassVar[type[Given]] = Nothing
    """What earlier rounds must hand on."""

    offers: ClassVar[frozenset[str]] = frozenset()
    """What a selector can read in the sum; empty for what is released."""

    where: ClassVar[str]
    """The kind of plan, as the end of "a selector for plans ..."."""

    exact: ClassVar[bool] = False
    """Whether the server must see the exact sum, so that devices add no noise even where they noise other rounds."""

    names_travel: ClassVar[bool] = False
    """Whether items' names are in an answer, so that its length tells of its users' data."""

    releases: ClassVar[tuple[str | None, ...]] = ()
    """What a plan's `release` may be to ask for it; None where a plan names none, nothing for what is not released."""

    plan: Plan
    given: GivenT

    def __post_init__(self) -> None:
        unsettled = self.round is Round.RELEASE and self.plan.chooses_mechanism
        if type(self.given) is not self.takes or not self.admitted(self.plan) or unsettled:
            raise UnexpectedMessage(state=self.name, message=self.given)

    @classmethod
    @abstractmethod
    def fits(cls, plan: Plan) -> bool:
        """Whether a device may answer this measurement under the plan. It refuses all others."""

    @classmethod
    def admitted(cls, plan: Plan, *, named: bool = False) -> bool:
        """Whether it fits, and the plan names it if it comes from outside: plugins change no other plan.

        Nor do they answer where devices must add the noise: a device that insists on that can't rely on them.

        Args:
            plan: of the round.
            named: whether the plan is to name it, once it has the selector that is asked about.
        """
        plugin = plugin_named(Kind.MEASUREMENT, cls.name)
        if plugin is None:
            return cls.fits(plan)
        named = named or str(plugin) in plan.plugins
        return named and not plan.noise_by_devices and cls.fits(plan)

    @classmethod
    def released_by(cls, plan: Plan) -> bool:
        """Whether the plan's `release` asks for it, by a name in `releases` or by a rule from outside.

        Noise from devices is made for the project's own rules: what they charge is what devices add.
        """
        return plan.release in cls.releases or (
            measured_by(plan.release) == cls.name and not plan.noise_by_devices
        )

    @classmethod
    def noised(cls, plan: Plan) -> bool:
        """Whether devices add noise to their answers."""
        return plan.noise_by_devices and not cls.exact

    @classmethod
    def charged_ahead(cls, plan: Plan) -> bool:
        """Whether the answers are results already, so that they are charged before they are asked for."""
        return cls.noised(plan)

    @classmethod
    @abstractmethod
    def words(cls, plan: Plan) -> Words:
        """What is measured, for people."""

    @cached_property
    @abstractmethod
    def shape(self) -> Shape:
        """The size of an answer, which no data changes except through keys."""

    @property
    @abstractmethod
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """How far one user moves the sum: of each part of the reading that is noised or scored, by its name.

        In the units of the reading. The norm is over the items or values of one candidate; a score moves by at most
        this at every candidate.
        """

    @property
    def key(self) -> tuple[object, ...]:
        """All that the sum depends on, beside the users and what they draw: where it is equal, so are the sums."""
        return (self.name, self.plan, self.given)

    @property
    def share(self) -> Share | None:
        """What each participant adds to each value; None when the server draws the noise."""
        return None

    @abstractmethod
    def of(self, users: Histograms, *, source: Source) -> Summed:
        """The device: the sum over these users. One device is a batch of one."""

    @abstractmethod
    def check(self, summed: Summed, users: int) -> None:
        """The server: raise OutOfBounds unless this number of honest users can have sent it.

        A participant with u users sends a sum of u users' vectors, so any norm of it is at most u times the bound on
        one user's. That whole numbers from 0 to u times the largest arrived is settled by the codec.
        """

    @abstractmethod
    def read(self, total: Total) -> Any:
        """The server: the sum as selectors and release rules work on it."""

    @abstractmethod
    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """Some values of one device's answer with the names of their places, for people. NOT private."""

    def with_labels(self, labels: Labels) -> Self:
        """The measurement for a participant whose items have these names."""
        return self

    @property
    def masked_length(self) -> int:
        """The number of values that travel under masks, of which none may depend on what keys there are."""
        return self.shape.length

    @property
    def masked_width(self) -> int:
        """32 or 64 bits a value, so that no sum over the plan's users wraps; see `masking/vectors` for the proof.

        Noise stays inside `shape.noise` but with probability 2^-40; a sum that wraps around is wrong and as private
        as ever.
        """
        shape = self.shape
        return width_for(max(shape.largest, 1), self.plan.users, noise_tail=shape.noise)

    def to_masked(self, summed: Summed, labels: Labels | None) -> Integers:
        """A participant's answer as the vector that is masked; `labels` name its item numbers."""
        return summed.values

    def from_masked(self, vector: Integers, *, users: int, shares: int) -> Total:
        """The sum of such vectors."""
        return Total(users=users, values=vector, shares=shares, width=self.masked_width)


def keyed_part(summed: Summed | Total) -> Keyed:
    """The sums by key, which every answer to such a request has."""
    if summed.keyed is None:
        raise UnexpectedMessage(state="a sum without keys", message=summed)
    return summed.keyed
