from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import Cost, Plan
from fedhist.client import Policy
from tests.asking import first_request, release_at
from tests.support.api import (
    Bound,
    DecodeError,
    Envelope,
    InvalidPlan,
    Refused,
    Request,
    Round,
    Settled,
    Threshold,
    admit,
    answered,
    charge,
    check,
    epsilon_at,
    planned_charges,
    round_cost,
    select_request,
)
from tests.support.api import PolicyMemory as Memory
from tests.support.api import begin_policy as begin
from tests.support.refusals import refused

PLAN = Plan(users=100, items=5, epsilon=1.0, epsilon_select=0.25, delta=1e-7, delta_select=1e-8)
FOUND = Plan(users=100, domain="open", epsilon=1.0, epsilon_select=0.25, delta=1e-7, delta_select=1e-8)


def select(run: str = "one", plan: Plan = PLAN) -> Envelope:
    return Envelope(run=run, request=select_request(plan))


def release(run: str = "one", plan: Plan = PLAN, above: int = 0) -> Envelope:
    steps = plan.step_range[0] + above
    return Envelope(run=run, request=release_at(plan, Threshold(steps=steps, bits=plan.grid_bits)))


def of_made_up_items(run: str, round_: Round, items: tuple[str, ...] = ("mine",)) -> Envelope:
    """What a server may ask of a plan that discovers, whether or not it discovered anything."""
    if round_ is Round.DISCOVER:
        return Envelope(run, Request(FOUND, "key-weights"))
    settled = Settled(keys=items, share=FOUND.discovery.shares[0])
    if round_ is Round.SELECT:
        return Envelope(run, select_request(FOUND, settled))
    threshold = settled.plan_for(FOUND).at_steps(1)
    return Envelope(run, Request(FOUND, "clipped-sum", Bound(threshold), settled))


def refusal(policy: Policy, memory: Memory, envelope: Envelope) -> str:
    with pytest.raises(Refused) as caught:
        admit(policy, memory, envelope)
    return caught.value.reason


class TestDiscovery:
    """A discovery pays for the release that follows, and for no other one."""

    def test_a_whole_run_costs_what_its_plan_says(self) -> None:
        policy, memory = Policy(max_epsilon=1.25, max_delta=1.1e-7), Memory()
        for round_ in Round:
            memory = admit(policy, memory, of_made_up_items("one", round_))
        assert memory.spent.epsilon == 1.25

    def test_releases_without_a_discovery_are_not_free(self) -> None:
        """A server that asks for releases of made-up items alone would never meet the device's limit."""
        policy = Policy(max_epsilon=2.0)
        memory = admit(policy, Memory(), of_made_up_items("one", Round.RELEASE))
        assert memory.spent.cost == Cost(1.0, 1e-7)
        memory = admit(policy, memory, of_made_up_items("two", Round.RELEASE, ("other",)))
        assert refusal(policy, memory, of_made_up_items("three", Round.RELEASE)) == "over-budget"

    def test_a_choice_is_refused_where_the_release_after_it_would_not_fit(self) -> None:
        asked = of_made_up_items("one", Round.SELECT)
        assert refusal(Policy(max_epsilon=1.24), Memory(), asked) == "over-budget"

    @pytest.mark.parametrize("policy", [Policy(max_epsilon=1.24), Policy(max_epsilon=9.0, max_delta=1.09e-7)])
    def test_a_discovery_is_refused_where_the_choice_after_it_would_not_fit(self, policy: Policy) -> None:
        assert refusal(policy, Memory(), of_made_up_items("one", Round.DISCOVER)) == "over-budget"

    def test_a_repeated_discovery_is_booked_once(self) -> None:
        asked = of_made_up_items("one", Round.DISCOVER)
        memory = admit(Policy(), Memory(), asked)
        assert admit(Policy(), memory, asked) == memory
        assert memory.spent.cost == Cost(1.0, 1e-7)

    def test_a_device_that_demands_noise_from_devices_answers_no_discovery(self) -> None:
        """The table must come out exactly: the server adds its noise."""
        masked = {"users": 100, "masking": "secagg", "participants": 9, "noise_from": "devices"}
        demanding = Policy(noise_from_devices=True)
        admit(demanding, Memory(), select(plan=Plan(items=5, **masked)))
        asked = Envelope("one", first_request(Plan(domain="open", **masked)))
        assert refusal(demanding, Memory(), asked) == "server-noise"
        admit(Policy(), Memory(), asked)

    def test_another_list_of_items_is_a_second_request(self) -> None:
        memory = admit(Policy(), Memory(), of_made_up_items("one", Round.RELEASE))
        again = of_made_up_items("one", Round.RELEASE, ("other",))
        assert refusal(Policy(), memory, again) == "second-request"


