"""What every selector must do, present and future: the registry is the list of subjects."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.client.device import add_noise_share, answer
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.masking_terms import UNMASKED
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Total
from fedhist.server.selection import SELECTORS, selector_for
from fedhist.server.selection.noisy import RULES
from fedhist.server.steps import read_statistic
from tests.asking import select_request
from tests.builders import histograms_of

CASES = [(name, mode) for name, one in SELECTORS.items() for mode in sorted(one.modes)]
# The same selectors on a statistic that the devices noised.
CASES += [(name, ("devices", mode[1])) for name, mode in CASES if name in RULES and mode[0] == "closed"]
BUDGETED = [case for case in CASES if case[0] != "fixed"]


def cases(chosen):
    return pytest.mark.parametrize(("name", "mode"), chosen, ids=[f"{n}-{'-'.join(m)}" for n, m in chosen])


subjects = cases(CASES)


def plan_for(name, mode, *, users, items=3, **settings):
    kind, mechanism = mode
    if name == "fixed":
        settings.setdefault("threshold", 20.0)
    if kind == "open":
        settings |= {"domain": "open"}
        settings.pop("sparsity", None)
    else:
        settings |= {"items": items, "debias": "poisson" if kind == "items" else None}
    if kind == "devices":
        users = max(users, 4)
        settings |= {"masking": "secagg", "participants": 4, "noise_from": "devices"}
    return Plan(users=users, selector=name, mechanism=mechanism, **settings)


def statistic_of(plan, rows, seed=0):
    """The statistic as it comes out of the devices and goes into the server."""
    request = select_request(plan=plan)
    sent = answer(request, histograms_of(rows), source=SeededSource(0))
    values = sent.values
    for participant in range(plan.participants or 0):
        values = add_noise_share(request, values, source=SeededSource(seed).fork(participant))
    return read_statistic(plan, Total(plan.users, values, sent.keyed, shares=plan.participants or 0))


def choose(plan, rows, seed=1):
    statistic = statistic_of(plan, rows, seed)
    return selector_for(plan).select(plan, statistic, source=SeededSource(seed)).threshold


def target(plan, rows):
    """What an unlimited budget should find."""
    if plan.is_open and plan.selector in ("exponential-v", "exponential-sharp"):
        statistic = statistic_of(plan, rows)
        scores = selector_for(plan).select(plan, statistic, source=SeededSource(0)).scores
        return plan.candidate_steps[int(np.argmax(scores))]
    if plan.is_open:
        return choose(plan, rows).value
    return choose(Plan.from_json(plan.to_json() | UNMASKED | {"selector": "oracle"}), rows).value


POPULATIONS = {
    "one empty user": [[0, 0, 0]],
    "all empty": [[0, 0, 0]] * 50,
    "single user": [[3, 0, 40]],
    "all equal": [[5, 5, 5]] * 300,
    "one giant": [[1, 0, 0]] * 200 + [[2_000_000, 1, 0]],
    "all giants": [[900_000, 900_000, 900_000]] * 100,
}


@subjects
@pytest.mark.parametrize("rows", POPULATIONS.values(), ids=POPULATIONS.keys())
@pytest.mark.parametrize("epsilon_select", [1e-3, 0.1, 50.0])
def test_stays_on_the_grid_between_c_min_and_c_m(name, mode, rows, epsilon_select):
    budget = {"epsilon_select": epsilon_select}
    plan = plan_for(name, mode, users=len(rows), min_threshold=2.5, max_threshold=400.25, **budget)
    for seed in range(5):
        chosen = choose(plan, rows, seed)
        assert chosen.bits == plan.grid_bits
        assert 2.5 <= chosen.value <= 400.25


@subjects
def test_works_when_there_is_one_candidate_only(name, mode):
    plan = plan_for(name, mode, users=2, min_threshold=20.0, max_threshold=20.0)
    assert choose(plan, [[1, 2, 3], [50, 0, 0]]).value == 20.0


@subjects
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_costs_what_it_says(name, mode, neighbours):
    """Charges are in the select round, for the plan's neighbours, inside its budget, and all of it or nothing."""
    plan = plan_for(name, mode, users=1000, neighbours=neighbours, epsilon_select=0.37, delta_select=3e-7)
    selector = selector_for(plan)
    ledger = Ledger()
    for charge in selector.charges(plan):
        ledger.charge(charge)
        assert charge.round == "select"
        assert charge.neighbours == neighbours
    if not selector.private:
        assert not ledger.private
        assert ledger.basic().epsilon == math.inf
    elif not selector.needs_statistic:
        assert ledger.entries == ()
    else:
        assert ledger.basic().epsilon == pytest.approx(0.37)
        assert ledger.basic().delta in (0, pytest.approx(3e-7))
        assert ledger.private


