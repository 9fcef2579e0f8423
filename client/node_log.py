"""Why a node did not answer: the reason that the server gets, and the line in the node's own log.

The reason is one of a closed list. The line is for the node's operator: it names files, and for our own errors says
what is wrong with them and in which line, and never what somebody wrote there. Of other errors it has the class alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedhist.display.visible_text import block, line, visible
from fedhist.protocol.errors import (
    InvalidFile,
    InvalidInput,
    InvalidPopulation,
    MissingFile,
    Refused,
    UnusableMemory,
)
from fedhist.protocol.wire.envelope import Refusal, Status

# The first that fits.
_REASONS: tuple[tuple[type[Exception], Refusal], ...] = (
    (UnusableMemory, Refusal.BAD_MEMORY),
    (MissingFile, Refusal.MISSING_FILE),
    (InvalidFile, Refusal.BAD_FILE),
    (InvalidPopulation, Refusal.BAD_FILE),
    (InvalidInput, Refusal.BAD_CONFIGURATION),
)
# The key of the node's configuration that names the file which decided.
_DECIDING_FILES = {
    Refusal.OTHER_ITEMS: "items-path",
    Refusal.NO_USERS: "data-path",
    Refusal.OVER_BUDGET: "memory-path",
    Refusal.SECOND_REQUEST: "memory-path",
    Refusal.OTHER_PLAN: "memory-path",
    Refusal.ANSWERED_WINDOW: "memory-path",
}


def outcome_of(error: Exception) -> tuple[Status, Refusal]:
    """What the server is sent in place of an answer."""
    if isinstance(error, Refused):
        return Status.REFUSED, next((known for known in Refusal if known == error.reason), Refusal.FAILED)
    return Status.FAILED, next(
        (reason for kind, reason in _REASONS if isinstance(error, kind)), Refusal.FAILED
    )


def line_of(error: Exception, *, about: Sequence[str], config: Mapping[str, object]) -> str:
    """The line for the node's log.

    Whatever the server wrote, such as the name of a run, neither begins a line of its own nor talks to a terminal.

    Args:
        error: why there is no answer.
        about: what was asked: the run, the round and the stage, in words.
        config: the node's configuration.
    """
    status, reason = outcome_of(error)
    words = [f"{', '.join(map(visible, about))}: {status.value}, {reason.value}: {reason.in_words}"]
    if isinstance(error, Refused):
        words += [line(error.local)] if error.local else []
        words += [line(error.__cause__)] if isinstance(error.__cause__, InvalidInput) else []
    else:
        words.append(
            block(str(error)) if isinstance(error, InvalidInput) else f"the error is {type(error).__name__}"
        )
    file = config.get(_DECIDING_FILES.get(reason, ""))
    if file is not None:
        words.append(f"see {file}")
    return "; ".join(word.rstrip(".") for word in words) + "."
