"""The release rules. A new one is a file here and a line in this registry."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.plan import Plan
from fedhist.server.releases.contract import Release, ReleaseRule

__all__ = ["RULES", "Release", "ReleaseRule", "rule_for"]

_PLACES = (
    "central_noise:CentralNoise",
    "device_noise:DeviceNoise",
    "debiased_items:DebiasedItems",
    "keys_above_bar:KeysAboveBar",
    "keys_in_table:KeysInTable",
)


def _load(place: str) -> ReleaseRule:
    module, name = place.split(":")
    rule: ReleaseRule = getattr(import_module(f"{__name__}.{module}"), name)()
    return rule


RULES = tuple(map(_load, _PLACES))


def rule_for(plan: Plan) -> ReleaseRule:
    """The rule for what the plan measures and for the `release` that it names, if it names one."""
    for rule in RULES:
        if rule.fits(plan):
            return rule
    names = dict.fromkeys(name for kind in MEASUREMENTS.values() for name in kind.releases if name)
    others = [name for name in names if _releases(plan, name)]
    raise InvalidPlan(
        f"the release {plan.release!r} over {plan.domain} domains",
        allowed=", ".join(others) or "no --release for such a plan",
        advice="choose another --release or leave it out",
    )


def _releases(plan: Plan, name: str) -> bool:
    """Whether a plan that differs in its release alone can be run."""
    try:
        other = replace(plan, release=name)
    except InvalidPlan:
        return False
    return any(rule.fits(other) for rule in RULES)
