"""All checks, and the function that runs them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from time import perf_counter

from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.simulations.audit import (
    answers,
    claims,
    discovery,
    masked_layer,
    others,
    removed_rows,
    selector_worlds,
    tables,
)
from fedhist.simulations.audit.device_shares import guessed_shares, masked_one_run, shares_in_two_worlds
from fedhist.simulations.audit.findings import Check, Effort, Finding, Setting, exact
from fedhist.simulations.audit.fresh_keys import USERS, fresh_keys
from fedhist.simulations.audit.lattice import lattice
from fedhist.simulations.audit.one_run import Canaries, one_run
from fedhist.simulations.audit.two_worlds import Worlds, guessed_worlds, two_worlds

ZERO, REPLACE = Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE
LEVEL = 1e-3
"""The probability with which a whole audit may fail although every mechanism keeps its promise."""

_CANARIES = {
    "one run, laplace": Canaries("laplace", ZERO, 1, 2.0, 0.0, 0.5),
    "one run, laplace, replaced": Canaries("laplace", REPLACE, 1, 2.0, 0.0, 0.25),
    "one run, laplace, spread": Canaries("laplace", ZERO, 4, 2.0, 0.0, 0.05),
    "one run, gaussian": Canaries("gaussian", ZERO, 1, 4.0, 1e-10, 0.005),
    "one run, gaussian, replaced": Canaries("gaussian", REPLACE, 1, 4.0, 1e-10, 0.005),
    "one run, gaussian, spread": Canaries("gaussian", ZERO, 16, 4.0, 1e-10, 0.005),
}
_MASKED_CANARIES = {
    "shares, one masked run, laplace": Canaries("laplace", ZERO, 1, 2.0, 0.0, 0.5),
    "shares, one masked run, gaussian": Canaries("gaussian", ZERO, 1, 4.0, 1e-10, 0.005),
}
_SELECTORS: dict[str, Callable[[], Worlds]] = {
    "weighted-quantile, laplace": partial(selector_worlds.weighted_quantile, "laplace", 1),
    "weighted-quantile, gaussian": partial(selector_worlds.weighted_quantile, "gaussian", 9),
    "quantile": selector_worlds.quantile,
    "output-perturbation": selector_worlds.output_perturbation,
    "exponential-v": partial(selector_worlds.open_selector, "exponential-v", 13, 133),
    "exponential-sharp": partial(selector_worlds.open_selector, "exponential-sharp", 13, 28),
    "items, laplace": selector_worlds.fixed_items,
    "fixed, laplace": partial(selector_worlds.fixed, "laplace", epsilon=2.0),
}
_SLOW_SELECTORS: dict[str, Callable[[], Worlds]] = {
    "dpsgd": partial(selector_worlds.gaussian_steps, "dpsgd"),
    "m-quantile": partial(selector_worlds.gaussian_steps, "m-quantile"),
    "quantile, items, laplace": partial(selector_worlds.item_quantile, "laplace"),
    "quantile, items, gaussian": partial(selector_worlds.item_quantile, "gaussian"),
}
# With an epsilon near 0, delta is a distance in total variation, which guesses measure best.
_GAUSSIAN = {"epsilon": 0.01, "delta": 0.49}


def all_checks() -> tuple[Check, ...]:
    """Every check of the command, the longest first."""
    gaussian = partial(selector_worlds.fixed, "gaussian", **_GAUSSIAN)
    replaced = partial(gaussian, neighbours="replace-one")
    checks = [
        Check("two worlds, gaussian", partial(guessed_worlds, gaussian, attrgetter("gaussian_runs"))),
        Check("two worlds, gaussian, replaced", partial(guessed_worlds, replaced, attrgetter("runs"))),
    ]
    checks += [
        Check(f"two worlds, {name}", partial(two_worlds, make, attrgetter("slow_runs")))
        for name, make in _SLOW_SELECTORS.items()
    ]
    checks += [
        Check("shares, two worlds, laplace", shares_in_two_worlds),
        Check("shares, two worlds, gaussian, round 1", partial(guessed_shares, 0.45, 0.02)),
        Check("shares, two worlds, gaussian, round 2", partial(guessed_shares, 0.02, 0.45)),
    ]
    checks += [
        Check(f"two worlds, {name}", partial(two_worlds, make, attrgetter("runs")))
        for name, make in _SELECTORS.items()
    ]
    checks += [
        Check(f"fresh keys, {release}, {user}", partial(fresh_keys, release, user, ZERO))
        for release in ("truncated-laplace", "laplace-threshold", "laplace-threshold-paper")
        for user in USERS
        if user != "many keys" or release != "laplace-threshold-paper"
    ]
    checks += [
        Check(f"fresh keys, {release}, replaced", partial(fresh_keys, release, "one key", REPLACE))
        for release in ("truncated-laplace", "laplace-threshold")
    ]
    checks += [Check(name, partial(one_run, kind)) for name, kind in _CANARIES.items()]
    checks += [Check(name, partial(masked_one_run, kind)) for name, kind in _MASKED_CANARIES.items()]
    checks += [Check("lattice", lattice)]
    checks += [
        *claims.CHECKS,
        *discovery.CHECKS,
        *masked_layer.CHECKS,
        *answers.CHECKS,
        *others.CHECKS,
        *tables.CHECKS,
        *removed_rows.CHECKS,
    ]
    return tuple(checks)


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
    effort: Effort,
    *,
    level: float = LEVEL,
    seed: int | None = None,
    checks: Sequence[Check] | None = None,
    cores: int | None = None,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> Audit:
    """Run the checks, each at its share of the level (Bonferroni), on all cores.

    Args:
        effort: how much each check draws.
        level: of the whole audit.
        seed: makes the audit repeatable; None lets the mechanisms draw from the operating system.
        checks: the checks to run, which share the level; None stands for all.
        cores: the number of processes; None stands for one per core.
        on_finding: called with each finding as it comes.
    """
    begin = perf_counter()
    chosen = all_checks() if checks is None else tuple(checks)
    settings = [Setting(effort, level / len(chosen), seed, check.name) for check in chosen]
    found: dict[str, Finding] = {}
    for finding in _findings(chosen, settings, cores or os.cpu_count() or 1):
        on_finding(finding)
        found[finding.name] = finding
    ordered = tuple(found[check.name] for check in chosen)
    return Audit(level=level, findings=ordered, seconds=perf_counter() - begin)


_waiting: list[tuple[Check, Setting]] = []
"""The work of forked workers: a check holds functions, which can't be sent to a process."""


def _findings(checks: Sequence[Check], settings: Sequence[Setting], cores: int) -> Iterator[Finding]:
    work = list(zip(checks, settings, strict=True))
    if min(cores, len(work)) == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (_run(check, setting) for check, setting in work)
        return
    _waiting[:] = work
    fork = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        # Python 3.12 warns about forks beside other threads; a worker uses nothing that they may have locked.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = fork.Pool(min(cores, len(work)), initializer=_leave_signals)
    with pool:
        yield from pool.imap_unordered(_run_number, range(len(work)))


def _leave_signals() -> None:
    """A worker ignores the keyboard and ends silently when its parent ends it; the parent informs the user."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_number(number: int) -> Finding:
    return _run(*_waiting[number])


def _run(check: Check, setting: Setting) -> Finding:
    """Run a check. One that raises an error has failed: the audited code did not do its work."""
    begin = perf_counter()
    try:
        finding = check.run(setting)
    except Exception as error:
        finding = exact(setting, passed=False, detail=f"ended with {type(error).__name__}: {error}")
    return replace(finding, seconds=perf_counter() - begin)
