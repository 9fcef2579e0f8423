"""Whole runs whose noise comes from the participants, over a transport that sums as masking will."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from fedhist import (
    Charge,
    HeavyTailedPopulation,
    Histograms,
    Ledger,
    Plan,
    RoundFailed,
    SeededSource,
    run_rounds,
)
from tests.asking import select_request
from tests.builders import Cohort, Refused, refusing
from tests.support.api import (
    Asking,
    GaussianLoss,
    NoisyTail,
    PureLoss,
    Released,
    Request,
    Round,
    Threshold,
    Total,
    UnexpectedMessage,
    add_noise_share,
    answer,
    gaussian_epsilon,
    histograms_of,
    materialise,
    noise_multiplier,
    planned_charges,
    read_statistic,
    rule_for,
    selector_for,
    sum_clipped,
)
from tests.support.refusals import refused

SOURCE = SeededSource(5)
CASES = [
    ("gaussian", name) for name in ("weighted-quantile", "dpsgd", "output-perturbation", "m-quantile")
] + [("laplace", name) for name in ("quantile", "weighted-quantile")]
cases = pytest.mark.parametrize(("mechanism", "selector"), CASES)


@dataclass
class MaskedCohort:
    """Participants of about equal size; each sums its users, adds its share, and only the total is seen."""

    histograms: Histograms
    participants: int
    source: SeededSource = SOURCE
    simulated: bool = False
    lost: dict[Round, int] = field(default_factory=dict)
    asked: list[Round] = field(default_factory=list)

    def total(self, request: Request) -> Total:
        self.asked.append(request.round)
        kept = self.participants - self.lost.get(request.round, 0)
        edges = np.linspace(0, self.histograms.users, self.participants + 1).astype(int)
        values, users = np.zeros(request.measurement.shape.length, dtype=np.int64), 0
        for one in range(kept):
            mine = self.histograms.rows(int(edges[one]), int(edges[one + 1]))
            sent = answer(request, mine, source=self.source)
            values += add_noise_share(request, sent.values, source=self.source.fork("participant", one))
            users += mine.users
        return Total(users=users, values=values, shares=kept)


HISTOGRAMS = histograms_of([[i % 5, (i * 7) % 11, 1] for i in range(200)])


@pytest.fixture
def cohort():
    return MaskedCohort(HISTOGRAMS, participants=20)


def plan_of(**settings):
    usual = {"users": 200, "items": 3, "masking": "secagg", "participants": 20, "noise_from": "devices"}
    return Plan(**(usual | settings))


@cases
def test_both_rounds_run_and_cost_what_was_planned(cohort, mechanism, selector):
    plan, ledger, states = plan_of(mechanism=mechanism, selector=selector), Ledger(), []
    release = run_rounds(plan, cohort, ledger=ledger, source=SOURCE, on_state=states.append)
    assert [type(s) for s in states[1:]] == [Asking, Asking, Released]
    assert [c.cost for c in ledger.entries] == [c.cost for c in planned_charges(plan)]
    assert [c.round for c in ledger.entries] == ["select", "release"]
    assert release.histogram.shape == (3,)
    assert ledger.private and release.charges == ledger.entries
    for charge in ledger.entries:
        assert charge.name == f"discrete-{mechanism}-shares"
        assert charge.parameters["noise_shares"] == plan.noise_shares == 17
        assert isinstance(charge.loss, GaussianLoss if mechanism == "gaussian" else PureLoss)
        assert Charge.from_json(charge.to_json()) == charge
    select, last = ledger.entries
    assert (select.epsilon, last.epsilon) == (plan.epsilon_select, plan.epsilon)
    assert (select.delta, last.delta) == ((1e-6, 1e-6) if mechanism == "gaussian" else (0, 0))
    assert ledger.tight().epsilon <= 1.1


@pytest.mark.parametrize(("refused", "asked"), [("select", []), ("release", [Round.SELECT])])
def test_nothing_is_asked_before_it_is_charged(cohort, refused, asked):
    """The devices' answers are noised results: once they are asked for, the budget is spent."""

    with pytest.raises(Refused):
        run_rounds(plan_of(), cohort, ledger=refusing(refused), source=SOURCE)
    assert cohort.asked == asked


