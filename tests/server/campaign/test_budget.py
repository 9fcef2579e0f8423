"""The even split: all windows fit as the ledger counts, hardly a budget is left, and no cost depends on data."""

from __future__ import annotations

from typing import Any

import pytest

from fedhist import Limit, Plan, Spending
from tests.support.api import InvalidPlan, even_split, like_later, planned_charges, split_of_later
from tests.support.refusals import refused

USUAL = {"min_threshold": 1.0, "max_threshold": 1500.0}
CLOSED = USUAL | {"users": 10**6, "items": 64, "domain": "closed"}
OPEN = USUAL | {"users": 10**6, "domain": "open", "mechanism": "gaussian"}
KINDS: dict[str, dict[str, Any]] = {
    "closed": CLOSED,
    "open": OPEN,
    "laplace": CLOSED | {"mechanism": "laplace"},
    "dpsgd": CLOSED | {"selector": "dpsgd"},
    "replace-one": CLOSED | {"neighbours": "replace-one"},
    "bar": USUAL | {"users": 10**6, "domain": "open", "release": "truncated-laplace"},
    "choice given": CLOSED | {"epsilon_select": 0.05},
    "device noise": CLOSED | {"masking": "secagg", "participants": 100, "noise_from": "devices"},
}
TOTAL = Limit(3, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("total", "windows"), [(TOTAL, 13), (Limit(8, 1e-6), 30)])
def test_all_windows_fit_one_after_another_and_use_the_total_up(
    kind: str, total: Limit, windows: int
) -> None:
    found = even_split(KINDS[kind], windows=windows, total=total, rooms=[(total, Spending())])
    spent = Spending()
    for _ in range(windows):
        assert total.admits(spent, found.cost)
        spent += found.cost
    assert 0.998 * total.epsilon < total.claimed(spent) <= total.epsilon
    assert not total.has_room(spent + found.cost)


@pytest.mark.parametrize("epsilon", [0.3, 1, 2, 4, 6])
@pytest.mark.parametrize("windows", [1, 2, 3, 7, 52])
def test_all_windows_fit_also_where_the_choices_share_has_a_step(epsilon: float, windows: int) -> None:
    total = Limit(epsilon, 1e-6)
    found = even_split(CLOSED, windows=windows, total=total, rooms=[(total, Spending())])
    assert total.has_room(found.cost.times(windows))
    assert total.claimed(found.cost.times(windows)) > 0.95 * epsilon


@pytest.mark.parametrize("kind", ["closed", "open", "laplace", "replace-one"])
def test_the_cost_is_that_of_the_plan_whoever_the_users_are(kind: str) -> None:
    found = even_split(KINDS[kind], windows=13, total=TOTAL, rooms=[(TOTAL, Spending())])
    for users, items in ((20, 3), (10**5, 2000)):
        size = {"users": users} | ({"items": items} if KINDS[kind]["domain"] == "closed" else {})
        plan = Plan(**KINDS[kind] | dict(found.fields) | size | {"window": "2026-W40"})
        assert Spending.of(planned_charges(plan)).within(found.cost)


@pytest.mark.parametrize(
    ("thresholds", "discover"), [("first", "each"), ("choose", "first"), ("first", "first")]
)
def test_later_windows_that_need_less_have_less_noise_and_any_number_of_first_ones_fits(
    thresholds: str, discover: str
) -> None:
    rooms = [(TOTAL, Spending())]
    first = even_split(OPEN, windows=13, total=TOTAL, rooms=rooms)
    like = like_later(OPEN, thresholds=thresholds, discover=discover)
    later = split_of_later(like, first, windows=13, total=TOTAL, rooms=rooms)
    noise = [
        Plan(**kind | dict(b.fields)).releasing.one_way.unit_noise
        for kind, b in ((OPEN, first), (like, later))
    ]
    assert noise[1] < noise[0]
    for of_first in range(1, 14):
        assert TOTAL.has_room(first.cost.times(of_first) + later.cost.times(13 - of_first))


def test_other_runs_of_the_ledger_leave_less() -> None:
    alone = even_split(CLOSED, windows=5, total=TOTAL, rooms=[(TOTAL, Spending())])
    others = alone.cost.times(2)
    beside = even_split(CLOSED, windows=5, total=TOTAL, rooms=[(TOTAL, Spending()), (TOTAL, others)])
    assert beside.cost.epsilon < alone.cost.epsilon
    assert TOTAL.has_room(others + beside.cost.times(5))


def test_a_pure_total_is_split_into_laplace_noise() -> None:
    total = Limit(1, 0)
    found = even_split(CLOSED, windows=4, total=total, rooms=[(total, Spending())])
    assert found.fields["delta"] == 0
    assert found.cost.epsilon == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "total", "code"),
    [
        (CLOSED | {"epsilon_select": 1.0}, Limit(0.5, 1e-6), "total-too-small"),
        (OPEN, Limit(1, 0), "bad-delta"),
        (CLOSED | {"selector": "oracle"}, TOTAL, "not-private"),
        (CLOSED, Limit(0, 1e-6), "bad-epsilon"),
    ],
)
def test_a_total_without_room_is_refused(fields: dict[str, Any], total: Limit, code: str) -> None:
    with refused(InvalidPlan, code):
        even_split(fields, windows=9, total=total, rooms=[(total, Spending())])
