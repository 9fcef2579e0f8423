"""Open-domain scores and sums against brute force over small neighbours: never passed, and nearly reached."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fedhist import Neighbours, Plan, SeededSource
from tests.asking import select_request
from tests.support.api import (
    SHARE_BITS,
    Total,
    answer,
    error_bound,
    read_statistic,
    score_range,
    selector_for,
    sharp_error,
    sharp_range,
)

LARGEST = 20
ITEMS = 3
SCORES = {"exponential-v": (error_bound, score_range), "exponential-sharp": (sharp_error, sharp_range)}
relations = pytest.mark.parametrize("neighbours", list(Neighbours))
scores = pytest.mark.parametrize("selector", SCORES)

USERS = [
    *(list(row) for row in itertools.product([0, 1, 3], repeat=ITEMS)),
    *(list(row) for row in sorted(set(itertools.permutations([LARGEST, 0, 0])))),
    *(list(row) for row in sorted(set(itertools.permutations([5 * LARGEST, 0, 0])))),
    *(list(row) for row in sorted(set(itertools.permutations([10, 10, 0])))),
    *(list(row) for row in sorted(set(itertools.permutations([12, 0, 0])))),
    [7, 7, 6],
    [1, 19, 0],
]
"""All small histograms, and some at and far above the largest candidate."""


def plan_of(selector, neighbours, **settings):
    return Plan(
        users=10_000, domain="open", selector=selector, neighbours=neighbours, max_threshold=LARGEST,
        **({"candidates": 10} | settings),
    )  # fmt: skip


def cases(selector, neighbours, count, **settings):
    """Plans with small and large bars, each with a population that has items below, near and above them."""
    generator = np.random.default_rng(7)
    for _ in range(count):
        budget = {"epsilon": generator.choice([1.0, 3.0, 8.0]), "delta": generator.choice([1e-3, 0.05, 0.3])}
        plan = plan_of(selector, neighbours, **budget, **settings)
        bar = plan.open_noises(plan.candidate_steps)[-1].bar
        base = [[0] * ITEMS]
        for item in range(ITEMS):
            size = int(generator.choice([1, 2, 6, LARGEST, 3 * LARGEST]))
            row = [0] * ITEMS
            row[item] = size
            users = generator.choice(
                [0, 1, bar // size + 1, bar // LARGEST + 1, 2 * bar // size + 2, 2 * bar]
            )
            base += [row] * min(int(users), 400)
        yield plan, base


def scores_of(make_histograms, plan, rows):
    request = select_request(plan)
    sent = answer(request, make_histograms(rows), source=SeededSource(0))
    statistic = read_statistic(plan, Total(len(rows), sent.values, sent.keyed))
    return SCORES[plan.selector][0](plan, statistic)


def neighbour_pairs(make_histograms, plan, base):
    """The scores of every pair of neighbours that differ in one of USERS, both in the same units."""
    with_each = [scores_of(make_histograms, plan, [*base, user]) for user in USERS]
    if plan.neighbours is not Neighbours.REPLACE_ONE:
        without = scores_of(make_histograms, plan, base)
        return [(without, one) for one in with_each]
    return list(itertools.combinations(with_each, 2))


def probabilities(plan, error):
    """The logarithms of the chances of the exponential mechanism, from its definition."""
    change = SCORES[plan.selector][1](plan)
    weights = -plan.epsilon_select * (error - error.min()) / (change * (1 << SHARE_BITS))
    return weights - np.logaddexp.reduce(weights)


@relations
@scores
def test_the_change_of_a_score_has_the_range_that_is_charged(make_histograms, selector, neighbours):
    largest = 0.0
    for plan, base in cases(selector, neighbours, 10):
        claimed = SCORES[selector][1](plan)
        for a, b in neighbour_pairs(make_histograms, plan, base):
            moved = int(np.ptp(a - b)) / (1 << SHARE_BITS)
            assert moved <= claimed
            largest = max(largest, moved / claimed)
    if not (selector == "exponential-sharp" and neighbours is Neighbours.REPLACE_ONE):
        assert largest > 0.95


def test_replacing_a_user_can_move_the_sharp_score_by_three_times_the_largest_candidate(make_histograms):
    """The proof gives 4 C_m. Here an item falls below its bar between two candidates, and another off its floor."""
    plan = plan_of("exponential-sharp", "replace-one", candidates=200, epsilon=0.5, delta=1e-12)
    assert plan.candidate_steps.tolist() == list(range(1, LARGEST + 1))
    below, at = plan.open_noises(plan.candidate_steps[-2:])
    falling = below.bar
    floored = 2 * below.bar - math.ceil(below.scale)
    assert falling + LARGEST <= at.bar
    assert floored + LARGEST <= 2 * at.bar - math.ceil(at.scale)
    base = [[1, 0, 0]] * falling + [[0, 1, 0]] * floored
    a, b = (scores_of(make_histograms, plan, [*base, user]) for user in ([LARGEST, 0, 0], [0, LARGEST, 0]))
    moved = int(np.ptp(a - b)) / (1 << SHARE_BITS)
    assert 3 * LARGEST - 1 <= moved <= sharp_range(plan)


@scores
def test_the_selector_draws_with_these_chances(make_histograms, selector):
    plan = plan_of(selector, "zero-out", candidates=5, epsilon=1.0, delta=1e-3, epsilon_select=0.5)
    rows = [[0, 0, 1]] * 30 + [[3, 4, 0]] * 12 + [[LARGEST, 0, 0]] * 3
    error = scores_of(make_histograms, plan, rows)
    request = select_request(plan)
    sent = answer(request, make_histograms(rows), source=SeededSource(0))
    statistic = read_statistic(plan, Total(len(rows), sent.values, sent.keyed))
    draws = 2000
    source = SeededSource(21)
    chosen = [
        selector_for(plan).select(plan, statistic, source=source.fork(i)).threshold.steps
        for i in range(draws)
    ]
    seen = np.array([chosen.count(steps) for steps in plan.candidate_steps.tolist()])
    chances = np.exp(probabilities(plan, error))
    assert stats.chisquare(seen, draws * chances).pvalue > 1e-3
    twice = Plan.from_json(plan.to_json() | {"epsilon_select": 1.0})
    wrong = np.exp(probabilities(twice, error))
    assert stats.chisquare(seen, draws * wrong).pvalue < 1e-9


def test_the_papers_sensitivity_is_five_halves_of_the_largest_candidate():
    """With the usual factor 2 that allows for a range of 5 C_m: safe, and 2.5 times weaker."""
    for neighbours in Neighbours:
        plan = plan_of("exponential-v-paper", neighbours)
        (charge,) = selector_for(plan).charges(plan)
        assert charge.sensitivity == 2.5 * LARGEST
        assert charge.epsilon == plan.epsilon_select


def test_the_ranges_of_the_two_relations():
    added, replaced, hidden = (plan_of("exponential-v", neighbours) for neighbours in Neighbours)
    assert (score_range(hidden), sharp_range(hidden)) == (score_range(added), sharp_range(added))
    assert (score_range(added), score_range(replaced)) == (2 * LARGEST - 1, 2 * LARGEST)
    assert (sharp_range(added), sharp_range(replaced)) == (2 * LARGEST, 4 * LARGEST)
    above = Plan.from_json(added.to_json() | {"min_threshold": 5.0})
    assert score_range(above) == 2 * LARGEST - 5
    (charge,) = selector_for(above).charges(above)
    assert charge.sensitivity == score_range(above) / 2
