"""What may go wrong with nodes in a simulation, and with which share of them. Loads nothing, for help texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fedhist.protocol.errors import InvalidInput


class FaultKind(StrEnum):
    """How a node is faulty. Drop-outs are others in each round; any other faulty node is the same in all rounds."""

    DROPOUT = "dropout"
    SLOW = "slow"
    FAIL = "fail"
    MALFORMED = "malformed"
    OUT_OF_BOUNDS = "out-of-bounds"
    INFLATE = "inflate"


FAULTY = {
    FaultKind.SLOW: "answers after the round's time limit",
    FaultKind.FAIL: "answers with an error",
    FaultKind.MALFORMED: "sends bytes that can't be read",
    FaultKind.OUT_OF_BOUNDS: "sends values that no honest users can have",
    FaultKind.INFLATE: "lies within the bounds: all its users have the last item alone, as often as may be",
}
"""The kinds of `--faulty`, and what such a node does."""

UNDER_MASKS = (FaultKind.OUT_OF_BOUNDS, FaultKind.INFLATE)
"""The kinds that a masked round can have: for a masked round every other is a drop-out."""

UNHEARD = (FaultKind.DROPOUT, FaultKind.SLOW, FaultKind.FAIL)
"""The kinds that send nothing in time."""

_ALLOWED = f"KIND=SHARE with {', '.join(FAULTY)} for KIND, and a number from 0 to below 1 for SHARE"


@dataclass(frozen=True)
class Faults:
    """Shares of the nodes.

    Args:
        dropout: gives no answer in a round; others in each round.
        faulty: is faulty, in all rounds, by kind.
    """

    dropout: float = 0.0
    faulty: Mapping[FaultKind, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything goes wrong."""
        return self.dropout > 0 or any(share > 0 for share in self.faulty.values())

    @property
    def shares(self) -> dict[FaultKind, float]:
        """The shares that are above zero, by kind."""
        known = {FaultKind.DROPOUT: self.dropout, **self.faulty}
        return {kind: known[kind] for kind in FaultKind if known.get(kind, 0) > 0}

    @property
    def lies(self) -> bool:
        """Whether nodes make something up."""
        return any(kind in self.shares for kind in UNDER_MASKS)


NO_FAULTS = Faults()


def faults_of(dropout: float = 0.0, faulty: Mapping[str, float] | None = None) -> Faults:
    """The faults with these shares. Refuses unknown kinds, and shares that leave no honest node."""
    if not _is_share(dropout):
        raise InvalidInput(
            f"--dropout is {dropout}", allowed="a number from 0 to below 1", code="bad-dropout"
        )
    if not isinstance(faulty, Mapping | None):
        raise InvalidInput(f"--faulty is {faulty!r}", allowed=_ALLOWED, code="bad-faulty")
    kinds: dict[FaultKind, float] = {}
    for name, share in (faulty or {}).items():
        kind = next((one for one in FAULTY if one.value == name), None)
        if kind is None:
            advice = "--dropout is an option of its own" if name in ("drop", FaultKind.DROPOUT.value) else ""
            raise InvalidInput(
                f"--faulty has no kind {name!r}", allowed=_ALLOWED, advice=advice, code="unknown-fault"
            )
        if not _is_share(share):
            raise InvalidInput(f"--faulty {name}={share}", allowed=_ALLOWED, code="bad-share")
        kinds[kind] = float(share)
    faults = Faults(float(dropout), kinds)
    together = sum(faults.shares.values())
    if together >= 1:
        raise InvalidInput(
            f"--dropout and --faulty are {together:g} of the nodes together",
            allowed="less than 1 in all",
            code="no-honest-node",
        )
    return faults


def read_faulty(texts: Iterable[str]) -> dict[str, float]:
    """The values of `--faulty`, each KIND=SHARE."""
    shares: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            share = float(number)
        except ValueError:
            share = None
        if not equals or share is None or name in shares:
            again = " a second time" if equals and name in shares else ""
            raise InvalidInput(f"--faulty is {text!r}{again}", allowed=_ALLOWED, code="bad-faulty")
        shares[name] = share
    faults_of(faulty=shares)
    return shares


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
