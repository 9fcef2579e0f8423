"""What a round is given by the rounds before it, and how that travels in a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Integers
from fedhist.protocol.sketch import SALT_BYTES

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

GivenField = str | int | bytes | list[int]


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
