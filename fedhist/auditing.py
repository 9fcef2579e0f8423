"""`fedhist.audit`: what `fedhist audit` does, as a data frame."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from fedhist.extending import load_plugin
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plugins import Kind, look_for, registered
from fedhist.simulations.audit import devices, one_run, open_domain, removed_rows
from fedhist.simulations.audit.checks import DEEP, QUICK, Audit, Check, Effort, Finding, run_audit
from fedhist.simulations.audit.methods import checks_of, is_from_outside, own_checks

if TYPE_CHECKING:
    import polars

__all__ = ["audit"]


def audit(
    method: str | None = None,
    *,
    plugin: str | PathLike[str] | None = None,
    only: str | None = None,
    deep: bool = False,
    seed: int | None = None,
) -> polars.DataFrame:
    """Run mechanisms end to end against worst-case neighbours, and compare with what they charge.

    A row for each check: `observed` is a lower bound of epsilon at the delta that the ledger claims, and `passed` is
    False where it is above `claimed`. It can show that a promise is broken, never that it is kept.

    Args:
        method: the name of a selector or release rule that is registered or installed; its checks alone.
        plugin: a file with methods of your own, as for `load_plugin`; their checks alone.
        only: the checks whose names contain this text.
        deep: draw about thirty times as much.
        seed: makes it repeatable; None lets the mechanisms draw from the operating system.
    """
    import polars

    loaded = () if plugin is None else load_plugin(plugin)
    found = audited(_names(loaded, method), only=only, effort=DEEP if deep else QUICK, seed=seed)
    return polars.DataFrame([finding.to_json() for finding in found.findings], infer_schema_length=None)


def all_checks() -> tuple[Check, ...]:
    """The checks of the project's own mechanisms, the longest first."""
    return (
        *own_checks(), *devices.CHECKS, *open_domain.CHECKS, *one_run.CHECKS, *removed_rows.CHECKS,
    )  # fmt: skip


def audited(
    identities: tuple[str, ...] | None,
    *,
    only: str | None,
    effort: Effort,
    seed: int | None,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> Audit:
    """The findings, with what they are worth together.

    Args:
        identities: the plugins to audit alone; None for the project's own mechanisms and all plugins.
        only: the checks whose names contain this text.
        effort: how much each check draws.
        seed: makes it repeatable.
        on_finding: called with each finding as it comes.
    """
    checks = checks_of(
        one
        for one in registered()
        if (is_from_outside(one) if identities is None else str(one) in identities)
    )
    if identities is None:
        checks = (*all_checks(), *checks)
    elif not checks:
        raise InvalidInput(
            f"nothing of {', '.join(identities) or 'the plugin'} can be audited",
            allowed="selectors and release rules that go with a plan of two candidates",
            advice="fedhist.testing.check_plugin has more checks",
        )
    chosen = [check for check in checks if only is None or only in check.name]
    if not chosen:
        raise InvalidInput(
            f"no check has {only!r} in its name", allowed="; ".join(check.name for check in checks)
        )
    return run_audit(chosen, effort, seed=seed, on_finding=on_finding)


def _names(loaded: tuple[str, ...], method: str | None) -> tuple[str, ...] | None:
    if method is None:
        return loaded or None
    for kind in (Kind.SELECTOR, Kind.RELEASE):
        look_for(kind, method)
    found = tuple(str(one) for one in registered() if one.name == method)
    if not found:
        names = dict.fromkeys(one.name for one in registered())
        raise InvalidInput(
            f"there is no plugin {method!r}",
            allowed=", ".join(names) or "methods that were registered",
            advice="call fedhist.register or fedhist.load_plugin first",
            code="unknown-plugin",
        )
    return found
