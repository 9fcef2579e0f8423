"""Every error fedhist raises on purpose.

    FedhistError
    ├── InvalidInput            the caller's mistake: what was wrong, what is allowed, what to do
    │   ├── InvalidPlan         a setting, or two that do not go together
    │   │   └── OtherPlugin     a plan's plugin that is missing here, or of another version
    │   ├── InvalidPopulation   data that is not a histogram of counts
    │   └── InvalidFile         a file that is not what it says
    │       ├── MissingFile     there is no such file
    │       └── UnusableMemory  a device's memory that can't be read or written
    ├── NotWritten              a result that the disk did not take; what was charged stays charged
    ├── BudgetExceeded          a ledger's limit, or a device's, would be passed
    ├── HeldByAnother           another process is at work on the same thing; nothing was done
    ├── RoundFailed             a round ended without a result; nothing was released
    │   ├── MaskingFailed       a masked sum stays masked; names the participants that were left out
    │   │   ├── TooFewSurvivors masked inputs can't be unmasked safely, or at all
    │   │   └── CorruptShares   a device sent wrong shares, or too many others lied about theirs
    │   └── TableTooSmall       an open domain's table had too little room, by a noisy comparison
    └── ProtocolError
        ├── UnexpectedMessage   our own side took an illegal step
        └── PeerError           the other side sent something that we refuse
            ├── Refused         a device declines a request, for one of a few public reasons
            ├── BadKey          a public key that no honest device has
            └── DecodeError     bytes that are not a message
                └── OutOfBounds values that no device that follows the protocol can send

Errors carry parameters and positions, never a user's data, a mask or a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

MAX_NAMED = 10
"""The most participants that a sentence names; attributes and reports have all of them."""


class FedhistError(Exception):
    """The root of the tree. `code` names what happened in words that stay when a sentence changes."""

    code = "fedhist"

    def __init__(self, *args: object, code: str = "") -> None:
        self.code = code or type(self).code
        super().__init__(*args)


class InvalidInput(FedhistError, ValueError):
    """The caller's mistake, in one sentence: what was wrong, what is allowed, what to do."""

    code = "invalid-input"

    def __init__(self, problem: str, *, allowed: str, advice: str = "", code: str = "") -> None:
        self.problem = problem
        self.allowed = allowed
        self.advice = advice
        text = f"{problem}; allowed: {allowed}" + (f"; {advice}" if advice else "")
        super().__init__(text if text.endswith("?") else f"{text}.", code=code)

    def __reduce__(self) -> tuple[Any, ...]:
        """The parts, so that a worker process can send it home."""
        parts = {"allowed": self.allowed, "advice": self.advice, "code": self.code}
        return partial(type(self), self.problem, **parts), ()


class InvalidPlan(InvalidInput):
    """A setting out of its range, or two settings that do not go together."""

    code = "invalid-plan"


class OtherPlugin(InvalidPlan):
    """A plugin that a plan names, and that is missing here or of another version."""

    code = "other-plugin"


class InvalidPopulation(InvalidInput):
    """Data that is not a table of users by items with whole, non-negative counts."""

    code = "invalid-population"


class InvalidFile(InvalidInput):
    """A file that is missing, unreadable or not what its name says."""

    code = "invalid-file"


class MissingFile(InvalidFile):
    """A file that is not there."""

    code = "missing-file"


class UnusableMemory(InvalidFile):
    """A device's memory that can't be read or written."""

    code = "unusable-memory"


class NotWritten(FedhistError):
    """A result that was computed and could not be written. Nothing of it was released; its charges stay."""

    code = "not-written"


class BudgetExceeded(FedhistError):
    """Spending this would pass a limit that was set earlier. Nothing was spent."""

    code = "budget-exceeded"


class HeldByAnother(FedhistError):
    """Another process is at work on the same thing. Nothing was done."""

    code = "held-by-another"


class RoundFailed(FedhistError):
    """A round ended without a result. Nothing was released; the ledger says what was spent."""

    code = "round-failed"

    def explain(self, words: str) -> None:
        """Say more: who answered, and why others did not."""
        self.args = (f"{self}; {words}", *self.args[1:])


