"""Totals hold against mechanisms built to be the worst, and are hardly above them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special, stats

from fedhist import Charge, Cost, Plan
from fedhist.testing import PLANS
from tests.builders import charge_of, python
from tests.oracles import gaussian_delta, gaussian_deltas
from tests.support.api import (
    AlternativesLoss,
    ApproximateLoss,
    BoundedRangeLoss,
    GaussianLoss,
    PureLoss,
    basic_total,
    discovery_charges,
    epsilon_at,
    noise_multiplier,
    planned_charges,
    tight_total,
)


def pure(epsilon: float) -> Charge:
    return charge_of(epsilon, 0.0, PureLoss())


def exponential(epsilon: float) -> Charge:
    return charge_of(epsilon, 0.0, BoundedRangeLoss())


def approximate(epsilon: float, delta: float) -> Charge:
    return charge_of(epsilon, delta, ApproximateLoss())


def gaussian(epsilon: float, delta: float) -> Charge:
    return charge_of(epsilon, delta, GaussianLoss(noise_multiplier(epsilon, delta)))


def two_candidates(epsilon: float, first_chosen: float) -> list[tuple[float, float]]:
    """(privacy loss, probability) of an exponential mechanism over two candidates.

    On one population the first candidate wins with probability `first_chosen`; a user moves the difference of
    the two scores by all that epsilon allows, so that on the neighbour the log odds are lower by epsilon.
    """
    neighbour = special.expit(special.logit(first_chosen) - epsilon)
    return [
        (math.log(first_chosen / neighbour), first_chosen),
        (math.log((1 - first_chosen) / (1 - neighbour)), 1 - first_chosen),
    ]


def exact_delta(epsilon: float, multiplier: float, others: Sequence[list[tuple[float, float]]]) -> float:
    """delta(epsilon) of Gaussian noise beside mechanisms with few outcomes, by going through them all."""
    total = mpmath.mpf(0)
    for outcomes in itertools.product(*others):
        loss, probability = math.fsum(one for one, _ in outcomes), math.prod(one for _, one in outcomes)
        total += probability * gaussian_delta(multiplier, epsilon - loss)
    return float(total)


def least_epsilon(delta: float, multiplier: float, others: Sequence[list[tuple[float, float]]]) -> float:
    """The true epsilon at delta, by halving."""
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(middle, multiplier, others) > delta else (low, middle)
    return high


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_a_gaussian_alone_costs_what_it_was_calibrated_for(epsilon: float, delta: float) -> None:
    assert tight_total([gaussian(epsilon, delta)]).epsilon == pytest.approx(epsilon, rel=1e-4)


def test_more_noise_than_the_budget_needs_is_seen_in_the_tight_total() -> None:
    generous = charge_of(1.0, 1e-6, GaussianLoss(noise_multiplier(0.5, 1e-6)))
    assert tight_total([generous]).epsilon == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "select"), [(1.0, 1e-6, 0.1), (1.0, 1e-6, 1.0), (0.1, 1e-9, 0.1), (5.0, 0.01, 0.5)]
)
def test_a_first_exponential_mechanism_is_sound_and_tight_against_every_two_candidate_one(
    epsilon: float, delta: float, select: float
) -> None:
    multiplier = noise_multiplier(epsilon, delta)
    total = tight_total([exponential(select), gaussian(epsilon, delta)])
    worst = max(
        least_epsilon(delta, multiplier, [two_candidates(select, share)])
        for share in np.linspace(0.05, 0.95, 13)
    )
    assert worst <= total.epsilon <= worst + 0.05 * select


def test_an_exponential_mechanism_after_a_gaussian_is_sound_when_it_reacts_to_what_it_saw() -> None:
    """The candidates' scores may depend on the released histogram: the worst odds differ for each outcome."""
    multiplier, delta, select = noise_multiplier(1.0, 1e-6), 1e-6, 0.5
    mean, deviation = 1 / (2 * multiplier**2), 1 / multiplier

    def reacting_delta(epsilon: float) -> float:
        losses = np.linspace(mean - 9 * deviation, mean + 9 * deviation, 20_001)
        left = epsilon - losses
        # Seeing that `left` is left, take the two candidates whose losses are (left + select)/2 and
        # (left - select)/2: their delta at `left` is the largest that a bounded range allows.
        best = np.expm1((np.clip(left, -select, select) - select) / 2) ** 2 / -math.expm1(-select)
        best = np.where(left < -select, -np.expm1(np.minimum(left, 0)), best)
        return float(np.trapezoid(best * stats.norm.pdf(losses, mean, deviation), losses))

    total = tight_total([gaussian(1.0, delta), exponential(select)])
    assert reacting_delta(total.epsilon) <= delta
    assert reacting_delta(total.epsilon - 1e-3) > delta
    # Treating it as if it came first would be unsound here.
    assert tight_total([exponential(select), gaussian(1.0, delta)]).epsilon < total.epsilon - 0.01


