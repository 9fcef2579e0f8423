"""The contract of whatever a plugin is: one call for a file, or for something that was registered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from os import PathLike
from typing import Any

from fedhist.extending import load_plugin
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import Kind, Plugin, as_built_in, registered
from fedhist.testing.contract import PLANS, variant
from fedhist.testing.measurements import check_measurement
from fedhist.testing.releases import check_release_rule
from fedhist.testing.selectors import check_selector


def check_plugin(
    plugin: object, *, plans: Collection[Plan] | None = None, skip: Collection[str] = ()
) -> tuple[str, ...]:
    """Run the contract of each thing of a plugin, and return their names and versions.

    The first check that fails raises an AssertionError with its name and a sentence.

    Args:
        plugin: the path of a file with plugins, a registered thing, or its name.
        plans: small plans, some of which it fits; None for those of this package.
        skip: names of checks that it can't pass.
    """
    found = _plugins(plugin)
    if plans is not None:
        with as_built_in():
            # As plans of built-in things, which is how the contracts treat what they check.
            plans = tuple(replace(plan) for plan in plans)
    for one in found:
        _check(one, plans, skip)
    return tuple(str(one) for one in found)


def _plugins(plugin: object) -> list[Plugin]:
    found = [one for one in registered() if plugin in (one.name, one.given, one.thing)]
    if not found and isinstance(plugin, str | PathLike):
        loaded = load_plugin(plugin)
        found = [one for one in registered() if str(one) in loaded]
    if not found:
        raise InvalidInput(
            "this is no plugin",
            allowed="a file, or something that was registered with fedhist.register",
            code="not-a-plugin",
        )
    return found


def _check(plugin: Plugin, plans: Collection[Plan] | None, skip: Collection[str]) -> None:
    thing: Any = plugin.thing
    match plugin.kind:
        case Kind.SELECTOR:
            check_selector(thing, plans=plans or tuple(PLANS.values()), skip=skip)
        case Kind.MEASUREMENT:
            check_measurement(thing, plans=plans or _all_plans(thing.releases), skip=skip)
        case Kind.RELEASE:
            # Noise from devices is for the project's own rules.
            own = plans or [plan for plan in _all_plans((thing.name,)) if plan.noise_from == "server"]
            check_release_rule(thing, plans=own, skip=skip)


def _all_plans(releases: Collection[str | None]) -> tuple[Plan, ...]:
    """The small plans, and the same with these releases."""
    with as_built_in():
        named = (variant(plan, release=name) for name in releases for plan in PLANS.values())
        return (*PLANS.values(), *(plan for plan in named if plan is not None))
