"""What each round of a plan may cost a device, counted from the plan alone.

A device trusts the server to draw the noise that the plan promises, and a plan promises more than two numbers. It names
the mechanism of its release, whose multiplier follows from epsilon and delta, and for round 1 a selector, whose kind of
noise is known if it is one of the project's own:

| round 1 | zCDP, beside epsilon-select and delta-select |
|---|---|
| noise of devices | that of its Gaussian noise, or of its Laplace noise |
| an exponential mechanism: `weighted-quantile`, `quantile`, `exponential-v` | bounded range |
| a selector from outside | what this side's own copy of it declares |
| any other selector | approximate: nothing is known but epsilon-select and delta-select |

The selector `oracle` reads exact sums, and a method from outside may say that it is not private: `promises` has the
answer, for devices that refuse such plans.

A rule from outside costs what this side's own copy declares. A release above a bar is approximate. Charges of a server
that runs the plan are never above this, in any of the four numbers (a test compares them for every kind of plan). The
slack of noise in shares of devices, below 10^-40, is the only thing left out: it is lost in the rounding of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedhist.protocol.measurements.noisy_tail import select_multiplier
from fedhist.protocol.plan.fields import SELECTOR_NAMES
from fedhist.protocol.plan.plan import Plan
from fedhist.protocol.plan.terms import most_of_table, ways_to_release
from fedhist.protocol.plugins import Kind, plugin_named
from fedhist.protocol.privacy.ledger import (
    Charge,
    Cost,
    Spending,
    bounded_range_rho,
    gaussian_rho,
    pure_rho,
    way_rho,
)
from fedhist.protocol.privacy.neighbours import Norm

_EXPONENTIAL = frozenset({"weighted-quantile", "quantile", "exponential-v"})

MAX_PLAN_DELTA = 1e-5
"""The most delta of one run: what our server asks of real users, and what a node answers unless it is set otherwise.

With probability delta a mechanism may show all that a user has, whatever its epsilon. So a device must not leave it to
the server how often that may happen: a plan of epsilon 1e-6 and delta 0.49 costs next to no epsilon.
"""


def choice_cost(plan: Plan) -> Spending:
    """The most that the choice of the threshold may cost."""
    cost = Cost(plan.epsilon_select, plan.delta_select)
    after = plan.releasing
    if after.noise_by_devices:
        known = pure_rho(cost.epsilon) if after.norm is Norm.L1 else gaussian_rho(select_multiplier(after))
    elif plan.selector in _EXPONENTIAL:
        known = bounded_range_rho(cost.epsilon)
    elif (plugin := plugin_named(Kind.SELECTOR, plan.selector)) is not None and plugin.thing.reads:
        return _declared(cost, plugin.thing.charges(after))
    else:
        return Spending.of_cost(cost)
    return Spending(cost.epsilon, cost.delta, known, 0.0)


def _declared(cost: Cost, charges: Sequence[Charge]) -> Spending:
    """The cost of a method from outside, by the kinds of noise that it declares; of one that promises nothing, any."""
    if not charges or not all(charge.private for charge in charges):
        return Spending.of_cost(cost)
    declared = Spending.of(charges)
    return Spending(cost.epsilon, cost.delta, declared.rho, declared.failure)


def release_cost(plan: Plan) -> Spending:
    """The most that a release may cost, with the discovery before it if the plan has one; without its table."""
    cost = Cost(plan.epsilon, plan.delta)
    if plan.discovers:
        rho, failure = max(map(way_rho, ways_to_release(plan))), plan.discovery.most_of_bars
        return Spending(cost.epsilon, cost.delta, rho, failure)
    rule = plugin_named(Kind.RELEASE, plan.release)
    if plan.is_open or (rule is not None and plan.chooses_mechanism):
        return Spending.of_cost(cost)
    if rule is not None:
        return _declared(cost, rule.thing.charges(plan, None))
    gaussian = 0.0 if plan.mechanism == "laplace" else gaussian_rho(plan.multiplier)
    laplace = 0.0 if plan.mechanism == "gaussian" else pure_rho(cost.epsilon)
    return Spending(cost.epsilon, cost.delta, max(gaussian, laplace), 0.0)


def table_cost(plan: Plan) -> Spending:
    """The most that a table under masks may cost; nothing for a plan that has none."""
    return Spending.of_cost(most_of_table(plan))


def run_cost(plan: Plan) -> Spending:
    """The most that all rounds of a run may cost."""
    parts = [choice_cost(plan), release_cost(plan), table_cost(plan)]  # audited: rounds added
    return Spending.total(parts)


def promises(plan: Plan) -> bool:
    """Whether the plan's methods say that they are private. A selector that is not known here promises nothing.

    The same question as the server's own (`server/declared.py`), which devices can't leave to it.
    """
    after, declared = plan.releasing, []
    if plan.selector not in SELECTOR_NAMES:
        plugin = plugin_named(Kind.SELECTOR, plan.selector)
        if plugin is None or not (plugin.thing.private or not plugin.thing.reads):
            return False
        declared += [plugin.thing.charges(after)] if plugin.thing.reads else []
    if plan.release is not None and (rule := plugin_named(Kind.RELEASE, plan.release)) is not None:
        declared.append(rule.thing.charges(after.one_way, None))
    private = all(charges and all(charge.private for charge in charges) for charges in declared)
    return private and plan.selector != "oracle"  # audited: promises
