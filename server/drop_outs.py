"""Nodes that were asked and add nothing to the sum: how many, which, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fedhist.protocol.errors import ids_in_words
from fedhist.protocol.wire.envelope import Refusal


class Fault(StrEnum):
    """Why a node's reply, or its silence, adds nothing to the sum."""

    NO_ANSWER = "no-answer"
    ERROR = "error"
    REFUSED = "refused"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    STRANGER = "stranger"
    OTHER_RUN = "other-run"
    OTHER_PLAN = "other-plan"
    MALFORMED = "malformed"
    OUT_OF_BOUNDS = "out-of-bounds"


Dropped = Mapping[Fault, Mapping[str, tuple[int, ...]]]
"""The ids of nodes that were asked and added nothing, by fault and by the reason that they gave; "" is none."""


@dataclass
class Tally:
    """What was dropped so far: replies and nodes by fault, and the nodes by the reason that they gave."""

    faults: Counter[Fault] = field(default_factory=Counter)
    nodes: dict[Fault, dict[str, list[int]]] = field(default_factory=dict)

    def drop(self, fault: Fault, node: int | None, reason: Refusal | None) -> None:
        """Count a node that adds nothing; None for a message of no node that was asked."""
        self.faults[fault] += 1
        if node is not None:
            self.nodes.setdefault(fault, {}).setdefault(reason or "", []).append(node)

    @property
    def dropped(self) -> Dropped:
        """The nodes so far, in the order of their ids: that in which they came would tell how long each took."""
        return {
            fault: {reason: tuple(sorted(nodes)) for reason, nodes in by_reason.items()}
            for fault, by_reason in self.nodes.items()
        }


@dataclass
class Declined:
    """The nodes that gave a lasting reason why they do not answer, or sent nonsense. They are not asked again."""

    reasons: dict[int, Refusal | Fault] = field(default_factory=dict)

    def note(self, node: int, refusal: Refusal | None) -> Refusal | None:
        """Remember the node if its reason lasts. The same reason."""
        if refusal is not None and refusal.lasts:
            self.reasons[node] = refusal
        return refusal

    def among(self, connected: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Those of the connected nodes that declined, by reason."""
        found: dict[str, tuple[int, ...]] = {}
        for node in connected:
            if (reason := self.reasons.get(node)) is not None:
                found[reason.value] = (*found.get(reason.value, ()), node)
        return found


def faults_in_words(faults: Mapping[Fault, int], dropped: Dropped) -> str:
    """Faults with their counts, and the reasons that nodes gave: `1 no-answer, 2 refused (over-budget)`."""
    return ", ".join(
        f"{count} {fault.value}{_reasons_in_words(dropped.get(fault, {}))}"
        for fault, count in sorted(faults.items())
    )


def _reasons_in_words(by_reason: Mapping[str, Sequence[int]]) -> str:
    given = {reason: len(nodes) for reason, nodes in sorted(by_reason.items()) if reason}
    if not given:
        return ""
    counted = [f"{count} {reason}" for reason, count in given.items()]
    return f" ({', '.join(given if len(given) == 1 else counted)})"


def dropped_words(dropped: Dropped) -> list[str]:
    """Which nodes add nothing, and why: `over-budget 101, 102`."""
    return [
        f"{reason or fault.value} {ids_in_words(nodes)}"
        for fault, by_reason in sorted(dropped.items())
        for reason, nodes in sorted(by_reason.items())
    ]


def dropped_document(dropped: Dropped) -> dict[str, object]:
    """Which nodes add nothing, by the reason that they gave or else by the fault: a part of a document, or nothing."""
    found: dict[str, list[int]] = {}
    for fault, given in sorted(dropped.items()):
        for reason, nodes in sorted(given.items()):
            found.setdefault(reason or fault.value, []).extend(nodes)
    return {"dropped": found} if found else {}
