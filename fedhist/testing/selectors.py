"""What every selector must do: stay in the public range, cost what it says, and gain from a larger budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import as_built_in
from fedhist.protocol.privacy.composition import basic_total
from fedhist.protocol.privacy.ledger import BoundedRangeLoss
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.selection import SELECTORS, Selection, Selector, selector_for
from fedhist.server.selection.contract import ScoringSelector
from fedhist.server.steps import read_statistic, select_request
from fedhist.testing.contract import (
    PLANS,
    Contract,
    WatchedSource,
    labels_for,
    require,
    some_rows,
    telling_rows,
    total_of,
    variant,
)

ROWS = {
    "all empty": np.zeros((50, 3), dtype=np.int64),
    "few users": np.array([[3, 0, 40]] * 5),
    "all equal": np.full((300, 3), 5),
    "one giant": np.array([[1, 0, 0]] * 200 + [[2_000_000, 1, 0]]),
    "all giants": np.full((100, 3), 900_000),
}


@dataclass(frozen=True)
class Chooser:
    """A selector with the plans that it is checked under."""

    selector: Selector
    plans: Collection[Plan]

    def plans_with(self, **changes: Any) -> list[Plan]:
        """The plans with these changes that the selector fits."""
        name = self.selector.name
        fixed = {"threshold": changes.get("max_threshold", 20.0) if name == "fixed" else None}
        changed = (variant(plan, **({"selector": name} | fixed | changes)) for plan in self.plans)
        fitting = [plan for plan in changed if plan is not None and _fits(plan)]
        require(fitting, f"no plan fits {name}; pass some that do as plans=")
        return fitting


@contextmanager
def _in_registry(chooser: Chooser) -> Iterator[None]:
    with as_built_in(), patch.dict(SELECTORS, {chooser.selector.name: chooser.selector}):
        yield


SELECTOR: Contract[Chooser] = Contract("selector", _in_registry)


def check_selector(
    selector: Selector, *, plans: Collection[Plan] = tuple(PLANS.values()), skip: Collection[str] = ()
) -> None:
    """Run all checks on a selector, in the registry or not.

    Args:
        selector: the selector.
        plans: small plans, some of which it goes with once they name it.
        skip: names of checks that it can't pass.
    """
    SELECTOR.run_all(Chooser(selector, plans), skip)


@SELECTOR.check
def thresholds_stay_on_the_grid_and_in_the_public_range(chooser: Chooser) -> None:
    """With any budget and whatever users hold, for single items too."""
    for rows in ROWS.values():
        for epsilon in (1e-3, 0.1, 50.0):
            wide = {"min_threshold": 2.5, "max_threshold": 400.25, "epsilon_select": epsilon}
            for plan in chooser.plans_with(users=len(rows), **wide):
                for selection in choices(plan, rows, range(3)):
                    _check_range(plan, selection)


@SELECTOR.check
def one_candidate_is_enough(chooser: Chooser) -> None:
    """It is the one that is chosen."""
    for plan in chooser.plans_with(users=50, min_threshold=20.0, max_threshold=20.0):
        selection = choose(plan, np.array([[1, 2, 3], [50, 0, 0]] * 25))
        # Of a run that chooses its mechanism, the l1 bound is the one with the noise of the l2 bound.
        only, chosen = plan.way(selection.mechanism).at_steps(2.0**62).value, selection.threshold.value
        require(chosen == only, f"{chosen} is chosen where {only} is the only candidate")


@SELECTOR.check
def it_costs_its_budget_or_nothing(chooser: Chooser) -> None:
    """Charges of its round, for the plan's neighbours, that add up to the plan's; nothing if it reads nothing."""
    for neighbours in Neighbours:
        budget = {"epsilon_select": 0.37, "delta_select": 3e-7, "neighbours": neighbours.value}
        for plan in chooser.plans_with(**budget):
            selector = selector_for(plan)
            charges = selector.charges(plan)
            cost = basic_total(charges)
            for charge in charges:
                require(charge.round == "select", f"a charge of round {charge.round}")
                require(charge.neighbours == neighbours, f"a charge for {charge.neighbours} neighbours")
            if not selector.private:
                known = cost.epsilon == math.inf and not all(charge.private for charge in charges)
                require(known, "it is not private, and its charges do not say so")
            elif not selector.reads:
                require(not charges, "it reads nothing and charges something")
            else:
                require(math.isclose(cost.epsilon, 0.37), f"{cost} is charged of epsilon' = 0.37")
                within = cost.delta == 0 or math.isclose(cost.delta, 3e-7)
                require(within, f"{cost} is charged of a delta-select of 3e-7")


@SELECTOR.check
def neighbours_are_as_hard_to_tell_apart_as_charged(chooser: Chooser) -> None:
    """From the exact chances of its scores, where it has any, on random and telling users.

    No logarithm of their ratios is beyond epsilon; where bounded range is charged, they span at most epsilon.
    """
    for neighbours in Neighbours:
        for plan in chooser.plans_with(epsilon_select=0.7, neighbours=neighbours.value):
            selector = selector_for(plan)
            if not (isinstance(selector, ScoringSelector) and selector.private):
                continue
            charges = selector.charges(plan)
            charged = basic_total(charges).epsilon
            spans = all(isinstance(charge.loss, BoundedRangeLoss) for charge in charges)
            for base in (telling_rows(plan), some_rows(plan, 3, users=100), _one_in_the_middle(plan)):
                with_each = [
                    _logarithms(selector, plan, np.vstack([base, row])) for row in telling_rows(plan)[::2]
                ]
                firsts = (
                    with_each if neighbours is Neighbours.REPLACE_ONE else [_logarithms(selector, plan, base)]
                )
                losses = np.array([a - b for a in firsts for b in with_each])
                worst = np.ptp(losses, axis=2) if spans else np.abs(losses).max(axis=2)
                cost = worst.sum(axis=1).max()
                within = cost <= charged * (1 + 1e-9)
                require(within, f"one user costs epsilon {cost:.4g}; charged is {charged:.4g}")


@SELECTOR.check
def the_source_alone_decides_the_choice(chooser: Chooser) -> None:
    """The same seed chooses the same, and a statistic with noise from devices needs no more."""
    for plan in chooser.plans_with():
        rows = some_rows(plan, 7, users=60)
        selector, statistic = selector_for(plan), statistic_of(plan, rows)
        for seed in range(5):
            source = WatchedSource(seed)
            one, again = (
                selector.select(plan, statistic, source=each) for each in (source, WatchedSource(seed))
            )
            require(one.threshold == again.threshold, "the same seed chooses another threshold")
            require(one.mechanism == again.mechanism, "the same seed chooses another mechanism")
            require(not (source.drawn and isinstance(statistic, NoisyTail)), "it draws for a noisy statistic")


@SELECTOR.check
def a_larger_budget_narrows_the_choice(chooser: Chooser) -> None:
    """With next to unlimited epsilon' the seed hardly matters; with next to none it does."""
    rows = np.zeros((3000, 3), dtype=np.int64)
    rows[:, 0] = np.geomspace(2, 90, 3000)
    more = {"users": 3000, "epsilon": 0.05, "delta_select": 1e-2, "max_threshold": 100.0, "candidates": 64}
    for plan in chooser.plans_with(epsilon_select=1e5, **more):
        rich = [selection.threshold.value for selection in choices(plan, rows, range(5))]
        require(max(rich) <= 1.2 * min(rich), f"epsilon' of 10^5 chooses {min(rich)} and {max(rich)}")
        poor = variant(plan, epsilon_select=2e-3)
        if poor is not None and _fits(poor) and selector_for(poor).private and selector_for(poor).reads:
            wide = [selection.threshold.value for selection in choices(poor, rows, range(20))]
            spread = max(wide) / min(wide)
            require(spread > max(rich) / min(rich), "a small budget chooses as well as a large one")