def test_without_any_delta_the_tight_total_is_the_basic_one() -> None:
    ledger = [pure(0.5), exponential(0.5), pure(0.25)]
    assert tight_total(ledger) == basic_total(ledger) == Cost(1.25, 0.0)


def test_deltas_that_sum_to_one_are_not_sold_as_a_small_epsilon() -> None:
    ledger = [approximate(0.5, 0.3)] * 4
    assert tight_total(ledger) == basic_total(ledger)


def test_an_approximate_entry_keeps_its_delta_and_leaves_the_rest_to_the_others() -> None:
    alone = tight_total([pure(0.1), gaussian(1.0, 1e-6)])
    beside = tight_total([pure(0.1), gaussian(1.0, 1e-6), approximate(0.0, 1e-3)])
    assert beside.epsilon == pytest.approx(alone.epsilon, abs=1e-3)
    assert beside.delta == pytest.approx(1e-3 + 1e-6)
    assert tight_total([approximate(0.7, 1e-3)]) == Cost(0.7, 1e-3)


def test_five_hundred_runs_are_sound_and_far_below_their_sum() -> None:
    runs = 500
    total = tight_total([exponential(0.1), gaussian(1.0, 1e-6)] * runs)
    assert total.delta == pytest.approx(runs * 1e-6)
    # The same exponential mechanism each time: the number of times that the first candidate won is binomial.
    multiplier = noise_multiplier(1.0, 1e-6) / math.sqrt(runs)
    won = np.arange(runs + 1)
    for share in (0.3, 0.5, 0.7):
        (up, _), (down, _) = two_candidates(0.1, share)
        left = total.epsilon - (won * up + (runs - won) * down)
        assert np.dot(stats.binom.pmf(won, runs, share), gaussian_deltas(multiplier, left)) <= total.delta
    assert total.epsilon < 33


def test_a_hundred_distinct_budgets_are_sound_and_nearly_tight() -> None:
    epsilons, grid = np.linspace(0.01, 0.2, 100), 1e-4
    total = tight_total([gaussian(1.0, 1e-6), *(pure(float(epsilon)) for epsilon in epsilons)])
    # The sum of all coin flips, each loss rounded down: this delta is below the true one.
    width = math.ceil(epsilons.sum() / grid) + len(epsilons)
    flips = np.zeros(2 * width + 1)
    flips[width] = 1.0
    for epsilon in epsilons:
        up, down = math.floor(epsilon / grid), math.floor(-epsilon / grid)
        flips = special.expit(epsilon) * np.roll(flips, up) + special.expit(-epsilon) * np.roll(flips, down)
    losses, multiplier = np.arange(-width, width + 1) * grid, noise_multiplier(1.0, 1e-6)

    def lower_delta(epsilon: float) -> float:
        return float(np.dot(flips, gaussian_deltas(multiplier, epsilon - losses)))

    assert lower_delta(total.epsilon) <= total.delta
    assert lower_delta(0.95 * total.epsilon) > total.delta


@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e-7, 1e-6, 1e-3])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12])
def test_noise_far_beyond_use_is_not_undercharged(epsilon: float, delta: float) -> None:
    """A multiplier of 10^11 and more once lost its digits and looked a fifth as costly as it was."""
    multiplier = noise_multiplier(epsilon, delta)
    total = tight_total([charge_of(100 * epsilon, delta, GaussianLoss(multiplier))])
    assert gaussian_delta(multiplier, total.epsilon) <= delta


@pytest.mark.parametrize(
    "first", [pure(800.0), exponential(800.0), exponential(1e-12), pure(1e-12), pure(0.0)]
)
@pytest.mark.parametrize("second", [gaussian(1.0, 1e-6), gaussian(600.0, 1e-6), gaussian(1e-8, 1e-300)])
def test_extreme_budgets_have_a_total_too(first: Charge, second: Charge) -> None:
    total, basic = tight_total([first, second]), basic_total([first, second])
    # Below 1e-6 noise is that of the classic formula, a fortieth more than a budget needs.
    assert max(first.epsilon, second.epsilon * 0.975) <= total.epsilon <= basic.epsilon


# --- A discovery.


def ways_of(charge: Charge) -> list[Any]:
    """The losses of the ways of a discovery, by another library. A pure mechanism is at worst randomised response."""
    assert isinstance(charge.loss, AlternativesLoss)
    found = []
    for way in charge.loss.ways:
        assert way.multiplier is not None
        found.append(pld.from_gaussian_mechanism(way.multiplier, value_discretization_interval=1e-4))
        if way.epsilon is not None:
            flipped = 2 / (1 + math.exp(way.epsilon))
            response = pld.from_randomized_response(flipped, 2, value_discretization_interval=1e-4)
            found[-1] = found[-1].compose(response)
    return found


