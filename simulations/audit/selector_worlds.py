"""For every selector the two worlds that one user makes most different, at budgets large enough to show it.

Round 1 chooses between few candidates, mostly two. The user makes the larger one look better by as much as one user
can; the other users are chosen such that without the user it is rarely selected. Nearly all of the budget is round 1's,
so that an error there can't hide behind the budget of round 2, which has audits of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS
from fedhist.server.releases.contract import Release
from fedhist.server.selection.crossing import target_weight
from fedhist.server.selection.quantile import target_rank
from fedhist.server.selection.weighted_quantile import BASE_MEASURE_POWER
from fedhist.simulations.audit.two_worlds import Worlds, closed_evidence, open_evidence
from fedhist.simulations.audit.worlds import User, crafted, evidence_of
from fedhist.simulations.paper.baselines import regularisation

LOW, HIGH = 4.0, 8.0
HUGE = 60
"""A count above every bound."""
BETWEEN = 5
"""A count between the two candidates."""
_SINGLES = 100
_ODDS = -3.0
"""The logarithm of the odds for the larger candidate without the user."""
_FAIRER_ODDS = -2.0
"""The same where there is no base measure, so that an error in the scores moves all of the odds."""
_BUDGETS: dict[str, Any] = {
    "epsilon": 0.1,
    "epsilon_select": 2.0,
    "delta_select": 0.02,
    "min_threshold": LOW,
    "max_threshold": HIGH,
}
_DELTAS = {"laplace": None, "gaussian": 0.02}


def closed_worlds(plan: Plan, user: User, others: Sequence[User]) -> Worlds:
    """Worlds in which the user is the last one and has cells of their own."""
    size = plan.closed.items
    return Worlds(
        plan=plan,
        without=crafted([*others, []], size),
        with_user=crafted([*others, user], size),
        evidence=closed_evidence([item for item, _ in user]),
    )


def closed_plan(mechanism: str, selector: str, others: int, **settings: Any) -> Plan:
    """A plan over two candidates in which nearly all of the budget is round 1's."""
    base = _BUDGETS | {"candidates": 2, "delta": _DELTAS[mechanism]}
    return Plan(users=others + 1, mechanism=mechanism, selector=selector, **(base | settings))


def weighted_quantile(mechanism: str, sparsity: int) -> Worlds:
    """A user of many equal items, whose weight is cut to sqrt(s); the others have one item and weight 1.

    The weight above the larger candidate is 0 without the user, which is below T, and above the smaller one it is
    beyond T: the user raises one score and lowers the other by sqrt(s).
    """
    own = 4 * sparsity
    plan = closed_plan(mechanism, "weighted-quantile", 1, items=own + 1, sparsity=sparsity)
    rate = plan.epsilon_select / (2 * math.ldexp(plan.tail_cap, -WEIGHT_BITS))
    # Base weights favour the smaller candidate.
    favoured = -BASE_MEASURE_POWER * math.log(HIGH / LOW)
    # T grows with the number of users, and more slowly than it.
    others = 0
    while others < 2 * target_weight(plan) + (_ODDS + favoured) / rate:
        others += 1
        plan = closed_plan(mechanism, "weighted-quantile", others, items=own + 1, sparsity=sparsity)
    user = [(item, HUGE) for item in range(own)]
    return closed_worlds(plan, user, [[(own, BETWEEN)]] * others)


def quantile() -> Worlds:
    """The user adds one to the number of users above both candidates, which is nearer to the rank for the larger."""
    probe = closed_plan("laplace", "quantile", 1, items=2)
    others = round(2 * target_rank(probe) + 2 * _FAIRER_ODDS / probe.epsilon_select)
    plan = closed_plan("laplace", "quantile", others, items=2)
    return closed_worlds(plan, [(0, HUGE)], [[(1, BETWEEN)]] * others)


def item_quantile(mechanism: str) -> Worlds:
    """The same where every item has its own bound: a user with much of every item moves all bounds."""
    items = 4
    probe = closed_plan(mechanism, "quantile", 1, items=items, debias="poisson")
    others = round(2 * target_rank(probe) + 2 * items * _ODDS / probe.epsilon_select)
    plan = closed_plan(mechanism, "quantile", others, items=items, debias="poisson")
    alike: list[User] = [[(item, BETWEEN) for item in range(items)]] * others
    worlds = closed_worlds(plan, [(item, HUGE) for item in range(items)], alike)
    return replace(worlds, evidence=partial(item_evidence, others))


