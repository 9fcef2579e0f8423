"""A server under masks reads sums into which a participant may have put anything.

The attacks of this page add one chosen number to the sum, so that one honest user more or less makes it wrap around.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedhist import Ledger, Neighbours, Plan, SeededSource
from tests.asking import release_at, select_request
from tests.support.api import (
    COUNTED,
    SELECTORS,
    InvalidPlan,
    Keyed,
    Noise,
    NormTailsMeasurement,
    Replay,
    Round,
    ScoringSelector,
    Selection,
    Tail,
    TailMeasurement,
    Total,
    crafted,
    fitting,
    in_weights,
    read_statistic,
    rule_for,
    run_rounds,
    selector_for,
    signed,
    target_rank,
    target_weight,
    to_total,
)
from tests.support.refusals import refused

SOURCE = SeededSource(11)
MASKED = {"masking": "secagg", "participants": 4, "corrupt_share": 0.0, "dropout_share": 0.0}
RUNS = 40


def masked_plan(**settings) -> Plan:
    usual = {"users": 8, "items": 4, "max_threshold": 64.0, "candidates": 16}
    return Plan(**(usual | MASKED | settings))


def liar(kind: type, amount: int, *places: int):
    """Adds an amount to some places of the sums of one round."""

    def lie(request):
        added = np.zeros(request.measurement.shape.length, dtype=np.int64)
        if request.round is kind:
            added[list(places)] = amount
        return added

    return lie


class Lied(Replay):
    """A cohort whose liars all together add something to the sum of the masked vectors, modulo their width."""

    def __init__(self, users, lie):
        super().__init__(crafted(users, 4), SOURCE)
        self.lie = lie

    def total(self, request):
        exact = super().total(request)
        vector = np.append(exact.users, exact.values + self.lie(request))
        summed = signed(vector, request.measurement.masked_width)
        return to_total(summed, request, participants=request.plan.masks.participants)

    def release(self, plan, number):
        return run_rounds(plan, self, ledger=Ledger(), source=SOURCE.fork(number))


def noisy_sums(release):
    """What is released before any debiasing."""
    return release.histogram if release.item_release is None else release.item_release.clipped


@pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("debias", [None, "poisson"])
def test_one_liar_does_not_read_from_the_release_who_has_an_item(mechanism, masking, debias):
    plan = masked_plan(
        selector="fixed", threshold=1.0, epsilon=0.5, mechanism=mechanism, masking=masking, debias=debias
    )
    request = release_at(plan, plan.at_steps(1 << plan.grid_bits))
    amount = 2 ** (request.measurement.masked_width - 1) - 1
    share_above_zero = []
    for others in ([[]] * 8, [[(3, 1)], *[[]] * 7]):
        cohort = Lied(others, liar(Round.RELEASE, amount, 3))
        shown = [cohort.release(plan, number) for number in range(RUNS)]
        share_above_zero.append(np.mean([noisy_sums(release)[3] > 0 for release in shown]))
    # The noise decides on which side the wrapped value lands: half and half but for one user's e^0.5.
    assert all(0.15 < share < 0.85 for share in share_above_zero)


def scoring_plans():
    domains = [
        {"mechanism": "gaussian", "items": 3},
        {"mechanism": "laplace", "items": 3},
        {"mechanism": "auto", "items": 3},
        {"mechanism": "laplace", "items": 3, "debias": "poisson"},
    ]
    usual = {"users": 8, "candidates": 3, "max_threshold": 8.0, "epsilon_select": 0.7}
    for name, selector in SELECTORS.with_installed().items():
        if not (isinstance(selector, ScoringSelector) and selector.private):
            continue
        for domain in domains:
            for neighbours in COUNTED:
                plan = Plan(**usual, **domain, **MASKED, neighbours=neighbours, selector=name)
                if name in fitting(plan):
                    yield pytest.param(plan, id=f"{name}-{plan.mechanism}-{plan.debias}-{neighbours.value}")


small = st.integers(-200, 200)
residues = (
    small
    | small.map(lambda count: count << 16)
    | st.integers(-(2**63), 2**63 - 1)
    | st.builds(
        lambda edge, off: edge + off,
        st.sampled_from([2**31, 2**46, -(2**46), 2**62, -(2**62)]),
        st.integers(-12, 12),
    )
)


def edges(request) -> list[int]:
    """The sums that liars aim at: near 0, half of the circle or a selector's target, give or take a user."""
    plan, measurement = request.plan.one_way, request.measurement
    half, rank = 1 << (measurement.masked_width - 1), target_rank(plan)
    offsets = [0, 1]
    if isinstance(measurement, TailMeasurement | NormTailsMeasurement):
        offsets += [plan.tail_cap, plan.tail_cap // 2]
    aims = [0, half, rank, rank - half, in_weights(target_weight(plan))]
    near = {aim + sign * offset for aim in aims for offset in offsets for sign in (1, -1)}
    return sorted((sent + 2**63) % 2**64 - 2**63 for sent in near)


users = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), max_size=3)


