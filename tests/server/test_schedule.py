"""A schedule's calendar, and the even split: all windows fit as the ledger counts, and hardly a budget is left."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from fedhist import Limit, Plan, Spending
from tests.support.api import MAX_WINDOWS, InvalidPlan, even_split, planned_charges, windows_in
from tests.support.refusals import refused


@pytest.mark.parametrize(
    ("written", "windows"),
    [
        ("2026-W51..2027-W02", "2026-W51 2026-W52 2026-W53 2027-W01 2027-W02"),
        ("2026-02-27..2026-03-02", "2026-02-27 2026-02-28 2026-03-01 2026-03-02"),
        ("2026-11..2027-02", "2026-11 2026-12 2027-01 2027-02"),
        ("2026..2028", "2026 2027 2028"),
        (
            "2026-11-01/2026-11-10..2026-11-21/2026-11-30",
            "2026-11-01/2026-11-10 2026-11-11/2026-11-20 2026-11-21/2026-11-30",
        ),
        ("2026-W40x3", "2026-W40 2026-W41 2026-W42"),
        ("2024-02x2", "2024-02 2024-03"),
        (["2026-11, 2026-W40", "2026-10-20"], "2026-W40 2026-10-20 2026-11"),
    ],
)
def test_windows_are_listed_in_order(written: str | list[str], windows: str) -> None:
    lists = [written] if isinstance(written, str) else written
    assert [window.text for window in windows_in(lists)] == windows.split()


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("", "no-windows"),
        ("2026-W40,2026-W40", "windows-overlap"),
        ("2026-W40..2026-W42,2026-10-05", "windows-overlap"),
        ("2026-W42..2026-W40", "never-ends"),
        ("2026-W40..2026-12", "never-ends"),
        ("2026-W40..2026-10-10", "never-ends"),
        ("2026-W40x0", "not-a-window"),
        (f"2026-01-01x{MAX_WINDOWS + 1}", "too-many-windows"),
        ("2000-01-01..2026-01-01", "too-many-windows"),
        ("2026-W54", "not-in-the-calendar"),
        ("weekly", "not-a-window"),
    ],
)
def test_what_is_no_calendar_is_refused(written: str, code: str) -> None:
    with refused(InvalidPlan, code):
        windows_in([written])


@pytest.mark.parametrize("first", ["2026-W01", "2024-02-28", "2023-12", "1999", "2026-01-30/2026-02-02"])
def test_windows_that_follow_each_other_leave_out_no_day(first: str) -> None:
    for earlier, later in pairwise(windows_in([f"{first}x60"])):
        assert earlier.end == later.start


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


def cost_of(fields: dict[str, Any], *, total: Limit, **split: Any) -> Spending:
    """What one of these windows costs."""
    budgets = even_split(fields, total=total, **{"rooms": [(total, Spending())]} | split)
    return Spending.of(planned_charges(Plan(**fields | budgets)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("total", "windows"), [(TOTAL, 13), (Limit(8, 1e-6), 30)])
def test_all_windows_fit_one_after_another_and_use_the_total_up(
    kind: str, total: Limit, windows: int
) -> None:
    cost = cost_of(KINDS[kind], windows=windows, total=total)
    spent = Spending()
    for _ in range(windows):
        assert total.admits(spent, cost)
        spent += cost
    assert 0.998 * total.epsilon < total.claimed(spent) <= total.epsilon
    assert not total.has_room(spent + cost)


@pytest.mark.parametrize("epsilon", [0.3, 1, 2, 4, 6])
@pytest.mark.parametrize("windows", [1, 2, 3, 7, 52])
def test_all_windows_fit_also_where_the_choices_share_has_a_step(epsilon: float, windows: int) -> None:
    total = Limit(epsilon, 1e-6)
    cost = cost_of(CLOSED, windows=windows, total=total)
    assert total.has_room(cost.times(windows))
    assert total.claimed(cost.times(windows)) > 0.95 * epsilon


@pytest.mark.parametrize("kind", ["closed", "open", "laplace", "replace-one"])
def test_the_cost_is_that_of_the_plan_whoever_the_users_are(kind: str) -> None:
    found = even_split(KINDS[kind], windows=13, total=TOTAL, rooms=[(TOTAL, Spending())])
    cost = cost_of(KINDS[kind], windows=13, total=TOTAL)
    for users, items in ((20, 3), (10**5, 2000)):
        size = {"users": users} | ({"items": items} if KINDS[kind]["domain"] == "closed" else {})
        plan = Plan(**KINDS[kind] | found | size | {"window": "2026-W40"})
        assert Spending.of(planned_charges(plan)).within(cost)


def test_other_runs_of_the_ledger_leave_less() -> None:
    alone = cost_of(CLOSED, windows=5, total=TOTAL)
    others = alone.times(2)
    beside = cost_of(CLOSED, windows=5, total=TOTAL, rooms=[(TOTAL, Spending()), (TOTAL, others)])
    assert beside.epsilon < alone.epsilon
    assert TOTAL.has_room(others + beside.times(5))


def test_a_pure_total_is_split_into_laplace_noise() -> None:
    total = Limit(1, 0)
    found = even_split(KINDS["laplace"], windows=4, total=total, rooms=[(total, Spending())])
    assert found["delta"] == 0
    assert cost_of(KINDS["laplace"], windows=4, total=total).epsilon == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "total", "code"),
    [
        (CLOSED | {"epsilon_select": 1.0}, Limit(0.5, 1e-6), "total-too-small"),
        (OPEN, Limit(1, 0), "bad-delta"),
        (CLOSED | {"selector": "oracle"}, TOTAL, "total-too-small"),
        (CLOSED, Limit(0, 1e-6), "bad-epsilon"),
    ],
)
def test_a_total_without_room_is_refused(fields: dict[str, Any], total: Limit, code: str) -> None:
    with refused(InvalidPlan, code):
        even_split(fields, windows=9, total=total, rooms=[(total, Spending())])
