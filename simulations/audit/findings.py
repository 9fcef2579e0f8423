"""A check of the audit: how much it draws, where its randomness comes from, and its finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource


@dataclass(frozen=True)
class Effort:
    """How much a check draws.

    Args:
        canaries: coins of a check that needs one run.
        runs: end-to-end runs in each of two worlds, for cheap mechanisms.
        slow_runs: the same for mechanisms that take milliseconds per run.
        gaussian_runs: the same for the Gaussian mechanism, where only many runs show a small error.
        masked_canaries: coins of a check whose one run is masked.
    """

    canaries: int
    runs: int
    slow_runs: int
    gaussian_runs: int
    masked_canaries: int


QUICK = Effort(canaries=100_000, runs=4_000, slow_runs=700, gaussian_runs=24_000, masked_canaries=60_000)
DEEP = Effort(
    canaries=1_000_000, runs=120_000, slow_runs=20_000, gaussian_runs=700_000, masked_canaries=600_000
)


@dataclass(frozen=True)
class Setting:
    """The effort of a check, its share of the false alarm level, and its sources of randomness.

    Args:
        effort: how much to draw.
        alpha: the probability with which the check may fail for a mechanism that keeps its promise.
        seed: None lets the mechanisms draw from the operating system, as in a deployment.
        name: of the check, so that no two share draws.
    """

    effort: Effort
    alpha: float
    seed: int | None
    name: str

    def mechanism(self) -> Source:
        """The randomness of what is audited."""
        return SystemSource() if self.seed is None else SeededSource(self.seed).fork(self.name, "mechanism")

    def auditor(self) -> SeededSource:
        """The auditor's own coins: repeatable within a check, because some are needed twice."""
        seed = SystemSource().words(1).item() if self.seed is None else self.seed
        return SeededSource(seed).fork(self.name, "auditor")


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Args:
        name: of the check.
        passed: True if the observations are consistent with the claim.
        claimed: epsilon according to the ledger; None for an exact check.
        delta: according to the ledger.
        observed: the lower confidence bound of epsilon at that delta.
        detail: what was counted, in a few words.
        seconds: the duration.
    """

    name: str
    passed: bool
    claimed: float | None
    delta: float | None
    observed: float | None
    detail: str
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A named check. It does not know which bug may be there."""

    name: str
    run: Callable[[Setting], Finding]


def compared(setting: Setting, claim: Cost, bound: float, detail: str) -> Finding:
    """A finding that passes if the lower bound of epsilon does not exceed the claim."""
    return Finding(setting.name, bound <= claim.epsilon, claim.epsilon, claim.delta, bound, detail)


def exact(setting: Setting, *, passed: bool, detail: str) -> Finding:
    """The finding of a check that does not depend on chance."""
    return Finding(setting.name, passed, None, None, None, detail)


def none_wrong(setting: Setting, wrong: int, cases: int, what: str) -> Finding:
    """The finding of an exact check that passes if none of its cases is wrong; `what` says what was counted."""
    return exact(setting, passed=wrong == 0, detail=f"{wrong:,} of {cases:,} {what}")
