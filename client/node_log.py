"""Why a node did not answer: the reason that the server gets, and the line in the node's own log.

The reason is one of a closed list. The line is for the node's operator: it names files, and for our own errors says
what is wrong with them and in which line, and never what somebody wrote there. Of other errors it has the class alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedhist.protocol.errors import (
    InvalidFile,
    InvalidInput,
    InvalidPopulation,
    MissingFile,
    Refused,
    UnusableMemory,
)
from fedhist.protocol.wire.envelope import Envelope, Refusal, Status

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


def line_of(
    error: Exception, envelope: Envelope | None, *, asked: str, flower_run: int, config: Mapping[str, object]
) -> str:
    """The line for the node's log.

    Args:
        error: why there is no answer.
        envelope: the request; None if it could not be read.
        asked: the round, or the stage of a masked one.
        flower_run: the run's number in Flower.
        config: the node's configuration.
    """
    status, reason = outcome_of(error)
    run = f"Flower run {flower_run}"
    if envelope is not None:
        run += f", run {envelope.run}, round {envelope.request.round.value}"
    stage = "" if envelope is not None and asked == envelope.request.round.value else f", {asked}"
    words = [f"{run}{stage}: {status.value}, {reason.value}: {reason.in_words}"]
    if isinstance(error, Refused):
        words += [error.local] if error.local else []
        words += [str(error.__cause__)] if isinstance(error.__cause__, InvalidInput) else []
    else:
        words.append(
            str(error) if isinstance(error, InvalidInput) else f"the error is {type(error).__name__}"
        )
    file = config.get(_DECIDING_FILES.get(reason, ""))
    if file is not None:
        words.append(f"see {file}")
    return "; ".join(word.rstrip(".") for word in words) + "."
