from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fedhist.client.device import answer
from fedhist.protocol.errors import InvalidPlan, InvalidPopulation, RoundFailed, UnexpectedMessage
from fedhist.protocol.histograms import Histograms
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Round, Total
from fedhist.server.coordinator import (
    Begin,
    Planned,
    Released,
    Releasing,
    Selecting,
    advance,
    planned_charges,
    run_rounds,
)
from tests.asking import release_at, select_request

SOURCE = SeededSource(1)


@dataclass
class Cohort:
    """A transport over one batch that can lose users in either round."""

    histograms: Histograms
    simulated: bool = True
    lost: dict[Round, int] | None = None

    def total(self, request):
        kept = self.histograms.users - (self.lost or {}).get(request.round, 0)
        sent = answer(request, self.histograms.rows(0, kept), source=SOURCE)
        return Total(users=kept, values=sent.values)


@pytest.fixture
def cohort(make_histograms):
    return Cohort(make_histograms([[i % 5, (i * 7) % 11, 1] for i in range(200)]))


def plan_of(**settings):
    return Plan(**({"users": 200, "items": 3} | settings))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_two_rounds_charge_in_order_and_release(cohort, mechanism):
    states, ledger = [], Ledger()
    plan = plan_of(mechanism=mechanism)
    release = run_rounds(plan, cohort, ledger=ledger, source=SOURCE, on_state=states.append)
    assert [type(s) for s in states] == [Planned, Selecting, Releasing, Released]
    assert [c.round for c in ledger.entries] == ["select", "release"]
    assert release.charges == ledger.entries
    assert release.histogram.shape == (3,)
    assert release.private and release.seeded


def test_what_is_charged_is_what_was_planned(cohort):
    for settings in (
        {},
        {"mechanism": "laplace"},
        {"selector": "dpsgd"},
        {"selector": "fixed", "threshold": 9.0},
    ):
        plan, ledger = plan_of(**settings), Ledger()
        run_rounds(plan, cohort, ledger=ledger, source=SOURCE)
        assert [c.cost for c in ledger.entries] == [c.cost for c in planned_charges(plan)]


def test_a_fixed_threshold_asks_nothing_in_round_one(cohort):
    states, ledger = [], Ledger()
    plan = plan_of(selector="fixed", threshold=7.3)
    release = run_rounds(plan, cohort, ledger=ledger, source=SOURCE, on_state=states.append)
    assert [type(s) for s in states] == [Planned, Releasing, Released]
    assert release.threshold == pytest.approx(7.3, abs=2.0**-10)
    assert [c.round for c in ledger.entries] == ["release"]


def test_charges_come_before_the_noise(cohort):
    """A ledger that refuses leaves nothing drawn and nothing released."""

    class Refused(Exception):
        pass

    def refuse(charge):
        raise Refused

    class Untouched:
        seeded = False

        def fork(self, *purpose):
            return self

        def words(self, count):
            raise AssertionError("noise was drawn before it was charged")

        user_words = words

    for state, event in (
        (Selecting(select_request(plan_of())), Total(200, np.zeros(258, dtype=np.int64))),
        (
            Releasing(
                release_at(plan_of(), plan_of().at_steps(4096)),
                advance(
                    Planned(plan_of(selector="fixed", threshold=4.0)), Begin(), ledger=Ledger(), source=SOURCE
                ).selection,
            ),
            Total(200, np.zeros(3, dtype=np.int64)),
        ),
    ):
        with pytest.raises(Refused):
            advance(state, event, ledger=Ledger(journal=refuse), source=Untouched())


@pytest.mark.parametrize(("round_", "charged"), [(Round.SELECT, []), (Round.RELEASE, ["select"])])
def test_a_small_cohort_releases_nothing_and_the_ledger_says_what_was_spent(cohort, round_, charged):
    cohort.lost = {round_: 101}
    ledger = Ledger()
    with pytest.raises(RoundFailed, match=r"99 users answered.*at least 100"):
        run_rounds(plan_of(minimum_cohort=100), cohort, ledger=ledger, source=SOURCE)
    assert [c.round for c in ledger.entries] == charged


def test_the_oracle_is_refused_outside_a_simulation_before_anything_is_asked(cohort):
    cohort.simulated = False
    cohort.histograms = None
    with pytest.raises(InvalidPlan, match="oracle is not private"):
        run_rounds(plan_of(selector="oracle"), cohort, ledger=Ledger(), source=SOURCE)


def test_the_oracle_marks_the_release(cohort):
    release = run_rounds(plan_of(selector="oracle"), cohort, ledger=Ledger(), source=SOURCE)
    assert not release.private
    assert not release.charges[0].private


def test_illegal_steps_are_errors(cohort):
    plan = plan_of()
    selecting = advance(Planned(plan), Begin(), ledger=Ledger(), source=SOURCE)
    answer_ = cohort.total(select_request(plan))
    releasing = advance(selecting, answer_, ledger=Ledger(), source=SOURCE)
    for state, event in (
        (Planned(plan), answer_),
        (selecting, Begin()),
        (releasing, answer_),
        (releasing, Begin()),
    ):
        with pytest.raises(UnexpectedMessage):
            advance(state, event, ledger=Ledger(), source=SOURCE)


def test_a_total_of_the_wrong_length_is_refused():
    short = Total(users=200, values=np.zeros(3, dtype=np.int64))
    with pytest.raises(UnexpectedMessage):
        advance(Selecting(select_request(plan_of())), short, ledger=Ledger(), source=SOURCE)


def test_a_device_with_another_domain_refuses(make_histograms):
    with pytest.raises(InvalidPopulation, match="2 items and the plan 3"):
        answer(select_request(plan_of()), make_histograms([[1, 2]]), source=SOURCE)


def test_states_and_totals_do_not_print_values(cohort):
    total = cohort.total(select_request(plan_of()))
    assert "array" not in repr(total)
    releasing = advance(Selecting(select_request(plan_of())), total, ledger=Ledger(), source=SOURCE)
    assert "array" not in repr(releasing)
