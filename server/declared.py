"""What a method charges, as it is written into a ledger: its own declaration, checked, or "not private" for none.

The coordinator asks here and nowhere else, so that a method from outside is held to the same rules as a built-in one:
what a round charges is known from the plan, before any answer is asked for, and is at most what the plan's fields say
that the round may cost. Devices count those fields, so no charge slips past a device's own limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.grid import Threshold
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import Kind, Plugin, plugin_named
from fedhist.protocol.privacy.composition import basic_total
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge, Cost
from fedhist.server.releases.contract import ReleaseRule
from fedhist.server.selection.contract import Selector, not_private

_SLACK = 1 + 1e-9
"""Relative tolerance for sums of a round's charges that meet its budget exactly."""


def selector_charges(selector: Selector, plan: Plan) -> tuple[Charge, ...]:
    """What the choice of the threshold costs. One that reads data and declares nothing is not private."""
    declared = selector.charges(plan)
    plugin = plugin_named(Kind.SELECTOR, selector.name)
    if plugin is None or plugin.thing is not selector:
        return declared
    if selector.reads and not (declared and selector.private):
        return (not_private(plan, "select", selector.name),)
    budget = Cost(plan.epsilon_select, plan.delta_select)
    return _checked(plugin, declared, plan, budget)


def rule_charges(rule: ReleaseRule, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
    """What the release costs, at this threshold or, for None, at most. One that declares nothing is not private."""
    declared = rule.charges(plan, threshold)
    plugin = plugin_named(Kind.RELEASE, rule.name)
    if plugin is None or plugin.thing is not rule:
        return declared
    if not declared:
        return (not_private(plan, "release", rule.name),)
    budget = Cost(plan.epsilon, plan.delta)
    return _checked(plugin, declared, plan, budget)


def most(plan: Plan, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """The charges of a rule from outside where the run chooses the mechanism: the same cost, whichever it is.

    They are at most the plan's for either one, and nothing else is known of the rule's noise.
    """
    if not all(charge.private for charge in charges):
        return charges
    return (replace(charges[0], epsilon=plan.epsilon, delta=plan.delta, loss=ApproximateLoss()),)


def is_private(selector: Selector, plan: Plan) -> bool:
    """Whether the choice has a guarantee."""
    return selector.private and all(charge.private for charge in selector_charges(selector, plan))


def _checked(plugin: Plugin, charges: Sequence[Charge], plan: Plan, budget: Cost) -> tuple[Charge, ...]:
    """The charges of a method from outside, if they are of its round and no more than the round may cost."""
    kind, name = plugin.kind, plugin.name
    round_ = "select" if kind is Kind.SELECTOR else "release"
    if not (isinstance(charges, tuple | list) and all(isinstance(charge, Charge) for charge in charges)):
        raise InvalidPlan(
            f"the {kind.words} {name} declares its charges as a {type(charges).__name__} of something else",
            allowed="a tuple of charges",
            code="charges-not-a-tuple",
        )
    for charge in charges:
        if (charge.round, charge.neighbours) != (round_, plan.neighbours):
            raise InvalidPlan(
                f"the {kind.words} {name} declares a charge that is not of its round or for other neighbours",
                allowed=f"charges of the round {round_} for {plan.neighbours.value} neighbours",
                advice="exponential_charge and gaussian_charge of fedhist.server.selection.contract make such charges"
                if kind is Kind.SELECTOR
                else "",
                code="wrong-charge",
            )
    total = basic_total(charges) if all(charge.private for charge in charges) else budget
    if total.epsilon > budget.epsilon * _SLACK or total.delta > budget.delta * _SLACK:
        fields = "epsilon-select and delta-select" if round_ == "select" else "epsilon and delta"
        raise InvalidPlan(
            f"the {kind.words} {name} charges epsilon {total.epsilon:.6g} and delta {total.delta:.3g}",
            allowed=f"at most the plan's {fields}, which devices count: {budget.epsilon:.6g} and {budget.delta:.3g}",
            advice="raise them, or let it charge less",
            code="charge-too-large",
        )
    return tuple(charges)
