"""What a check is, how much it draws, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource


@dataclass(frozen=True)
class Effort:
    """How much a check draws.

    Args:
        canaries: coins of a check that needs one run.
        runs: end-to-end runs in each of two worlds, for cheap mechanisms.
        slow_runs: for those that take milliseconds each.
        gaussian_runs: for the Gaussian mechanism, where only many runs see a small error.
        masked_canaries: coins of a check whose run is masked.
    """

    canaries: int
    runs: int
    slow_runs: int
    gaussian_runs: int
    masked_canaries: int

    def scaled(self, factor: float) -> Effort:
        """So many times as much of everything."""
        return Effort(**{name: max(int(count * factor), 40) for name, count in asdict(self).items()})


QUICK = Effort(canaries=100_000, runs=4_000, slow_runs=700, gaussian_runs=24_000, masked_canaries=60_000)
DEEP = Effort(
    canaries=1_000_000, runs=120_000, slow_runs=20_000, gaussian_runs=700_000, masked_canaries=600_000
)


@dataclass(frozen=True)
class Setting:
    """What a check gets: its effort, its share of the false alarm level, and where its draws come from.

    Args:
        effort: how much to draw.
        alpha: the probability with which the check may fail for a mechanism that keeps its promise.
        seed: None for the operating system's generator in the mechanisms, as a deployment has it.
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
        """The auditor's own coins: repeatable inside a check, since some are needed twice."""
        seed = SystemSource().words(1).item() if self.seed is None else self.seed
        return SeededSource(seed).fork(self.name, "auditor")


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Args:
        name: of the check.
        passed: whether what was seen can be squared with what is claimed.
        claimed: epsilon as the ledger has it; None for a check that is exact.
        delta: as the ledger has it.
        observed: the lower confidence bound of epsilon at that delta.
        detail: what was counted, in a few words.
        seconds: how long it took.
    """

    name: str
    passed: bool
    claimed: float | None
    delta: float | None
    observed: float | None
    detail: str
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A named check. It knows nothing of what may be wrong."""

    name: str
    run: Callable[[Setting], Finding]


def compared(name: str, *, claimed: float, delta: float, observed: float, detail: str) -> Finding:
    """A finding that passes while the bound does not exceed the claim."""
    return Finding(
        name=name, passed=observed <= claimed, claimed=claimed, delta=delta, observed=observed, detail=detail
    )


def exact(name: str, *, passed: bool, detail: str) -> Finding:
    """A finding of a check that draws no conclusions from chance."""
    return Finding(name=name, passed=passed, claimed=None, delta=None, observed=None, detail=detail)