@pytest.mark.parametrize(
    ("round_", "charged"), [(Round.SELECT, ["select"]), (Round.RELEASE, ["select", "release"])]
)
def test_too_few_shares_release_nothing_and_the_budget_is_spent(cohort, round_, charged):
    cohort.lost = {round_: 3}
    ledger = Ledger()
    with refused(RoundFailed, "too-few-noise-shares", "17", "18"):
        run_rounds(plan_of(), cohort, ledger=ledger, source=SOURCE)
    assert [c.round for c in ledger.entries] == charged


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_standard_error_is_that_of_the_shares_in_the_sum(mechanism):
    """More survivors than n_min bring more noise than was charged for; the release says how much."""
    items = 3000
    rows = np.zeros((40, items), dtype=np.int64)
    rows[:, 0] = 1
    plan = plan_of(users=40, items=items, mechanism=mechanism, selector="fixed", threshold=5.0)
    errors = {}
    for lost in (0, 2):
        cohort = MaskedCohort(histograms_of(rows), participants=20, lost={Round.RELEASE: lost})
        release = run_rounds(plan, cohort, ledger=Ledger(), source=SOURCE)
        errors[lost] = release.standard_error
        assert release.histogram[1:].std() == pytest.approx(release.standard_error, rel=0.1)
        assert release.histogram[1:].mean() == pytest.approx(0, abs=5 * release.standard_error / items**0.5)
    assert errors[0] / errors[2] == pytest.approx((20 / 18) ** 0.5)
    central = Plan(users=40, items=items, mechanism=mechanism, selector="fixed", threshold=5.0)
    at_server = run_rounds(central, Cohort(histograms_of(rows)), ledger=Ledger(), source=SOURCE)
    assert errors[0] / at_server.standard_error == pytest.approx((20 / 17) ** 0.5, rel=1e-3)


def test_without_corrupt_participants_the_gaussian_costs_less_and_laplace_the_same():
    gaussian, laplace = (planned_charges(plan_of(mechanism=m)) for m in ("gaussian", "laplace"))
    for charge, epsilon in zip(gaussian, (0.1, 1.0), strict=True):
        wider = noise_multiplier(epsilon, 1e-6) * (18 / 17) ** 0.5
        claimed = charge.parameters["epsilon_without_corrupt"]
        assert claimed < epsilon
        assert claimed == pytest.approx(gaussian_epsilon(wider, 1e-6))
        # Rounded up: noise for the claimed epsilon is no more than what is there.
        assert noise_multiplier(claimed, 1e-6) <= wider * (1 + 1e-12)
        assert charge.parameters["slack"] > 0
    assert [c.parameters["epsilon_without_corrupt"] for c in laplace] == [0.1, 1.0]
    honest = planned_charges(plan_of(corrupt_share=0.0))
    for charge in honest:
        assert charge.parameters["epsilon_without_corrupt"] == pytest.approx(charge.epsilon, rel=1e-6)


def noisy_tail(plan, histograms, seed):
    request = select_request(plan)
    values = answer(request, histograms, source=SOURCE).values
    for one in range(plan.participants):
        values = add_noise_share(request, values, source=SeededSource(seed).fork(one))
    return request.measurement.read(Total(plan.users, values, shares=plan.participants))


def choose(plan, histograms, seed=0):
    tail = noisy_tail(plan, histograms, seed)
    return selector_for(plan).select(plan, tail, source=SOURCE).threshold


def exact_tail(plan, histograms):
    values = answer(select_request(plan), histograms, source=SOURCE).values
    return read_statistic(plan, Total(histograms.users, values))


def test_a_selector_of_noisy_tails_refuses_an_exact_one():
    plan = plan_of()
    with pytest.raises(UnexpectedMessage):
        selector_for(plan).select(plan, exact_tail(Plan(users=200, items=3), HISTOGRAMS), source=SOURCE)
    assert isinstance(noisy_tail(plan, HISTOGRAMS, 0), NoisyTail)


@pytest.mark.parametrize(("mechanism", "excess"), [("gaussian", 0.02), ("laplace", 0.01)])
def test_choosing_from_a_noisy_tail_loses_little_at_the_same_budget(mechanism, excess):
    """Expected error at the chosen threshold, clipping and noise together, against selection at the server."""
    shard = materialise(HeavyTailedPopulation(users=20_000, items=1000, seed=3)).histograms
    settings = {
        "users": 20_000, "items": 1000, "mechanism": mechanism, "sparsity": 100, "epsilon_select": 0.2,
    }  # fmt: skip
    noisy, central = plan_of(**settings), Plan(**settings)
    exact = exact_tail(central, shard)
    mass = float(shard.counts.sum())

    def error(threshold: Threshold) -> float:
        kept = np.ldexp(sum_clipped(shard, threshold, norm=noisy.norm, source=SOURCE).sum(), -threshold.bits)
        return (mass - kept + noisy.noise_price * threshold.value) / mass

    devices = np.mean([error(choose(noisy, shard, seed)) for seed in range(8)])
    server = np.mean(
        [
            error(selector_for(central).select(central, exact, source=SeededSource(seed)).threshold)
            for seed in range(8)
        ]
    )
    assert devices < server * (1 + excess)
    assert devices < 0.9 * error(noisy.at_steps(noisy.step_range[1])), "the choice must matter"


def test_what_a_named_threshold_costs_is_known_at_that_threshold() -> None:
    """At the smallest threshold of the range the shares would be too narrow; at the plan's own they are not."""
    plan = plan_of(
        users=200_000, items=10, selector="fixed", threshold=1000, epsilon=10.0, participants=100_000
    )
    (planned,) = planned_charges(plan)
    (charged,) = rule_for(plan).charges(plan, plan.at_steps(1000 << plan.grid_bits))
    assert (planned.epsilon, planned.delta) == (charged.epsilon, charged.delta)
