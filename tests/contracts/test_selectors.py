"""Every selector in the registry, and what the contract makes of wrong ones."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedhist import Plan, SeededSource
from fedhist.testing import PLANS, SELECTOR, check_selector
from tests.support.api import (
    ANY_NORM,
    SELECTORS,
    Chooser,
    InvalidPlan,
    Reads,
    Selection,
    WeightedQuantile,
    choose,
    selector_for,
    variant,
)
from tests.support.refusals import refused

KNOWN = SELECTORS.with_installed()


@pytest.mark.parametrize("check", SELECTOR.checks)
@pytest.mark.parametrize("selector", KNOWN.values(), ids=KNOWN)
def test_each_keeps_the_contract(selector, check):
    SELECTOR.run(check, Chooser(selector, tuple(PLANS.values())))


@pytest.mark.parametrize("name", [name for name, one in KNOWN.items() if one.private and one.reads])
def test_an_unlimited_budget_finds_the_best_candidate(name):
    """Users of one item have r = 1, so that all closed selectors have one target; open ones that of their scores."""
    rows = np.zeros((3000, 3), dtype=np.int64)
    rows[:, 0] = np.geomspace(2, 90, 3000)
    rich = {
        "users": 3000, "epsilon": 0.05, "epsilon_select": 1e5, "delta_select": 1e-2,
        "max_threshold": 100.0, "candidates": 64,
    }  # fmt: skip
    for plan in Chooser(SELECTORS.find(name), tuple(PLANS.values())).plans_with(**rich):
        if plan.is_open:
            best = plan.candidate_steps[np.argmax(choose(plan, rows).scores)]
        else:
            mechanism = choose(plan, rows).mechanism or plan.mechanism
            exact = variant(plan, selector="oracle", noise_from="server", mechanism=mechanism)
            best = choose(exact, rows).threshold.value
        assert 10 < best < 90, "the population must make the choice a real one"
        assert abs(np.log(choose(plan, rows).threshold.value / best)) < 0.15


@pytest.mark.parametrize("name", ["weighted-quantile", "dpsgd"])
def test_weights_are_charged_for_the_sparsity(name):
    plans = [Plan(users=100, items=100, sparsity=s, selector=name) for s in (100, 4)]
    assert [selector_for(plan).charges(plan)[0].sensitivity for plan in plans] == [10, 2]


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"selector": "best"}, ("unknown-selector", "'best'")),
        ({"selector": "quantile"}, ("selector-does-not-fit",)),
        ({"selector": "dpsgd", "delta_select": 0.0}, ("no-delta-select",)),
        ({"selector": "m-quantile", "delta_select": 0.0}, ("no-delta-select",)),
    ],
)
def test_a_plan_that_a_selector_does_not_go_with_is_refused(settings, refusal):
    with refused(InvalidPlan, *refusal):
        selector_for(Plan(users=10, items=2, **settings))


@dataclass(frozen=True)
class Toy(WeightedQuantile):
    name: str = "toy"
    reads: Reads = (("weights", ANY_NORM),)


def wrong(**changes):
    """A selector like the toy with something changed."""
    return type("Wrong", (Toy,), changes)


def choosing(changes):
    return wrong(
        choice=lambda self, plan, statistic: replace(Toy.choice(self, plan, statistic), **changes(plan))
    )


def selecting(steps):
    """A choice that reads nothing."""

    def select(self, plan, statistic, *, source):
        return Selection(replace(plan.at_steps(0), steps=steps(plan)))

    return wrong(select=select)


def half_the_charge(self, plan):
    return tuple(replace(charge, epsilon=charge.epsilon / 2) for charge in Toy.charges(self, plan))


SEEDS = itertools.count()


def own_source(self, plan, statistic, *, source):
    return Toy.select(self, plan, statistic, source=SeededSource(next(SEEDS)))


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        (
            selecting(lambda plan: plan.step_range[1] + 1),
            "thresholds_stay_on_the_grid_and_in_the_public_range",
        ),
        (selecting(lambda plan: plan.candidate_steps[1]), "one_candidate_is_enough"),
        (wrong(charges=half_the_charge), "it_costs_its_budget_or_nothing"),
        (
            choosing(lambda plan: {"epsilon": 2 * plan.epsilon_select}),
            "neighbours_are_as_hard_to_tell_apart_as_charged",
        ),
        (wrong(select=own_source), "the_source_alone_decides_the_choice"),
        (
            choosing(lambda plan: {"epsilon": 1e-3, "log_base_measure": None}),
            "a_larger_budget_narrows_the_choice",
        ),
    ],
    ids=["out of range", "two candidates", "half the charge", "twice the cost", "own source", "no budget"],
)
def test_a_wrong_one_is_caught(caught_by, selector, name):
    caught_by(name, check_selector, selector())
    assert "toy" not in SELECTORS
