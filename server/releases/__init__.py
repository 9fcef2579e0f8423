"""The release rules. A new one is a file here and a line in this registry."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from fedhist.protocol.errors import InvalidInput, InvalidPlan
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.measurements.base import Round
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import RELEASE_NAMES
from fedhist.protocol.plugins import Kind, Registry
from fedhist.server.releases.contract import Release, ReleaseRule

__all__ = ["RULES", "Release", "ReleaseRule", "rule_for"]

_PLACES = (
    "central_noise:CentralNoise",
    "device_noise:DeviceNoise",
    "debiased_items:DebiasedItems",
    "keys_above_bar:KeysAboveBar",
)


def _load(place: str) -> ReleaseRule:
    module, name = place.split(":")
    rule: ReleaseRule = getattr(import_module(f"{__name__}.{module}"), name)()
    return rule


def _check(rule: ReleaseRule) -> None:
    """Refuse a rule from outside that lacks something."""
    missing = [field for field in ("name", "measures") if not getattr(rule, field, None)]
    if missing:
        raise InvalidInput(
            f"the release rule {type(rule).__qualname__} has no {', '.join(missing)}",
            allowed="a rule with a name and the name of the measurement that it releases",
        )


RULES: Registry[ReleaseRule] = Registry(
    Kind.RELEASE,
    {rule.name: rule for rule in map(_load, _PLACES)},
    base=ReleaseRule,
    instances=True,
    check=_check,
    also=RELEASE_NAMES,
)


def rule_for(plan: Plan) -> ReleaseRule:
    """The rule for what the plan measures and for the `release` that it names, if it names one.

    A rule from outside is for plans that name it, and for no others.
    """
    if plan.release is not None and plan.release not in RELEASE_NAMES:
        RULES.find(plan.release)
    for rule in _rules_for(plan):
        if rule.fits(plan):
            _check_round(rule)
            return rule
    RULES.with_installed()
    names = dict.fromkeys(name for kind in MEASUREMENTS.values() for name in kind.releases if name)
    names |= dict.fromkeys(name for name in RULES if name not in RULES.built_in)
    others = [name for name in names if _releases(plan, name)]
    raise InvalidPlan(
        f"the release {plan.release!r} over {plan.domain} domains",
        allowed=", ".join(others) or "no --release for such a plan",
        advice="choose another --release or leave it out",
        code="unknown-release",
    )


def _check_round(rule: ReleaseRule) -> None:
    """Refuse a rule that releases what devices count as the cost of another round."""
    measured = MEASUREMENTS.get(rule.measures)
    if measured is None or measured.round is not Round.RELEASE:
        raise InvalidPlan(
            f"the release rule {rule.name} releases {rule.measures!r}, which is no measurement of the release",
            allowed=", ".join(name for name, kind in MEASUREMENTS.items() if kind.round is Round.RELEASE),
            code="wrong-measurement",
        )


def _releases(plan: Plan, name: str) -> bool:
    """Whether a plan that differs in its release alone can be run."""
    try:
        other = replace(plan, release=name)
    except InvalidPlan:
        return False
    return any(rule.fits(other) for rule in _rules_for(other))


def _rules_for(plan: Plan) -> list[ReleaseRule]:
    """The rules to try: the project's own, or the one from outside that the plan names."""
    own = [rule for name, rule in RULES.items() if name in RULES.built_in]
    named = None if plan.release is None else RULES.get(plan.release)
    return own if named is None or plan.release in RULES.built_in else [named]