class TestLimits:
    def test_a_whole_run_is_charged_round_by_round(self) -> None:
        memory = admit(Policy(), Memory(), select())
        assert memory.spent == round_cost(PLAN, Round.SELECT, paid=False)
        assert memory.spent.cost == Cost(0.25, 1e-8)
        memory = admit(Policy(), memory, release())
        assert memory.spent.epsilon == 1.25
        assert memory.spent.delta == pytest.approx(1.1e-7)

    @pytest.mark.parametrize("policy", [Policy(max_epsilon=0.88), Policy(max_epsilon=1.1, max_delta=1e-7)])
    def test_round_one_is_refused_when_round_two_would_not_fit(self, policy: Policy) -> None:
        assert refusal(policy, Memory(), select()) == "over-budget"

    def test_many_runs_fit_where_their_sum_does_not(self) -> None:
        """A server may choose each plan in view of the results before, which sums of tight totals do not allow for."""
        plan = Plan(users=100, items=5, epsilon=1.0, epsilon_select=0.1, delta=1e-6)
        policy, memory = Policy(max_epsilon=6.8, max_delta=1e-5), Memory()
        for run in map(str, range(30)):
            memory = admit(policy, admit(policy, memory, select(run, plan)), release(run, plan))
        assert memory.spent.epsilon == pytest.approx(33)
        answered_runs = 30
        with suppress(Refused):
            while True:
                run = str(answered_runs)
                memory = admit(policy, admit(policy, memory, select(run, plan)), release(run, plan))
                answered_runs += 1
        assert answered_runs < 45
        assert policy.limit is not None
        assert (
            epsilon_at(answered_runs * planned_charges(plan), 1e-5)
            <= policy.limit.claimed(memory.spent)
            <= 6.8
        )

    def test_a_run_that_fits_by_itself_alone_pays_for_all_its_rounds_at_once_and_is_the_last(self) -> None:
        policy = Policy(max_epsilon=1.25, max_delta=1.1e-7)
        memory = admit(policy, Memory(), select())
        assert memory.spent.epsilon == 1.25
        small = dataclasses.replace(PLAN, epsilon=0.01, epsilon_select=0.01)
        assert refusal(policy, memory, select("two", small)) == "over-budget"
        assert refusal(policy, memory, release("two", small)) == "over-budget"
        memory = Memory.from_text(memory.to_text())
        memory = admit(policy, memory, release())
        assert memory.spent.epsilon == 1.25
        assert refusal(policy, memory, release(above=1)) == "second-request"
        assert refusal(policy, memory, select("two", small)) == "over-budget"

    def test_rounds_before_the_first_one_asked_are_not_prepaid(self) -> None:
        policy = Policy(max_epsilon=1.25, max_delta=1.1e-7)
        memory = admit(policy, Memory(), release())
        assert memory.spent.epsilon == 1.0
        assert refusal(policy, memory, select()) == "over-budget"

    def test_a_small_cohort_is_refused(self) -> None:
        assert refusal(Policy(minimum_cohort=2), Memory(), select()) == "small-cohort"
        admit(Policy(minimum_cohort=2), Memory(), select(plan=dataclasses.replace(PLAN, minimum_cohort=2)))

    @pytest.mark.parametrize(
        "limits",
        [{"max_epsilon": -1}, {"max_epsilon": 1, "max_delta": math.nan}, {"max_epsilon": 1, "max_delta": 1},
         {"max_epsilon": math.nan}, {"max_delta": 1e-5}, {"max_plan_delta": 1}, {"minimum_cohort": 0},
         {"minimum_masking": "signed"},
         {"minimum_participants": -1}, {"minimum_corrupt_share": 0.31}, {"minimum_corrupt_share": math.nan}],
    )  # fmt: skip
    def test_impossible_limits_are_refused(self, limits: dict[str, Any]) -> None:
        with pytest.raises(InvalidPlan):
            Policy(**limits)

    @pytest.mark.parametrize(
        ("directory", "given", "least", "fewest", "corrupt"),
        [
            (100, None, "secagg-signed", 51, 0.05),
            (0, None, "none", 0, 0.0),
            (100, "none", "none", 0, 0.0),
            (0, "secagg", "secagg", 0, 0.0),
        ],
    )
    def test_what_is_left_out_follows_from_an_identity(
        self, directory: int, given: str | None, least: str, fewest: int, corrupt: float
    ) -> None:
        policy = Policy(minimum_masking=given).for_device(directory=directory)
        assert (policy.minimum_masking, policy.fewest) == (least, fewest)
        assert policy.minimum_corrupt_share == corrupt
        given_all = Policy(minimum_masking=given, minimum_participants=7, minimum_corrupt_share=0.01)
        chosen = given_all.for_device(directory=directory)
        assert (chosen.fewest, chosen.minimum_corrupt_share) == (7, 0.01)

    @pytest.mark.parametrize(
        ("directory", "corrupt_share", "participants", "expects"),
        [
            (0, 0.05, 57, True),
            (0, 0.04, 1000, False),
            (100, 0.05, 100, True),
            (100, 0.05, 99, False),
            (100, 0.09, 57, True),
            (100, 0.3, 16, False),
            (19, 0.0, 10, True),
        ],
    )
    def test_all_corrupt_ones_of_a_directory_may_be_asked(
        self, directory: int, corrupt_share: float, participants: int, expects: bool
    ) -> None:
        policy = Policy(minimum_corrupt_share=0.05).for_device(directory=directory)
        assert policy.expects(corrupt_share, participants) is expects


