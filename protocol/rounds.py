"""What travels in the two rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fedhist.protocol.circle import WIDEST
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Integers
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.item_tail import item_tail_length
from fedhist.protocol.measurements.noisy_tail import noisy_tail_length, tail_measurement
from fedhist.protocol.measurements.open_statistics import bucketed_length, plain_header_length
from fedhist.protocol.measurements.tail import tail_length
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.device_noise import release_share
from fedhist.protocol.privacy.shares import Share
from fedhist.protocol.sketch.table_hash import SALT_BYTES

Labels = Sequence[str | int]


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
        """How many values the fixed part of the answer has."""
        candidates = len(self.plan.candidate_steps)
        if self.plan.noise_by_devices:
            return noisy_tail_length(candidates)
        if self.plan.per_item:
            return item_tail_length(self.plan.items or 0, candidates)
        if not self.plan.is_open:
            return tail_length(candidates)
        if self.plan.statistic == "bucketed":
            return bucketed_length(candidates, self.plan.buckets)
        return plain_header_length(candidates)

    @property
    def keyed_columns(self) -> int:
        """How many values each key of the answer has; 0 when there are no keys."""
        return 2 if self.plan.is_open and self.plan.statistic == "plain" else 0

    @property
    def noise_share(self) -> Share | None:
        """What a participant adds to each value of its answer; None when the server draws the noise."""
        return tail_measurement(self.plan).share if self.plan.noise_by_devices else None


@dataclass(frozen=True, eq=False)
class ReleaseRequest:
    """Server to device: clip to this threshold and send the histogram.

    Where each item is clipped by itself, `item_thresholds` holds the bounds in steps and `threshold` the largest. Where
    the answer is a table of keys, `table_salt` says where they go: new for each run, drawn after round 1, so that
    nobody could choose their data in view of it.
    """

    plan: Plan
    threshold: Threshold
    item_thresholds: Integers | None = None
    table_salt: bytes = b""

    def __post_init__(self) -> None:
        due = SALT_BYTES if self.plan.has_table else 0
        if len(self.table_salt) != due:
            raise InvalidInput(
                f"a table's salt of {len(self.table_salt)} bytes",
                allowed=f"{due} bytes for this plan",
                advice="draw a new one for each run with a table, and give none to others",
            )

    @property
    def round(self) -> Round:
        """Round 2."""
        return Round.RELEASE

    @property
    def length(self) -> int:
        """How many values the fixed part of the answer has."""
        return self.plan.items or 0

    @property
    def keyed_columns(self) -> int:
        """How many values each key of the answer has; 0 when there are no keys."""
        return 1 if self.plan.is_open else 0

    @property
    def noise_share(self) -> Share | None:
        """What a participant adds to each value of its answer; None when the server draws the noise."""
        return release_share(self.plan, self.threshold.steps) if self.plan.noise_by_devices else None


Request = SelectRequest | ReleaseRequest


@dataclass(frozen=True, eq=False)
class Contribution:
    """Device to server: the sum of the statistic over the participant's users.

    Over an open domain `keyed` holds sums by item number, numbers of the participant's own list of labels.
    """

    round: Round
    plan_digest: bytes
    users: int
    values: Integers = field(repr=False)
    keyed: Keyed | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Total:
    """Transport to coordinator: the sum of the contributions of the cohort.

    Over an open domain `keyed` holds the sums by item number, and `labels` what the items are called; None means by
    their numbers. Under masking `shares` is how many participants' vectors, and so shares of noise, are in the sum,
    and values are known modulo 2^width only: see `protocol/circle.py` for what may be done with them. `unread` says
    that the sum is a table that does not decode: a transport hands it on like any other, so that nothing that it
    reports depends on this.
    """

    round: Round
    users: int
    values: Integers = field(repr=False)
    keyed: Keyed | None = field(default=None, repr=False)
    labels: Labels | None = field(default=None, repr=False)
    shares: int = 0
    width: int = WIDEST
    unread: bool = False