def summed_delta(losses: list[Any], epsilon: float) -> float:
    return math.fsum(loss.get_delta_for_epsilon(epsilon) for loss in losses)


@pytest.mark.parametrize("changes", [{}, {"mechanism": "laplace"}], ids=str)
def test_the_tight_total_of_a_discovery_is_that_of_its_noise_and_its_bars(changes: dict[str, Any]) -> None:
    (charge,) = discovery_charges(Plan(users=1000, domain="open", **changes))
    cost = tight_total([charge])
    assert cost.epsilon <= charge.epsilon and cost.delta == charge.delta
    assert isinstance(charge.loss, AlternativesLoss)
    left = charge.delta - charge.loss.failure
    assert summed_delta(ways_of(charge), cost.epsilon * 1.001) <= left
    assert summed_delta(ways_of(charge), cost.epsilon * 0.99) > left


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_charge_of_a_discovery_comes_back_from_json(mechanism: str) -> None:
    (charge,) = discovery_charges(Plan(users=1000, domain="open", mechanism=mechanism))
    assert Charge.from_json(json.loads(json.dumps(charge.to_json()))) == charge


@pytest.mark.parametrize("epsilon_select", [1e-4, 0.01])
def test_a_choice_of_little_epsilon_before_alternatives_has_a_total(epsilon_select: float) -> None:
    """All cells of so short a range, up to the total, would take a hundred gigabytes."""
    plan = Plan(users=1000, items=20, mechanism="auto", epsilon=20.0, epsilon_select=epsilon_select)
    total = tight_total(planned_charges(plan))
    assert plan.epsilon < total.epsilon <= plan.epsilon + plan.epsilon_select


def test_a_slack_next_to_nothing_beside_a_discovery_costs_next_to_nothing() -> None:
    """The losses +-epsilon of one below 10^-16 once looked like one loss, and the sum was the best bound left."""
    charges = planned_charges(PLANS["device noise, discovered"])
    assert min(charge.epsilon for charge in charges) < 1e-16
    without = [charge for charge in charges if charge.epsilon > 1e-16]
    assert tight_total(charges).epsilon == pytest.approx(tight_total(without).epsilon, rel=1e-6)
    assert tight_total(charges).epsilon < 0.98 * basic_total(charges).epsilon


def test_two_discoveries_cost_the_deltas_of_all_pairs_of_their_ways() -> None:
    """By another library: one way of each after the other, and both failures."""
    (charge,) = discovery_charges(Plan(users=1000, domain="open", epsilon=0.5))
    pairs = [one.compose(other) for one, other in itertools.product(ways_of(charge), repeat=2)]
    assert len(pairs) > 1 and isinstance(charge.loss, AlternativesLoss)
    cost, left = tight_total([charge, charge]), 2 * (charge.delta - charge.loss.failure)
    assert cost.epsilon < 0.99 * 2 * charge.epsilon and cost.delta == 2 * charge.delta
    assert summed_delta(pairs, cost.epsilon * 1.002) <= left < summed_delta(pairs, cost.epsilon * 0.98)


def test_below_what_may_fail_there_is_no_epsilon() -> None:
    entry = charge_of(0.1, 1e-8, ApproximateLoss())
    assert epsilon_at([entry], 1e-9) == math.inf
    assert epsilon_at([], 1e-6) == 0


ONE_OF_EVERY_RUN = """
import sys
import fedhist
import pandas as pd

settings = dict(epsilon=1.0, delta=1e-6, minimum_cohort=2)
table = pd.DataFrame({"user": [f"u{n // 3}" for n in range(900)], "item": [f"i{n % 7}" for n in range(900)]})
for changes in ({}, {"mechanism": "gaussian"}, {"mechanism": "laplace"}, {"items": [f"i{n}" for n in range(7)]}):
    result = fedhist.histogram(table, **settings, **changes)
    assert result.tight.epsilon <= 1.1
print("dp_accounting" in sys.modules)
"""


def test_a_run_of_any_mechanism_needs_no_grid(tmp_path: Path) -> None:
    """Loading dp_accounting takes a second, which a run over a table of one's own once paid."""
    assert python("-c", ONE_OF_EVERY_RUN, cwd=tmp_path).split() == ["False"]


def test_what_approximate_entries_fail_together_leaves_a_little_of_delta_to_the_rest() -> None:
    """They fail independently: beside 40 of them the others have what the sum of their deltas counts twice."""
    total = tight_total([exponential(0.1), approximate(1.0, 1e-6)] * 40)
    assert 41 < total.epsilon < 41.1
    assert basic_total([exponential(0.1), approximate(1.0, 1e-6)] * 40).epsilon == pytest.approx(44)