def item_evidence(others: int, release: Release) -> float:
    """The evidence for a user who adds every item's bound, where each of the others holds BETWEEN of every item.

    The chosen bounds are evidence, too, all in the same direction: each that is the larger candidate counts with its
    share of the budget of round 1.
    """
    items = release.item_release
    assert items is not None  # noqa: S101 - of a plan that clips items one by one
    values = items.clipped - others * np.minimum(BETWEEN, items.thresholds)
    shifts = items.thresholds
    ratios = evidence_of(values, shifts, items.clipped_errors, release.round_plan.norm)
    chosen = release.plan.epsilon_select / len(shifts) * np.count_nonzero(shifts > LOW)
    return float(ratios.sum() + chosen)


def output_perturbation() -> Worlds:
    """The minimiser lies between two candidates, where the user moves it as far as one user can."""
    others = 30
    plan = closed_plan("gaussian", "output-perturbation", others, items=2, sparsity=1)
    middle = (LOW + HIGH) / 2
    above = min(round(plan.noise_price + regularisation(plan) * middle), others)
    return closed_worlds(plan, [(0, HUGE)], [[(1, BETWEEN)]] * above + [[(1, 1)]] * (others - above))


def gaussian_steps(selector: str) -> Worlds:
    """M users are above every candidate: only the user makes the noised answers pull the descent, all one way."""
    wide = {"items": 2, "sparsity": 1, "candidates": 16, "min_threshold": 1.0, "max_threshold": 32.0}
    others = max(round(closed_plan("gaussian", selector, 1, **wide).noise_price), 1)
    plan = closed_plan("gaussian", selector, others, **wide)
    return closed_worlds(plan, [(0, HUGE)], [[(1, HUGE)]] * others)


def open_selector(selector: str, holders: int, singles: int) -> Worlds:
    """A key that some users hold eight times, and keys that others hold once, with up to a hundred holders each.

    At the larger candidate the first key is beyond the bar, and the user adds little to the error; at the smaller one
    the user loses nearly everything. The other keys favour the smaller candidate, whose bar is lower.
    """
    keys = -(-singles // _SINGLES)
    plan = Plan(
        users=holders + singles + 1,
        domain="open",
        release="truncated-laplace",
        selector=selector,
        candidates=2,
        delta=0.02,
        epsilon=0.1,
        epsilon_select=2.0,
        min_threshold=1.0,
        max_threshold=HIGH,
    )
    others: list[User] = [[(0, int(HIGH))] for _ in range(holders)]
    others += [[(1 + number // _SINGLES, 1)] for number in range(singles)]
    labels = ["shared", *(f"single {key}" for key in range(keys))]
    return Worlds(
        plan=plan,
        without=crafted([*others, []], 1 + keys, labels),
        with_user=crafted([*others, [(0, int(HIGH))]], 1 + keys, labels),
        evidence=open_evidence("shared", holders),
    )


def fixed_plan(mechanism: str, *, items: int = 2, threshold: float = LOW, **settings: Any) -> Plan:
    """A plan without a choice."""
    settings |= {"mechanism": mechanism, "threshold": threshold, "max_threshold": HIGH}
    return Plan(users=2, items=items, selector="fixed", **settings)


def fixed_items() -> Worlds:
    """Items clipped one by one at public bounds, and a user with much of every item."""
    items = 16
    plan = fixed_plan("laplace", items=items, threshold=HIGH, epsilon=2.0, debias="poisson")
    worlds = closed_worlds(plan, [(item, HUGE) for item in range(items)], [[]])
    return replace(worlds, evidence=partial(item_evidence, 0))


def fixed(mechanism: str, **settings: Any) -> Worlds:
    """No round 1: the mechanism of the release alone."""
    plan = fixed_plan(mechanism, **settings)
    worlds = closed_worlds(plan, [(0, HUGE)], [[]])
    if plan.neighbours == "replace-one":
        return Worlds(plan, crafted([[], [(1, HUGE)]], 2), worlds.with_user, _moved_evidence)
    return worlds


def _moved_evidence(release: Release) -> float:
    """The evidence that the user is in the first cell and not in the second."""
    return closed_evidence([0])(release) - closed_evidence([1])(release)
