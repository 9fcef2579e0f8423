"""The release rules. A new one is a file here and a line in RULES."""

from __future__ import annotations

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.server.releases.central_noise import CentralNoise
from fedhist.server.releases.contract import Release, ReleaseRule
from fedhist.server.releases.debiased_items import DebiasedItems
from fedhist.server.releases.device_noise import DeviceNoise
from fedhist.server.releases.keys_above_bar import KeysAboveBar
from fedhist.server.releases.keys_in_table import KeysInTable

__all__ = ["RULES", "Release", "ReleaseRule", "rule_for"]

RULES: tuple[ReleaseRule, ...] = (
    CentralNoise(),
    DeviceNoise(),
    DebiasedItems(),
    KeysAboveBar(),
    KeysInTable(),
)


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