@subjects
def test_the_same_seed_chooses_the_same(name, mode):
    rows = [[i % 7, i % 3, i % 31] for i in range(500)]
    plan = plan_for(name, mode, users=500)
    assert choose(plan, rows, 7) == choose(plan, rows, 7)


@subjects
def test_reads_one_statistic_of_a_few_values_a_candidate(name, mode):
    """A closed histogram's vector does not grow with its items; single items have one count a bin each."""
    plan = plan_for(name, mode, users=10, items=3)
    assert select_request(plan=plan).length <= 3 * (plan.candidates + 1)


@cases(BUDGETED)
def test_converges_to_the_best_candidate_as_the_budget_grows(name, mode):
    """Users of one distinct item have r = 1, so every selector's target is the same: W(C) is the number above C.

    Over an open domain the target is the candidate of the best score.
    """
    sizes = np.geomspace(2, 90, 4000).astype(int)
    rows = [[int(size), 0, 0] for size in sizes]
    budgets = {"epsilon": 0.05, "epsilon_select": 1e5, "delta_select": 1e-2}
    plan = plan_for(name, mode, users=len(rows), max_threshold=100.0, **budgets)
    best = target(plan, rows)
    assert 10 < best < 90, "the population must make the choice a real one"
    chosen = np.array([choose(plan, rows, seed).value for seed in range(5)])
    assert np.abs(np.log(chosen / best)).max() < 0.15
    poor = Plan.from_json(plan.to_json() | {"epsilon_select": 1e-3})
    if selector_for(plan).private:
        far = np.array([choose(poor, rows, seed).value for seed in range(20)])
        assert np.abs(np.log(far / best)).max() > np.abs(np.log(chosen / best)).max()


@subjects
def test_the_charge_names_the_sensitivity_of_the_sparsity(name, mode):
    """Selectors that read weights pay sqrt(s); none pays less than a count's 1."""
    wide, narrow = (plan_for(name, mode, users=100, items=100, sparsity=s) for s in (100, 4))
    for charge in selector_for(wide).charges(wide):
        if charge.private and charge.name != "discrete-laplace":
            assert charge.sensitivity >= 1
    if name in ("weighted-quantile", "dpsgd") and mode == ("closed", "gaussian"):
        (a,), (b,) = selector_for(wide).charges(wide), selector_for(narrow).charges(narrow)
        assert (a.sensitivity, b.sensitivity) == (10, 2)


def test_an_unknown_selector_is_refused_with_the_known_ones():
    with pytest.raises(InvalidPlan, match=r"unknown selector 'best'.*weighted-quantile"):
        selector_for(Plan(users=1, items=1, selector="best"))


def test_a_selector_of_the_other_mechanism_is_refused():
    with pytest.raises(InvalidPlan, match=r"quantile does not go with the gaussian"):
        selector_for(Plan(users=1, items=1, selector="quantile"))


@pytest.mark.parametrize("name", ["dpsgd", "m-quantile"])
def test_gaussian_selectors_want_a_delta(name):
    with pytest.raises(InvalidPlan, match="delta-select"):
        selector_for(Plan(users=10, items=2, selector=name, delta_select=0.0))
