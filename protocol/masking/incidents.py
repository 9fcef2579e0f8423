"""What went wrong in one masked sum, for the server's report: ids and reasons, no values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from fedhist.protocol.errors import CorruptShares, TooFewSurvivors


class Rejection(StrEnum):
    """Why a message was ignored."""

    DUPLICATE = "duplicate"
    STRANGER = "stranger"
    MALFORMED = "malformed"
    BAD_KEY = "bad-key"
    BAD_SIGNATURE = "bad-signature"
    WRONG_RECEIVERS = "wrong-receivers"
    WRONG_COMPLAINTS = "wrong-complaints"
    WRONG_SHARES = "wrong-shares"
    FULL = "full"


class LeftOut(StrEnum):
    """Why the server leaves out a device that answered.

    `bad-boxes`: others say that its boxes do not open. `complaints`: it says so of others, and of more than accuse it.
    `few-neighbours`: too few of its neighbours are left to rebuild its secrets.
    """

    BAD_BOXES = "bad-boxes"
    COMPLAINTS = "complaints"
    FEW_NEIGHBOURS = "few-neighbours"


@dataclass
class Incidents:
    """What went wrong so far.

    Args:
        rejected: the number of ignored messages, by reason.
        left_out: the ids of devices that answered and were left out, by reason: a `LeftOut`, or the `Rejection` of
            the device's last message.
        complaints: the senders of boxes that did not open, by the device that complained.
    """

    rejected: Counter[Rejection] = field(default_factory=Counter)
    left_out: dict[str, tuple[int, ...]] = field(default_factory=dict)
    complaints: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def leave_out(self, reason: LeftOut | Rejection, devices: Iterable[int]) -> None:
        """Note that these devices are left out."""
        if found := sorted({*self.left_out.get(reason.value, ()), *devices}):
            self.left_out[reason.value] = tuple(found)

    def too_few(self, stage: str, *, alive: int, needed: int, of: str = "devices") -> TooFewSurvivors:
        """The error of a sum that lost too many devices."""
        error = TooFewSurvivors(stage, alive=alive, needed=needed, of=of, left_out=self.left_out)
        error.complaints = dict(self.complaints)
        return error

    def corrupt(self, owners: Iterable[int]) -> CorruptShares:
        """The error of a sum for which these devices' secrets can't be rebuilt."""
        error = CorruptShares(owners=tuple(owners), left_out=self.left_out)
        error.complaints = dict(self.complaints)
        return error