class TestAPlansDelta:
    """With probability delta a plan may show all that a user has, whatever its epsilon."""

    SIGNED: ClassVar[dict[str, Any]] = {
        "users": 6, "items": 5, "noise_from": "devices", "masking": "secagg-signed", "participants": 6,
        "max_threshold": 10.0,
    }  # fmt: skip

    @pytest.mark.parametrize(
        "settings",
        [
            {"selector": "fixed", "threshold": 5.0, "epsilon": 1e-6, "delta": 0.49},
            {"epsilon": 1e-6, "delta": 0.49},
            {"epsilon_select": 1e-6, "delta_select": 0.49},
            {"delta": 6e-6, "delta_select": 6e-6},
            {"mechanism": "laplace", "delta_select": 0.49},
        ],
    )
    def test_it_is_refused_whatever_the_limit_and_nothing_is_booked(self, settings: dict[str, Any]) -> None:
        """Six nodes with max_epsilon 2 answered 150 of 150 such runs: 1.5e-4 of epsilon and 73.5 of delta."""
        plan = Plan(**self.SIGNED, **settings)
        for policy in (Policy(max_epsilon=2.0), Policy()):
            for asked in (release(plan=plan), *([] if plan.threshold else [select(plan=plan)])):
                assert refusal(policy, Memory(), asked) == "large-delta"

    @pytest.mark.parametrize(
        "settings",
        [{"domain": "open"}, {"domain": "open", "masking": "secagg", "participants": 9},
         {"items": 5, "window": "2026-W40"}],
    )  # fmt: skip
    def test_no_kind_of_plan_goes_round_it(self, settings: dict[str, Any]) -> None:
        for deltas in ({"delta": 1e-4}, {"delta_select": 1e-4}):
            plan = Plan(users=100, **settings, **deltas)
            assert refusal(Policy(), Memory(), Envelope("one", first_request(plan))) == "large-delta"
            admit(Policy(max_plan_delta=2e-4), Memory(), Envelope("one", first_request(plan)))
        admit(Policy(), Memory(), Envelope("one", first_request(Plan(users=100, **settings))))

    def test_a_device_may_set_another_cap(self) -> None:
        strict = Policy(max_plan_delta=1e-7)
        assert refusal(strict, Memory(), select()) == "large-delta"
        admit(Policy(max_plan_delta=1.1e-7), Memory(), select())

    def test_nobody_real_is_behind_a_simulated_device(self) -> None:
        admit(Policy(simulated=True), Memory(), select(plan=dataclasses.replace(PLAN, delta=0.4)))

    def test_many_runs_of_hardly_any_epsilon_meet_the_limit(self) -> None:
        """At the cap, a run with an epsilon near 0 still shows a little, of which epsilons say nothing."""
        policy, memory, tiny = Policy(max_epsilon=1e-3), Memory(), {"epsilon": 1e-6, "delta": 9e-6}
        plan = Plan(
            users=100, items=5, selector="fixed", threshold=5.0, max_threshold=5.0, **tiny, delta_select=0
        )
        with refused(Refused, "over-budget"):
            for run in range(1000):
                memory = admit(policy, memory, release(str(run), plan))
        assert memory.spent.epsilon < 1e-3

    def test_a_limit_on_epsilon_has_one_on_delta(self) -> None:
        assert Policy(max_epsilon=2.0).max_delta == 1e-4
        assert Policy().max_delta == math.inf


