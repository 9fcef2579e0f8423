"""Checks: how much each draws, where its randomness comes from, what it finds, and the function that runs them."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.server.disk import leave_signals

LEVEL = 1e-3
"""The probability with which a whole audit may fail although every mechanism keeps its promise."""


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
    """A named check. It does not know which bug may be there.

    One that reads tables is for this process: the threads of polars do not survive a fork, and a worker would wait for
    them without end.
    """

    name: str
    run: Callable[[Setting], Finding]
    reads_tables: bool = False


def compared(setting: Setting, claim: Cost, bound: float, detail: str) -> Finding:
    """A finding that passes if the lower bound of epsilon does not exceed the claim."""
    return Finding(setting.name, bound <= claim.epsilon, claim.epsilon, claim.delta, bound, detail)


def exact(setting: Setting, *, passed: bool, detail: str) -> Finding:
    """The finding of a check that does not depend on chance."""
    return Finding(setting.name, passed, None, None, None, detail)


@dataclass(frozen=True)
class Audit:
    """The findings of one audit.

    Args:
        level: the probability with which the audit may fail although every mechanism keeps its promise.
        findings: in the order of the checks.
        seconds: the duration of the audit.
    """

    level: float
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return all(finding.passed for finding in self.findings)


def run_audit(
    checks: Sequence[Check],
    effort: Effort,
    *,
    level: float = LEVEL,
    seed: int | None = None,
    cores: int | None = None,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> Audit:
    """Run the checks, each at its share of the level (Bonferroni), on all cores.

    Args:
        checks: the checks to run, which share the level.
        effort: how much each check draws.
        level: of the whole audit.
        seed: makes the audit repeatable; None lets the mechanisms draw from the operating system.
        cores: the number of processes; None stands for one per core.
        on_finding: called with each finding as it comes.
    """
    begin = perf_counter()
    work = [(check, Setting(effort, level / len(checks), seed, check.name)) for check in checks]
    found: dict[str, Finding] = {}
    for finding in _findings(work, cores or os.cpu_count() or 1):
        on_finding(finding)
        found[finding.name] = finding
    ordered = tuple(found[check.name] for check in checks)
    return Audit(level=level, findings=ordered, seconds=perf_counter() - begin)


_waiting: list[tuple[Check, Setting]] = []
"""The work of forked workers: a check holds functions, which can't be sent to a process."""


def _findings(work: list[tuple[Check, Setting]], cores: int) -> Iterator[Finding]:
    _waiting[:] = work
    if min(cores, len(work)) == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(_run, range(len(work)))
        return
    fork = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        # Python 3.12 warns about forks beside other threads; checks that use any are not for workers.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = fork.Pool(min(cores, len(work)), initializer=leave_signals)
    with pool:
        forked = pool.imap_unordered(
            _run, [number for number, (check, _) in enumerate(work) if not check.reads_tables]
        )
        yield from map(_run, [number for number, (check, _) in enumerate(work) if check.reads_tables])
        yield from forked


def _run(number: int) -> Finding:
    """Run a check. One that raises an error has failed: the audited code did not do its work."""
    check, setting = _waiting[number]
    begin = perf_counter()
    try:
        finding = check.run(setting)
    except Exception as error:
        finding = exact(setting, passed=False, detail=f"ended with {type(error).__name__}: {error}")
    return replace(finding, seconds=perf_counter() - begin)
