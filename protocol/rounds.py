"""What travels in the two rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Integers
from fedhist.protocol.plan import Plan
from fedhist.protocol.statistics import tail_length


class Round(StrEnum):
    """The two rounds."""

    SELECT = "select"
    RELEASE = "release"


@dataclass(frozen=True)
class SelectRequest:
    """Server to device: send the tail statistic of this plan."""

    plan: Plan

    @property
    def round(self) -> Round:
        """Round 1."""
        return Round.SELECT

    @property
    def length(self) -> int:
        """How many values the answer has."""
        return tail_length(len(self.plan.candidate_steps))


@dataclass(frozen=True)
class ReleaseRequest:
    """Server to device: clip to this threshold and send the histogram."""

    plan: Plan
    threshold: Threshold

    @property
    def round(self) -> Round:
        """Round 2."""
        return Round.RELEASE

    @property
    def length(self) -> int:
        """How many values the answer has."""
        return self.plan.items


Request = SelectRequest | ReleaseRequest


@dataclass(frozen=True, eq=False)
class Contribution:
    """Device to server: the sum of the statistic over the participant's users."""

    round: Round
    plan_digest: bytes
    users: int
    values: Integers = field(repr=False)


@dataclass(frozen=True, eq=False)
class Total:
    """Transport to coordinator: the sum of the contributions of the cohort."""

    round: Round
    users: int
    values: Integers = field(repr=False)