class TestMethodsThatAreNotPrivate:
    @pytest.mark.parametrize("selector", ["oracle", "median", "p90", "nobody-has-it"])
    def test_they_are_refused(self, selector: str) -> None:
        plan = dataclasses.replace(PLAN, selector=selector, mechanism="laplace")
        asked = Envelope("one", Request(plan, "tail"))
        assert refusal(Policy(), Memory(), asked) == "not-private"
        admit(Policy(simulated=True), Memory(), asked)

    def test_so_is_a_seeded_run(self) -> None:
        """Who knows the seed takes the noise off."""
        seeded = dataclasses.replace(select(), seeded=True)
        assert Envelope.from_fields(seeded.to_fields()).seeded
        assert refusal(Policy(), Memory(), seeded) == "not-private"
        admit(Policy(simulated=True), Memory(), seeded)


class TestMemory:
    def test_another_threshold_in_the_same_round_is_refused(self) -> None:
        memory = admit(Policy(), Memory(), release())
        assert refusal(Policy(), memory, release(above=1)) == "second-request"
        admit(Policy(), memory, release("two", above=1))

    def test_another_plan_in_the_same_run_is_refused(self) -> None:
        memory = admit(Policy(), Memory(), select())
        assert refusal(Policy(), memory, release(plan=dataclasses.replace(PLAN, epsilon=9.0))) == "other-plan"

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"spent": 1, "plans": {}, "requests": {}}', "null"])
    def test_a_damaged_one_is_no_empty_one(self, text: str) -> None:
        with pytest.raises(DecodeError):
            Memory.from_text(text)


class TestDamagedMemory:
    def test_one_digit_of_what_was_spent_is_noticed(self) -> None:
        """It would still be a number, and a smaller one than was spent."""
        text = admit(Policy(), Memory(), select()).to_text()
        assert "0.25" in text
        with pytest.raises(DecodeError):
            Memory.from_text(text.replace("0.25", "0.05"))

    @given(st.data())
    def test_any_other_character_is_noticed(self, data: st.DataObject) -> None:
        memory = admit(Policy(), Memory(), select())
        text = memory.to_text()
        place = data.draw(st.integers(0, len(text) - 1))
        changed = text[:place] + data.draw(st.characters(codec="ascii")) + text[place + 1 :]
        with suppress(DecodeError):
            assert Memory.from_text(changed) == memory

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"digest": ' * 50_000])
    def test_nesting_without_end_is_not_a_python_error(self, text: str) -> None:
        with pytest.raises(DecodeError):
            Memory.from_text(text)


class TestWhenARoundIsCharged:
    """The table in `check`."""

    MASKED = Plan(users=100, items=5, epsilon=1.0, epsilon_select=0.25, masking="secagg", participants=9)

    def test_one_session_a_round_charged_or_not(self) -> None:
        memory = begin(Policy(), Memory(), select(plan=self.MASKED))
        with refused(Refused, "second-request"):
            begin(Policy(), memory, select(plan=self.MASKED))
        memory = charge(Policy(), memory, select(plan=self.MASKED))
        assert memory.spent.epsilon == 0.25
        for again in (begin, charge):
            with refused(Refused, "second-request"):
                again(Policy(), memory, select(plan=self.MASKED))

    def test_what_was_not_begun_is_not_charged(self) -> None:
        with refused(Refused, "no-session"):
            charge(Policy(), Memory(), select(plan=self.MASKED))

    def test_of_two_sessions_that_fit_one_by_one_the_later_vector_is_refused(self) -> None:
        policy, memory = Policy(max_epsilon=1.25), Memory()
        for run in ("one", "two"):
            memory = begin(policy, memory, select(run, self.MASKED))
        memory = charge(policy, memory, select("two", self.MASKED))
        memory = charge(
            policy, begin(policy, memory, release("two", self.MASKED)), release("two", self.MASKED)
        )
        with refused(Refused, "over-budget"):
            charge(policy, memory, select("one", self.MASKED))
        assert memory.spent.epsilon == 1.25

    def test_a_discovery_that_was_never_charged_pays_for_no_release(self) -> None:
        """A node without users says so and is not charged; when it has users, a release must not be free."""
        memory = answered(Memory(), of_made_up_items("one", Round.DISCOVER), b"")
        assert memory.spent.epsilon == 0
        assert admit(Policy(), memory, of_made_up_items("one", Round.RELEASE)).spent.cost == Cost(1.0, 1e-7)

    def test_the_log_of_the_node_says_what_is_spent(self) -> None:
        memory = admit(Policy(), admit(Policy(), Memory(), select()), release())
        with pytest.raises(Refused) as caught:
            check(Policy(max_epsilon=1.25), memory, select("two"))
        assert "of epsilon 1.25 at delta 0.0001, 0.8892 is spent" in caught.value.local
        assert "0.88" not in str(caught.value)
