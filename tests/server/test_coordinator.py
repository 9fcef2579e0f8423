"""The two rounds as one machine of states: what is asked, what is charged when, and which steps are errors."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist import Ledger, Plan, RoundFailed, SeededSource, run_rounds
from tests.asking import first_request, release_at, releasing, select_request, selecting
from tests.builders import Cohort, Refused, Untouched, refusing
from tests.support.api import (
    Asking,
    Begin,
    InvalidPlan,
    InvalidPopulation,
    Keyed,
    Planned,
    Released,
    Round,
    Total,
    UnexpectedMessage,
    advance,
    answer,
    charged_ahead,
    histograms_of,
    planned_charges,
)
from tests.support.refusals import refused

SOURCE = SeededSource(1)
CLOSED, OPEN = {"users": 200, "items": 3}, {"users": 200, "domain": "open", "release": "truncated-laplace"}
MASKED = {"masking": "secagg", "participants": 5}
DISCOVERED = {"users": 200, "domain": "open", "epsilon": 8.0}
modes = pytest.mark.parametrize("mode", [CLOSED, OPEN, DISCOVERED], ids=["closed", "open", "discovered"])


@pytest.fixture
def cohort():
    return Cohort(histograms_of([[i % 5, (i * 7) % 11, 1] for i in range(200)]))


def plan_of(**settings):
    return Plan(**(CLOSED | settings))


FIXED = {"selector": "fixed", "threshold": 7.0}


@pytest.mark.parametrize(
    ("settings", "asked", "charged"),
    [
        *((CLOSED | more, "select release", "select release") for more in ({}, {"mechanism": "laplace"})),
        (CLOSED | {"selector": "dpsgd"}, "select release", "select release"),
        # A discovery is charged once for itself and the release.
        *(
            (DISCOVERED | more, "discover select release", "discover select")
            for more in ({}, {"mechanism": "laplace"}, {"known_items": "0\nplum"})
        ),
        # A fixed threshold asks nothing in round one.
        (CLOSED | FIXED, "release", "release"),
        (OPEN | FIXED, "release", "release"),
        (DISCOVERED | FIXED, "discover release", "discover"),
    ],
)
def test_rounds_charge_in_order_what_was_planned_and_release(cohort, settings, asked, charged):
    states, ledger, plan = [], Ledger(), Plan(**settings)
    release = run_rounds(plan, cohort, ledger=ledger, source=SOURCE, on_state=states.append)
    assert [type(s) for s in states] == [Planned, *[Asking] * len(asked.split()), Released]
    assert [s.request.round for s in states[1:-1]] == asked.split()
    assert [c.round for c in ledger.entries] == charged.split()
    assert "release" in settings or [c.cost for c in ledger.entries] == [
        c.cost for c in planned_charges(plan)
    ]
    assert (release.charges, release.plan) == (ledger.entries, plan)
    assert release.seeded and not release.private
    assert release.threshold == 7.0 or "threshold" not in settings
    labels = ["0", "plum", "1", "2"] if "known_items" in settings else ["0", "1", "2"]
    assert not plan.discovers or list(map(str, release.labels)) == labels
    assert "release" in settings or release.histogram.shape == (len(labels),)


@modes
def test_charges_come_before_the_noise(cohort, mode):
    """A ledger that refuses leaves nothing drawn and nothing released."""
    plan = Plan(**mode)
    threshold = plan.at_steps(20 << plan.grid_bits)
    states = [selecting(first_request(plan))]
    if not plan.discovers:
        states.append(releasing(release_at(plan, threshold)))
    for state in states:
        with pytest.raises(Refused):
            advance(state, cohort.total(state.request), ledger=refusing(), source=Untouched())


@pytest.mark.parametrize(
    ("mode", "round_", "charged"),
    [
        *((mode, Round.SELECT, []) for mode in (CLOSED, OPEN)),
        *((mode, Round.RELEASE, ["select"]) for mode in (CLOSED, OPEN)),
        (DISCOVERED, Round.DISCOVER, []),
        (DISCOVERED, Round.SELECT, ["discover"]),
        (DISCOVERED, Round.RELEASE, ["discover", "select"]),
    ],
)
def test_a_small_cohort_releases_nothing_and_the_ledger_says_what_was_spent(cohort, mode, round_, charged):
    cohort.lost, ledger = {round_: 101}, Ledger()
    with refused(RoundFailed, "too-few-users", "99", "100"):
        run_rounds(Plan(**mode, minimum_cohort=100), cohort, ledger=ledger, source=SOURCE)
    assert [c.round for c in ledger.entries] == charged


@pytest.mark.parametrize(
    ("mode", "selector"),
    [(CLOSED, "oracle"), (OPEN, "oracle"), (DISCOVERED, "oracle"), (OPEN, "median"), (OPEN, "p90")],
)
def test_baselines_are_refused_outside_a_simulation_before_anything_is_asked(mode, selector):
    nobody = Cohort(None, simulated=False)
    with refused(InvalidPlan, "not-private", selector):
        run_rounds(Plan(**mode, selector=selector), nobody, ledger=Ledger(), source=SOURCE)


def test_illegal_steps_are_errors(cohort):
    plan = plan_of()
    selecting = advance(Planned(plan), Begin(), ledger=Ledger(), source=SOURCE)
    total = cohort.total(select_request(plan))
    releasing = advance(selecting, total, ledger=Ledger(), source=SOURCE)
    for state, event in (
        (Planned(plan), total),
        (selecting, Begin()),
        (releasing, total),
        (releasing, Begin()),
    ):
        with pytest.raises(UnexpectedMessage):
            advance(state, event, ledger=Ledger(), source=SOURCE)


def test_a_total_of_another_form_is_refused(cohort):
    closed, opened = select_request(plan_of()), select_request(Plan(**OPEN))
    good = cohort.total(opened)
    for request, values, keyed in (
        (closed, np.zeros(3, dtype=np.int64), None),
        (opened, good.values, None),
        (opened, good.values[1:], good.keyed),
        (opened, good.values, Keyed(good.keyed.keys, good.keyed.values[:, :1])),
    ):
        total = Total(200, values, keyed)
        with pytest.raises(UnexpectedMessage):
            advance(selecting(request), total, ledger=Ledger(), source=SOURCE)


def test_a_device_with_another_domain_refuses():
    with refused(InvalidPopulation, "other-number-of-items"):
        answer(select_request(plan_of()), histograms_of([[1, 2]]), source=SOURCE)


def test_states_and_totals_do_not_print_values(cohort):
    total = cohort.total(select_request(plan_of()))
    assert "array" not in repr(total)
    releasing = advance(selecting(select_request(plan_of())), total, ledger=Ledger(), source=SOURCE)
    assert "array" not in repr(releasing)


@pytest.mark.parametrize(
    ("settings", "ahead"),
    [
        ({"items": 3}, False),
        ({"items": 3, **MASKED}, False),
        ({"items": 3, **MASKED, "noise_from": "devices"}, True),
        ({"domain": "open"}, False),
        ({"domain": "open", **MASKED}, True),
    ],
)
def test_answers_that_are_noisy_or_may_not_decode_are_charged_before_they_are_asked_for(settings, ahead):
    plan, ledger = Plan(users=50, **settings), Ledger()
    state = advance(Planned(plan), Begin(), ledger=ledger, source=SeededSource(1))
    assert isinstance(state, Asking)
    assert bool(ledger.entries) is ahead
    assert (state.request.round in charged_ahead(plan)) is ahead
