"""A training of Flower's and histograms add up in one ledger, whichever came first."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyAccountant,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)

from fedhist import BudgetExceeded, BudgetFile, Cost, InvalidInput, Limit, Plan, Spending
from fedhist.server import charged
from tests.support.api import (
    BoundedRangeLoss,
    GaussianLoss,
    InvalidPlan,
    LedgerAccountant,
    SampledGaussianLoss,
    accounted,
    epsilon_at,
    gaussian_epsilon,
    planned_charges,
    tight_total,
    training_charge,
)

CLIENTS, DELTA = 100, 1e-6
PLAN = Plan(users=CLIENTS, items=4, epsilon=1.0, delta=1e-6)
CONFIG = PrivacyConfig(DELTA, CLIENTS, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)
POISSON = PrivacyConfig(DELTA, CLIENTS, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON)
FIXED_SIZE = PrivacyConfig(
    DELTA, CLIENTS, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT
)
EVENT = GaussianPrivacyEvent(noise_multiplier=2.0, sample_size=10, population_size=CLIENTS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "people.ledger"


def opened(file: Path, config: PrivacyConfig = CONFIG, **changes: Any) -> Any:
    settings: dict[str, Any] = {"rounds": 10, "users_per_client": "one", "label": "model"} | changes
    return accounted(file, config, settings.pop("event", EVENT), **settings)


def run_a_histogram(file: Path, plan: Plan = PLAN) -> None:
    with charged(file, plan, label="visits") as journal:
        assert journal is not None
        for charge in planned_charges(plan):
            journal(charge)


def with_limit(config: PrivacyConfig, epsilon: float) -> PrivacyConfig:
    return PrivacyConfig(
        config.target_delta,
        config.population_size,
        config.neighboring_relation,
        config.sampling_method,
        epsilon,
    )


class TestTrainingAlone:
    def test_ten_gaussian_rounds_cost_as_one_of_less_noise(self, file: Path) -> None:
        with opened(file) as accountant:
            assert accountant.get_epsilon(DELTA) == 0
            for number in range(10):
                accountant.compose(EVENT)
                assert accountant.num_releases == number + 1
            spent = accountant.get_privacy_spent()
        assert spent.epsilon == pytest.approx(gaussian_epsilon(2 / math.sqrt(10), DELTA), rel=1e-9)
        assert (spent.delta, spent.num_releases) == (DELTA, 10)
        (run,) = BudgetFile.open(file, create=False).runs()
        assert (run.status, run.label) == ("released", "model")
        assert (run.charged.epsilon, run.charged.delta) == (pytest.approx(spent.epsilon), DELTA)

    @pytest.mark.parametrize("config", [CONFIG, POISSON, FIXED_SIZE], ids=lambda c: c.sampling_method.value)
    def test_flower_s_own_accountant_says_a_little_more(self, file: Path, config: PrivacyConfig) -> None:
        theirs: PrivacyAccountant = RdpAccountant(config)
        theirs.compose(EVENT, 10)
        with opened(file, config) as accountant:
            accountant.compose(EVENT, 10)
            ours = accountant.get_epsilon(DELTA)
            assert 0.4 * theirs.get_epsilon(DELTA) < ours <= theirs.get_epsilon(DELTA)
            assert accountant.get_delta(ours) == pytest.approx(DELTA, rel=0.02)

    def test_the_whole_training_counts_from_its_first_release_on(self, file: Path) -> None:
        with opened(file) as accountant:
            accountant.compose(EVENT)
            first = accountant.get_epsilon(DELTA)
            accountant.compose(EVENT, 9)
            assert accountant.get_epsilon(DELTA) == first

    def test_a_training_that_released_nothing_spent_nothing(self, file: Path) -> None:
        with opened(file):
            assert BudgetFile.open(file, create=False).reserved().epsilon > 0
        budget = BudgetFile.open(file, create=False)
        assert budget.spent() == budget.reserved() == Spending()

    def test_a_training_that_fails_has_spent_what_it_charged(self, file: Path) -> None:
        with pytest.raises(RuntimeError), opened(file) as accountant:
            accountant.compose(EVENT)
            raise RuntimeError
        (run,) = BudgetFile.open(file, create=False).runs()
        assert (run.status, run.reason, len(run.charges)) == ("failed", "RuntimeError", 1)

    def test_a_charge_is_on_disk_before_a_release_may_go_out(self, file: Path) -> None:
        with opened(file) as accountant:
            accountant.compose(EVENT)
            (run,) = BudgetFile.open(file, create=False).runs()
            assert (run.status, len(run.charges)) == ("open", 1)

    def test_a_closed_training_releases_nothing(self, file: Path) -> None:
        with opened(file) as accountant:
            BudgetFile.open(file, create=False).close(1)
            with pytest.raises(BudgetExceeded, match="closed"):
                accountant.compose(EVENT)
            assert accountant.num_releases == 0


class TestUnits:
    def test_a_user_among_many_in_a_client_moves_twice_the_norm(self) -> None:
        one, many = (
            training_charge(CONFIG, EVENT, rounds=4, users_per_client=number) for number in ("one", "many")
        )
        assert isinstance(one.loss, GaussianLoss)
        assert isinstance(many.loss, GaussianLoss)
        assert (one.loss.multiplier, many.loss.multiplier) == (pytest.approx(1.0), pytest.approx(0.5))
        assert (one.sensitivity, many.sensitivity) == (1, 2)
        assert many.epsilon > 2 * one.epsilon

    def test_a_sampled_client_of_many_users_is_one_that_is_replaced(self) -> None:
        many = training_charge(POISSON, EVENT, rounds=4, users_per_client="many")
        assert many.loss == SampledGaussianLoss(1.0, 0.1, 4, "replace-one")
        one = training_charge(POISSON, EVENT, rounds=4, users_per_client="one")
        assert one.loss == SampledGaussianLoss(2.0, 0.1, 4, "zero-out")
        assert many.epsilon > one.epsilon

    def test_a_replaced_user_is_a_replaced_client(self) -> None:
        one, many = (
            training_charge(FIXED_SIZE, EVENT, rounds=4, users_per_client=number)
            for number in ("one", "many")
        )
        assert one.loss == many.loss == SampledGaussianLoss(2.0, 0.1, 4, "replace-one")
        assert one.neighbours == "replace-one"

    def test_a_sample_of_all_clients_is_none(self) -> None:
        everybody = GaussianPrivacyEvent(2.0, CLIENTS, CLIENTS)
        charge = training_charge(POISSON, everybody, rounds=1, users_per_client="one")
        assert isinstance(charge.loss, GaussianLoss)
        assert charge.loss.multiplier == pytest.approx(2.0)

    def test_somebody_has_to_say_which_it_is(self) -> None:
        with pytest.raises(InvalidInput, match="'one' or 'many'"):
            training_charge(CONFIG, EVENT, rounds=4, users_per_client="two")  # type: ignore[arg-type]  # the mistake


class TestOneAccount:
    def test_both_kinds_add_up_tightly(self, file: Path) -> None:
        run_a_histogram(file)
        with opened(file) as accountant:
            accountant.compose(EVENT, 10)
            total = accountant.get_epsilon(2 * DELTA)
        budget = BudgetFile.open(file, create=False)
        training = training_charge(CONFIG, EVENT, rounds=10, users_per_client="one")
        assert total == tight_total([*planned_charges(PLAN), training]).epsilon
        assert budget.tight() == Cost(total, 2e-6)
        assert budget.spent().epsilon == pytest.approx(1.1 + training.epsilon)

    def test_a_limit_refuses_a_training_after_histograms(self, file: Path) -> None:
        cost = training_charge(CONFIG, EVENT, rounds=10, users_per_client="one").epsilon
        BudgetFile.open(file, create=True).set_limit(Limit(cost, 1e-6))
        run_a_histogram(file)
        with pytest.raises(BudgetExceeded, match="limit of"), opened(file):
            raise AssertionError("it began")
        assert len(BudgetFile.open(file, create=False).runs()) == 1
        with opened(file, rounds=5) as accountant:
            accountant.compose(EVENT, 5)

    def test_a_limit_refuses_a_histogram_while_a_training_goes_on(self, file: Path) -> None:
        cost = training_charge(CONFIG, EVENT, rounds=10, users_per_client="one").epsilon
        BudgetFile.open(file, create=True).set_limit(Limit(cost, 1e-6))
        with opened(file), pytest.raises(BudgetExceeded):
            run_a_histogram(file)
        run_a_histogram(file)

    def test_another_relation_is_refused(self, file: Path) -> None:
        run_a_histogram(file)
        with pytest.raises(InvalidPlan, match="one relation"), opened(file, FIXED_SIZE):
            raise AssertionError("it began")

    def test_what_other_open_runs_hold_counts_in_full(self, file: Path) -> None:
        with opened(file) as accountant, opened(file, rounds=1, label="other") as other:
            held = BudgetFile.open(file, create=False).runs()[1].reserved
            accountant.compose(EVENT, 10)
            alone = gaussian_epsilon(2 / math.sqrt(10), 1e-5 - held.delta)
            assert accountant.get_epsilon(1e-5) == pytest.approx(alone + held.epsilon, rel=1e-9)
            assert accountant.get_epsilon(held.delta) == math.inf
            assert accountant.get_delta(0.0) == 1
            other.compose(EVENT)
            together = gaussian_epsilon(2 / math.sqrt(11), 1e-5)
            assert accountant.get_epsilon(1e-5) == pytest.approx(together, rel=1e-6)


class TestLimits:
    def test_more_rounds_than_were_reserved_are_refused_beforehand(self, file: Path) -> None:
        with opened(file, rounds=2) as accountant:
            assert not accountant.would_exceed(EVENT, count=2)
            assert accountant.would_exceed(EVENT, count=3)
            accountant.compose(EVENT, 2)
            assert accountant.would_exceed(EVENT)
            with pytest.raises(BudgetExceeded, match="charged for 2 releases"):
                accountant.compose(EVENT)
            assert accountant.num_releases == 2

    def test_max_epsilon_is_of_the_whole_file(self, file: Path) -> None:
        alone = training_charge(CONFIG, EVENT, rounds=10, users_per_client="one").epsilon
        with opened(file, with_limit(CONFIG, alone * 1.001)) as accountant:
            assert not accountant.would_exceed(EVENT)
            run_a_histogram(file)
            assert accountant.would_exceed(EVENT)
            assert not accountant.would_exceed(EVENT, max_epsilon=2 * alone)
        with pytest.raises(BudgetExceeded, match="max_epsilon"), opened(file, with_limit(CONFIG, alone)):
            raise AssertionError("it began")

    def test_strategies_ask_where_the_file_has_a_limit(self, file: Path) -> None:
        with opened(file) as accountant:
            assert accountant.config.max_epsilon is None
            BudgetFile.open(file, create=False).set_limit(Limit(50, 1e-4))
            assert accountant.config.max_epsilon == 50

    @pytest.mark.parametrize(
        "event",
        [GaussianPrivacyEvent(1.9, 10, CLIENTS), GaussianPrivacyEvent(2.0, 10, CLIENTS + 1)],
    )
    def test_a_release_of_less_noise_is_refused(self, file: Path, event: GaussianPrivacyEvent) -> None:
        with opened(file) as accountant:
            for call in (accountant.compose, accountant.would_exceed):
                with pytest.raises(InvalidInput):
                    call(event)
            assert accountant.get_epsilon(DELTA) == 0

    def test_a_larger_sample_is_refused_where_samples_hide(self, file: Path) -> None:
        larger = GaussianPrivacyEvent(2.0, 11, CLIENTS)
        with opened(file, POISSON) as accountant, pytest.raises(InvalidInput):
            accountant.compose(larger)
        with opened(file) as accountant:
            accountant.compose(larger)

    @pytest.mark.parametrize("count", [0, -1, True, 1.5])
    def test_a_count_is_a_whole_number(self, file: Path, count: Any) -> None:
        with opened(file) as accountant, pytest.raises(ValueError, match="count"):
            accountant.compose(EVENT, count)

    def test_questions_have_ranges(self, file: Path) -> None:
        with opened(file) as accountant:
            for delta in (0, 1, math.nan):
                with pytest.raises(ValueError, match="between 0 and 1"):
                    accountant.get_epsilon(delta)
            for epsilon in (-1, math.inf):
                with pytest.raises(ValueError, match="0 or more"):
                    accountant.get_delta(epsilon)
            with pytest.raises(ValueError, match="above 0"):
                accountant.would_exceed(EVENT, max_epsilon=0)
        with pytest.raises(InvalidInput, match="rounds"), opened(file, rounds=0):
            raise AssertionError("it began")


class TestStates:
    def interrupted(self, file: Path) -> dict[str, object]:
        with pytest.raises(KeyboardInterrupt), opened(file) as accountant:
            accountant.compose(EVENT, 3)
            state: dict[str, object] = json.loads(json.dumps(accountant.state_dict()))
            raise KeyboardInterrupt
        return state

    def test_a_training_goes_on_after_another(self, file: Path) -> None:
        state = self.interrupted(file)
        with opened(file, rounds=7) as accountant:
            accountant.load_state_dict(state)
            assert accountant.num_releases == 3
            accountant.compose(EVENT, 7)
            assert accountant.num_releases == accountant.state_dict()["num_releases"] == 10
            # The ten rounds that were charged first, and seven more.
            assert accountant.get_epsilon(DELTA) == pytest.approx(
                gaussian_epsilon(2 / math.sqrt(17), DELTA), rel=1e-6
            )

    @pytest.mark.parametrize(
        "damage",
        [
            {"schema_version": 2},
            {"backend": "rdp"},
            {"num_releases": -1},
            {"num_releases": "3"},
            {"num_releases": True},
            {"run": 7},
            {"run": "1"},
            {"plan_digest": "0"},
            {"config": {}},
        ],
        ids=str,
    )
    def test_a_damaged_one_is_refused(self, file: Path, damage: dict[str, object]) -> None:
        state = self.interrupted(file)
        with opened(file, rounds=7) as accountant:
            with pytest.raises(InvalidInput):
                accountant.load_state_dict(state | damage)
            for name in state:
                with pytest.raises(InvalidInput):
                    accountant.load_state_dict({key: state[key] for key in state if key != name})
            assert accountant.num_releases == 0

    def test_a_state_comes_before_the_first_release(self, file: Path) -> None:
        state = self.interrupted(file)
        with opened(file, rounds=7) as accountant:
            accountant.compose(EVENT)
            with pytest.raises(InvalidInput, match="before its first"):
                accountant.load_state_dict(state)

    def test_another_file_does_not_know_it(self, file: Path, tmp_path: Path) -> None:
        state = self.interrupted(file)
        with (
            opened(tmp_path / "other.ledger") as accountant,
            pytest.raises(InvalidInput, match="does not hold"),
        ):
            accountant.load_state_dict(state)


def test_a_choice_after_the_training_is_not_taken_for_the_first_entry_because_its_run_began_earlier(
    file: Path,
) -> None:
    """What the training showed may decide how a later choice leaks; only the very first entry is spared that."""
    choice, *_ = planned_charges(PLAN)
    assert isinstance(choice.loss, BoundedRangeLoss)
    choice = replace(choice, epsilon=2.0)
    budget = BudgetFile.open(file, create=True)
    early = budget.begin("0" * 64, {}, Spending.of([choice]), "visits", datetime.now(UTC))
    with opened(file) as accountant:
        accountant.compose(EVENT, 10)
        early.record(choice)
        early.released()
        _, training = (run.charges[0] for run in budget.runs())
        in_order = epsilon_at([training, choice], DELTA)
        assert in_order > 1.005 * epsilon_at([choice, training], DELTA)
        assert accountant.get_epsilon(DELTA) == in_order
        assert accountant.get_delta(in_order) == pytest.approx(DELTA, rel=0.02)
    assert budget.charges() == [training, choice]


def test_it_is_one_of_flower_s_accountants(file: Path) -> None:
    with opened(file) as accountant:
        protocol: PrivacyAccountant = accountant
        assert isinstance(protocol, LedgerAccountant)
        for name in vars(PrivacyAccountant):
            assert name.startswith("_") or hasattr(accountant, name)
