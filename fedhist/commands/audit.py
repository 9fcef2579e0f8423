"""`fedhist audit`: runs the installed mechanisms against worst-case neighbours and compares with their claims."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from fedhist.commands.cli import EXIT_AUDIT_FAILED
from fedhist.commands.options import Command, options

if TYPE_CHECKING:
    from fedhist.simulations.audit.checks import Audit, Finding


@click.command(
    "audit",
    cls=Command,
    examples=("# the checks of one mechanism", "fedhist audit --only laplace --seed 1"),
)
@options(
    *("deep", "only", "seed", "plugin", "as_json"),
    seed={"help": "Make it repeatable; without it the mechanisms draw from the operating system."},
)
def audit(deep: bool, only: str | None, seed: int | None, as_json: bool) -> int:
    """Run the installed mechanisms end to end against worst-case neighbours.

    Each check computes a lower confidence bound of epsilon, at the delta that the ledger claims, and fails if the bound
    is above the claimed epsilon; one asks a device as a lying server would. If all mechanisms keep their promises, an
    audit fails once in a thousand times. It can show that a promise is broken, never that it is kept. With --plugin,
    the methods of those files alone are audited.
    """
    from fedhist.auditing import audited
    from fedhist.protocol.plugins import registered
    from fedhist.simulations.audit.checks import DEEP, QUICK

    plugins = tuple(str(plugin) for plugin in registered() if plugin.source.whole)
    effort = DEEP if deep else QUICK
    result = audited(plugins or None, only=only, effort=effort, seed=seed, on_finding=_print_progress)
    if as_json:
        document = {
            "passed": result.passed,
            "false_alarm_level": result.level,
            "seed": seed,
            "seconds": round(result.seconds, 1),
            "checks": [finding.to_json() for finding in result.findings],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _print(result)
    return 0 if result.passed else EXIT_AUDIT_FAILED


def _print_progress(finding: Finding) -> None:
    verdict = "passed" if finding.passed else "FAILED"
    click.echo(f"{verdict}  {finding.name} ({finding.seconds:.1f} s)", err=True)


def _print(result: Audit) -> None:
    from fedhist.display.tables import print_rows

    rows = [
        {
            "check": finding.name,
            "claimed": "" if finding.claimed is None else f"{finding.claimed:.3f}",
            "delta": "" if finding.delta is None else f"{finding.delta:.2g}",
            "observed": "" if finding.observed is None else f"{finding.observed:.3f}",
            "verdict": "passed" if finding.passed else "FAILED",
            "detail": finding.detail,
        }
        for finding in result.findings
    ]
    headings = {"check": "check", "claimed": "claimed", "delta": "delta", "observed": "at least"}
    print_rows(
        "audit", rows, headings | {"verdict": "", "detail": "seen"}, text=("check", "verdict", "detail")
    )
    failed = sum(not finding.passed for finding in result.findings)
    verdict = "all passed" if failed == 0 else f"{failed} FAILED"
    click.echo(
        f"{len(result.findings)} checks, {verdict}, {result.seconds:.0f} s. Mechanisms that keep their promises fail "
        f"an audit with probability {result.level:g} at most."
    )