@pytest.mark.parametrize("plan", list(scoring_plans()))
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_choice_is_private_for_whatever_the_others_send(plan, data):
    """For any residues of the others: between neighbours the changes of two candidates' scores differ by so little that
    no chance changes by more than e^eps'."""
    request, selector = select_request(plan), selector_for(plan)
    assert isinstance(selector, ScoringSelector)
    length = request.measurement.shape.length
    sent = residues if data.draw(st.booleans()) else st.sampled_from(edges(request))
    others = np.array(data.draw(st.lists(sent, min_size=length, max_size=length)))
    if data.draw(st.booleans()):
        # Running sums are what is at the edge.
        others = others - np.append(others[1:], 0)
    one = data.draw(users)
    other = data.draw(users) if plan.neighbours is Neighbours.REPLACE_ONE else []
    choices = []
    for user in (one, other):
        whole = crafted([list({item: (item, count) for item, count in user}.values())], plan.items)
        sent = request.measurement.of(whole.histograms, source=SOURCE).values
        width = request.measurement.masked_width
        total = Total(plan.users, signed(others + sent, width), width=width)
        read = read_statistic(plan, total)
        choices.append(selector.item_choices(plan, read) if plan.debias else [selector.choice(plan, read)])
    # Where every item has a choice of its own, the user pays for all of them.
    spent = 0.0
    for first, second in zip(*choices, strict=True):
        changes = [x - y for x, y in zip(first.scores.tolist(), second.scores.tolist(), strict=True)]
        spent += first.epsilon * (max(changes) - min(changes)) / (2 * first.sensitivity)
    assert spent <= plan.epsilon_select * (1 + 1e-9)


@pytest.mark.parametrize("selector", ["exponential-v", "exponential-sharp"])
@pytest.mark.parametrize("epsilon", np.geomspace(1e-6, 1e-3, 25).tolist())
def test_bars_beyond_all_counts_do_not_wrap_around_in_a_score(selector, epsilon):
    """With honest users of any number: below such a bar every count is lost, so that one more costs one more."""
    plan = Plan(
        users=2**15, domain="open", release="truncated-laplace", selector=selector, epsilon=epsilon,
        candidates=2, max_threshold=2.0**30,
    )  # fmt: skip
    masses, scores = [k << 37 for k in range(2**8)], []
    for mass in masses:
        of_one_key = Keyed(np.array([0]), np.array([[mass, 0]]))
        total = Total(plan.users, np.zeros(6, dtype=np.int64), of_one_key)
        scores.append(int(selector_for(plan).choice(plan, read_statistic(plan, total)).scores[1]))
    assert all(abs(one - other) <= 1 << 37 + 16 for one, other in itertools.pairwise(scores))


@pytest.mark.parametrize(("selector", "column"), [("dpsgd", "weights"), ("m-quantile", "counts")])
@given(shift=residues, seed=st.integers(0, 2**32))
@example(shift=-(2**63), seed=1)
@example(shift=2**63 - 1, seed=2)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noisy_answers_depend_on_sum_plus_noise_alone(selector, column, shift, seed, monkeypatch):
    """What one moves from the sum to the noise changes nothing: so no exact sum was read on the way."""
    plan = masked_plan(selector=selector, users=500)
    width = select_request(plan).measurement.masked_width
    draw = Noise.draw
    tail = np.sort(np.random.default_rng(seed % 1000).integers(0, 500 << 10, 16))[::-1].copy()

    def choose(sums, less):
        monkeypatch.setattr(
            Noise, "draw", lambda noise, size, *, source: draw(noise, size, source=source) + less
        )
        empty = np.zeros(16, dtype=np.int64)
        statistic = Tail(**{"counts": empty, "weights": empty, column: sums}, users=500, width=width)
        chosen = selector_for(plan).select(plan, statistic, source=SeededSource(seed))
        return chosen.threshold.steps

    # m-quantile subtracts its noise.
    sign = -1 if selector == "m-quantile" else 1
    less = np.array(-sign * shift % 2**64, dtype=np.uint64).view(np.int64)
    assert choose(tail, 0) == choose(tail + shift, less)


@pytest.mark.parametrize("selector", ["weighted-quantile", "dpsgd", "m-quantile"])
def test_one_liar_does_not_decide_the_threshold(selector):
    plan = masked_plan(selector=selector, users=8, epsilon_select=0.5, delta_select=0.01)
    amount = 2 ** (select_request(plan).measurement.masked_width - 1) - 1
    lie = liar(Round.SELECT, amount, len(plan.candidate_steps), -1)
    highest = []
    for others in ([[]] * 8, [[(3, 500)], *[[]] * 7]):
        cohort = Lied(others, lie)
        chosen = [cohort.release(plan, number).threshold for number in range(RUNS)]
        highest.append(np.mean(np.array(chosen) > 8.0))
    assert abs(highest[0] - highest[1]) < 0.5


def test_output_perturbation_needs_noise_from_devices_under_masks():
    with refused(InvalidPlan, "not-under-masks"):
        selector_for(masked_plan(selector="output-perturbation"))
    settings_of_shares = {"participants": 8, "noise_from": "devices"}
    assert selector_for(masked_plan(selector="output-perturbation", **settings_of_shares)).private


@pytest.mark.parametrize("debias", [None, "poisson"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_masked_sum_has_room_for_the_noise_of_the_server(mechanism, debias):
    plan = masked_plan(mechanism=mechanism, debias=debias)
    steps = np.full(plan.items, 9000) if debias else None
    request = release_at(plan, plan.at_steps(9000), steps)
    drawn = []
    for number in range(20):
        total = Total(plan.users, np.zeros(plan.items, dtype=np.int64))
        selection = Selection(plan.at_steps(9000), steps)
        reading = request.measurement.read(total)
        source = SOURCE.fork(number)
        release = rule_for(plan).build(plan, selection, reading, ledger=Ledger(), source=source)
        drawn.append(np.abs(np.ldexp(noisy_sums(release), plan.grid_bits)).max())
    assert 0.05 * request.measurement.shape.noise < max(drawn) < request.measurement.shape.noise
    assert math.log2(request.measurement.shape.noise) < 62
