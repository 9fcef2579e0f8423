"""What all stages of the server's session share: each sender is heard once, and ignored messages are counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from fedhist.protocol.errors import BadKey, DecodeError, UnexpectedMessage
from fedhist.protocol.masking.cohort import Cohort
from fedhist.protocol.masking.incidents import Incidents, LeftOut, Rejection
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.terms import MaskingTerms

Messages = Iterator[tuple[int, bytes]]


class Rejected(Exception):
    """Leaves a stage's `_take`; `add` counts it."""

    def __init__(self, reason: Rejection) -> None:
        self.reason = reason
        super().__init__(reason.value)


class Stage(ABC):
    """Takes each expected sender's message once, and counts what it ignores."""

    name: ClassVar[MaskingStage]

    def __init__(self, terms: MaskingTerms, expected: set[int] | None, incidents: Incidents) -> None:
        self.terms = terms
        self.incidents = incidents
        self.expected = expected
        self._heard: set[int] = set()
        self._ignored: dict[int, Rejection] = {}
        self._closed = False

    @property
    def rejected(self) -> Counter[Rejection]:
        """The number of messages ignored so far, by reason."""
        return self.incidents.rejected

    def add(self, sender: int, message: bytes) -> bool:
        """Take a device's message. False if it is ignored, which is counted in `rejected`."""
        if self._closed:
            raise UnexpectedMessage(state=self, message=message)
        try:
            if self.expected is not None and sender not in self.expected:
                raise Rejected(Rejection.STRANGER)
            if sender in self._heard:  # audited: heard, masked
                raise Rejected(Rejection.DUPLICATE)
            self._take(sender, message)
        except Rejected as refused:
            reason = refused.reason
        except DecodeError:
            reason = Rejection.MALFORMED
        except BadKey:
            reason = Rejection.BAD_KEY
        else:
            self._heard.add(sender)
            return True
        self.rejected[reason] += 1
        self._ignored[sender] = reason
        return False

    @abstractmethod
    def _take(self, sender: int, message: bytes) -> None:
        """Keep the message of an expected sender, or raise."""

    @abstractmethod
    def close(self) -> tuple[Stage, Messages] | MaskedSum:
        """The next stage and the messages to send for it, or the sum. Once."""

    def _close(self) -> None:
        if self._closed:
            raise UnexpectedMessage(state=self, message=None)
        self._closed = True

    def _need(self, alive: int, needed: int) -> None:
        if alive < needed:
            raise self.incidents.too_few(self.name, alive=alive, needed=needed)


class CohortStage(Stage):
    """A stage after the graph was drawn; `expected` are the devices that may still send something."""

    expected: set[int]

    def __init__(self, cohort: Cohort, expected: set[int], incidents: Incidents) -> None:
        super().__init__(cohort.terms, expected, incidents)
        self.cohort = cohort

    def _name_ignored(self) -> None:
        """Name the expected devices that sent something, none of which could be taken."""
        for sender, reason in self._ignored.items():
            if sender in self.expected and sender not in self._heard:
                self.incidents.leave_out(reason, [sender])

    def _with_enough_neighbours(self, devices: set[int]) -> set[int]:
        """These devices, less those with fewer than t neighbours among them, whose secrets could not be rebuilt."""
        cohort, kept = self.cohort, self.cohort.flags(devices)
        while True:
            enough = kept & (kept[cohort.adjacency].sum(axis=1) >= cohort.parameters.threshold)
            if (enough == kept).all():
                break
            kept = enough
        found = {device for device, keep in zip(cohort.ids, kept.tolist(), strict=True) if keep}
        self.incidents.leave_out(LeftOut.FEW_NEIGHBOURS, devices - found)
        self._need(len(found), max(self.terms.minimum_survivors, cohort.parameters.threshold + 1))
        return found