def statistic_of(plan: Plan, rows: Integers, seed: int = 0) -> Any:
    """What the plan's selector reads of these users; None if nothing."""
    if not selector_for(plan).reads:
        return None
    return read_statistic(plan, total_of(select_request(plan).measurement, rows, noise_seed=seed))


def choose(plan: Plan, rows: Integers, seed: int = 1) -> Selection:
    """What the plan's selector chooses for these users."""
    (selection,) = choices(plan, rows, [seed])
    return selection


def choices(plan: Plan, rows: Integers, seeds: Iterable[int]) -> Iterator[Selection]:
    """What it chooses with each of these seeds. Only noise from devices makes another statistic of the same users."""
    statistic = None
    for seed in seeds:
        if statistic is None or plan.noise_from == "devices":
            statistic = statistic_of(plan, rows, seed)
        yield selector_for(plan).select(plan, statistic, source=WatchedSource(seed))


def _one_in_the_middle(plan: Plan) -> Integers:
    """A single user, above half of the candidates: what is chosen hangs on very few."""
    rows = np.zeros((1, len(labels_for(plan))), dtype=np.int64)
    rows[0, 0] = (plan.candidate_steps[len(plan.candidate_steps) // 2] >> plan.grid_bits) + 1
    return rows


def _fits(plan: Plan) -> bool:
    try:
        selector_for(plan)
    except InvalidPlan:
        return False
    return True


def _check_range(plan: Plan, selection: Selection) -> None:
    plan = replace(selection.settled, mechanism=selection.mechanism).plan_for(plan)
    low, high = plan.step_range
    chosen = selection.threshold
    require(chosen.bits == plan.grid_bits, f"a grid of {chosen.bits} bits; {plan.grid_bits} are due")
    require(low <= chosen.steps <= high, f"{chosen.steps} steps; allowed: {low} to {high}")
    each = selection.item_thresholds
    if each is not None:
        items = len(labels_for(plan))
        require(len(each) == items, f"{len(each)} thresholds for {items} items")
        require(((low <= each) & (each <= high)).all(), f"an item's is outside {low} to {high} steps")
        require(each.max() == chosen.steps, "the threshold is not the largest of the items'")


def _logarithms(selector: ScoringSelector, plan: Plan, rows: Integers) -> Floats:
    """The logarithms of the chances of each candidate, for each choice that is drawn."""
    statistic = statistic_of(plan, rows)
    by_item = getattr(selector, "item_choices", None) if plan.debias else None
    choices = [selector.choice(plan, statistic)] if by_item is None else by_item(plan, statistic)
    return np.log([choice.probabilities() for choice in choices])