class MaskingFailed(RoundFailed):
    """A masked sum that stays masked, and so does every input.

    `left_out` has the ids of participants by the reason why they are not in the sum, `complaints` the senders of boxes
    that did not open by the participant that complained.
    """

    code = "masking-failed"

    def __init__(self, problem: str, *, left_out: Mapping[str, tuple[int, ...]]) -> None:
        self.left_out = dict(left_out)
        self.complaints: Mapping[int, tuple[int, ...]] = {}
        named = names_by_reason(left_out)
        super().__init__(problem + (f"; left out: {named}" if named else ""))


class TooFewSurvivors(MaskingFailed):
    """A masked sum lost too many devices."""

    code = "too-few-survivors"

    def __init__(
        self, stage: str, *, alive: int, needed: int, of: str, left_out: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.stage = stage
        self.alive = alive
        self.needed = needed
        self.of = of
        super().__init__(
            f"the masked sum stopped after {stage}: {alive} {of} are left where {needed} are needed; "
            "nothing was unmasked or released. A larger --dropout-share, up to 0.3, lets a round go on with fewer",
            left_out=left_out,
        )


class CorruptShares(MaskingFailed):
    """Secrets that the received shares do not give back; `owners` made these shares, and others held them."""

    code = "corrupt-shares"

    def __init__(self, *, owners: Sequence[int], left_out: Mapping[str, tuple[int, ...]]) -> None:
        self.owners = tuple(owners)
        super().__init__(
            f"{len(self.owners)} mask secrets can't be rebuilt: the received shares are corrupt; "
            "nothing was unmasked or released",
            left_out={**left_out, "corrupt-shares": self.owners},
        )


def names_by_reason(left_out: Mapping[str, Sequence[int]]) -> str:
    """Participants by the reason why they are left out, for a sentence."""
    return "; ".join(f"{reason} {ids_in_words(ids)}" for reason, ids in sorted(left_out.items()))


def ids_in_words(ids: Sequence[int]) -> str:
    """Participants for a sentence: at most ten of them."""
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return f"{', '.join(map(str, ids[:MAX_NAMED]))}{more}"


class TableTooSmall(RoundFailed):
    """A table was too small, or did not decode, or the noise on the comparison was large: these look the same."""

    code = "table-too-small"

    def __init__(self, *, capacity: int) -> None:
        self.capacity = capacity
        super().__init__(
            "the table of the discovery had too little room for the items of all participants, or the noisy comparison "
            f"of their number with --max-items {capacity} said so; nothing was released, and the round was "
            "charged. Raise --max-items"
        )


class ProtocolError(FedhistError):
    """A step that the protocol does not have."""

    code = "protocol"


class UnexpectedMessage(ProtocolError):
    """An illegal step of our own side: a programming error, never a peer's fault.

    Of a state and a message only their types are shown, or a state's own words.
    """

    code = "unexpected-message"

    def __init__(self, *, state: object, message: object) -> None:
        where = state if isinstance(state, str) else type(state).__name__
        super().__init__(f"a {type(message).__name__} can't be taken in state {where}")


class PeerError(ProtocolError):
    """The other side sent something that we refuse."""

    code = "peer"


class Refused(PeerError):
    """A device declines a request. The reason is one of a fixed list and reveals nothing of its data.

    `local` says more, in the device's own log and nowhere else.
    """

    def __init__(self, reason: str, *, local: str = "") -> None:
        self.reason = reason
        self.local = local
        super().__init__(f"the device refused: {reason}", code=reason)


class BadKey(PeerError):
    """A public key of a wrong length, or one whose key agreements all give the same secret."""

    code = "bad-key"


class DecodeError(PeerError):
    """Bytes that are not a message of this protocol."""

    code = "not-a-message"


class OutOfBounds(DecodeError):
    """Values larger than the sum that the declared users can reach under the plan."""

    code = "out-of-bounds"
