"""The release rules. A new one is a file here and a line in this registry."""

from __future__ import annotations

from importlib import import_module

from fedhist.protocol.errors import InvalidPlan
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
    """The rule that the plan's `release` names, or the one for plans like this that name none."""
    fitting = [rule for rule in RULES if rule.fits(plan)]
    for rule in fitting:
        if plan.release in rule.names:
            return rule
    names = [name for rule in fitting for name in rule.names if name is not None]
    raise InvalidPlan(
        f"the release {plan.release!r} over {plan.domain} domains",
        allowed=", ".join(names) or "none: the mechanism says how the release is noised",
        advice="choose another --release or leave it out",
    )
