"""Two views of a ledger: one user ever, and one user in one window; and a limit for either."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import BudgetExceeded, BudgetFile, Charge, Cost, Limit, Plan, Spending
from fedhist.server import charged
from tests.support.api import (
    ApproximateLoss,
    GaussianLoss,
    InvalidPlan,
    OpenRun,
    PureLoss,
    Window,
    by_window,
    window_of,
)

NOW = datetime(2026, 11, 18, tzinfo=UTC)
PURE = Charge("release", "laplace", {}, 1.0, "l1", "zero-out", 1.0, 0.0, PureLoss())
ONE = Spending.of([PURE])
NEAR = st.integers(0, 9).map(lambda days: date(2026, 11, 1) + timedelta(days))
WINDOWS = st.none() | st.tuples(NEAR, NEAR).map(lambda ends: Window(min(ends), max(ends)).text)


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetFile:
    return BudgetFile.open(tmp_path / "ledger.db", create=True)


def begin(ledger: BudgetFile, window: str | None, cost: Spending = ONE) -> OpenRun:
    plan = {"items": 5} if window is None else {"items": 5, "window": window}
    return ledger.begin("hash", plan, cost, "a run", NOW)


def ended(ledger: BudgetFile, window: str | None, charge: Charge = PURE) -> None:
    run = begin(ledger, window, Spending.of([charge]))
    run.record(charge)
    run.released()


def shown(ledger: BudgetFile) -> dict[str, float]:
    return {
        str(window): spent.epsilon for window, spent in by_window(ledger.runs(), ledger.window_limit).items()
    }


def test_disjoint_windows_are_each_by_themselves_and_all_of_them_ever(ledger: BudgetFile) -> None:
    for week in ("2026-W45", "2026-W46", "2026-W46", "2026-W47"):
        ended(ledger, week)
    assert shown(ledger) == {"2026-W45": 1.0, "2026-W46": 2.0, "2026-W47": 1.0}
    assert ledger.spent().cost == Cost(4.0, 0.0)


def test_a_run_without_a_window_reads_every_window(ledger: BudgetFile) -> None:
    ended(ledger, None)
    assert shown(ledger) == {"None": 1.0}
    ended(ledger, "2026-W46")
    ended(ledger, "2026-W47")
    assert shown(ledger) == {"2026-W46": 2.0, "2026-W47": 2.0}


def test_overlapping_windows_compose(ledger: BudgetFile) -> None:
    for window in ("2026-11-17", "2026-11-18", "2026-W47", "2026-11-24"):
        ended(ledger, window)
    assert shown(ledger) == {"2026-W47": 3.0, "2026-11-17": 2.0, "2026-11-18": 2.0, "2026-11-24": 1.0}


def test_a_limit_for_one_window_leaves_room_in_others(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(2.0, 0.0), per_window=True)
    assert (ledger.limit, ledger.window_limit) == (None, Limit(2.0, 0.0))
    for week in range(10, 40):
        ended(ledger, f"2026-W{week}")
        ended(ledger, f"2026-W{week}")
    before = ledger.runs()
    for window in ("2026-W20", "2026-05-11", "2026-W39", "2026", "2026-01-01/2026-12-30", None):
        with pytest.raises(BudgetExceeded, match=r"one user in one window.*Nothing was spent"):
            begin(ledger, window)
    assert ledger.runs() == before
    ended(ledger, "2026-W40")


def test_days_fill_the_week_that_comes_later(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(2.0, 0.0), per_window=True)
    for day in (16, 17, 18):
        ended(ledger, f"2026-11-{day}")
    with pytest.raises(BudgetExceeded, match="the window 2026-W47"):
        begin(ledger, "2026-W47", Spending.of_cost(Cost(0.001, 0.0)))
    ended(ledger, "2026-11-18")


def test_both_limits_hold(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(3.0, 0.0))
    ledger.set_limit(Limit(1.0, 0.0), per_window=True)
    ended(ledger, "2026-W45")
    with pytest.raises(BudgetExceeded, match="one user in one window"):
        begin(ledger, "2026-W45")
    ended(ledger, "2026-W46")
    ended(ledger, "2026-W47")
    with pytest.raises(BudgetExceeded, match=r"the limit of .* would be passed"):
        begin(ledger, "2026-W48")


def test_either_limit_is_changed_only_if_that_is_meant(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(1.0, 0.0), per_window=True)
    ledger.set_limit(Limit(1.0, 0.0), per_window=True)
    with pytest.raises(InvalidPlan, match="add --replace"):
        ledger.set_limit(Limit(2.0, 0.0), per_window=True)
    ledger.set_limit(Limit(2.0, 1e-6), per_window=True, replace=True)
    assert (ledger.limit, ledger.window_limit) == (None, Limit(2.0, 1e-6))


def test_an_open_run_holds_its_windows_and_a_closed_one_gives_them_back(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(1.0, 0.0), per_window=True)
    run = begin(ledger, "2026-W47")
    with pytest.raises(BudgetExceeded):
        begin(ledger, "2026-11-18")
    begin(ledger, "2026-W48")
    ledger.close(run.id)
    begin(ledger, "2026-11-18")


def test_a_run_that_fits_only_by_itself_counts_in_full_in_its_window(ledger: BudgetFile) -> None:
    """Given back what it did not charge, another run could be chosen in view of its first result."""
    whole = Spending.of_cost(Cost(1.0, 1e-6))
    small = Charge("select", "any", {}, 1.0, "score", "zero-out", 0.01, 1e-8, ApproximateLoss())
    ledger.set_limit(Limit(1.0, 1e-6), per_window=True)
    run = begin(ledger, "2026-W47", whole)
    run.record(small)
    run.failed("RoundFailed")
    with pytest.raises(BudgetExceeded):
        begin(ledger, "2026-W47", Spending.of([small]))
    begin(ledger, "2026-W48", whole)
    nothing = begin(ledger, "2026-W49", whole)
    nothing.failed("RoundFailed")
    begin(ledger, "2026-W49", whole)


def test_many_runs_of_a_window_cost_less_than_their_sum(ledger: BudgetFile) -> None:
    gaussian = Charge("release", "gauss", {}, 8.0, "l2", "zero-out", 1.0, 1e-7, GaussianLoss(5.0))
    ledger.set_limit(Limit(5.0, 1e-5), per_window=True)
    for _ in range(10):
        ended(ledger, "2026-W47", gaussian)
    assert by_window(ledger.runs(), ledger.window_limit)[Window.parse("2026-W47")].epsilon == pytest.approx(
        10.0
    )


def test_of_many_that_ask_at_once_for_the_last_of_a_window_one_gets_it(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(1.0, 0.0), per_window=True)

    def ask(window: str) -> bool:
        with contextlib.suppress(BudgetExceeded):
            begin(BudgetFile.open(ledger.path, create=False), window)
            return True
        return False

    with ThreadPoolExecutor(8) as threads:
        windows = ["2026-W47", "2026-11-18", "2026-11-22/2026-11-24", "2026"] * 4 + ["2026-W02"] * 4
        won = [window for window, got in zip(windows, threads.map(ask, windows), strict=True) if got]
    assert len(won) == len(ledger.runs())
    got = [Window.parse(window) for window in won]
    assert not any(one.overlaps(other) for place, one in enumerate(got) for other in got[:place])
    assert all(spent.epsilon == 1.0 for spent in by_window(ledger.runs(), ledger.window_limit).values())


@settings(max_examples=40, deadline=None)
@given(st.lists(WINDOWS, max_size=12), st.sampled_from([1.0, 2.0, 3.0]))
def test_whatever_was_admitted_no_window_is_over_its_limit(
    tmp_path_factory: pytest.TempPathFactory, asked: list[str | None], most: float
) -> None:
    """By another count: all days of each window that was admitted, and the runs that read one of them."""
    ledger = BudgetFile.open(tmp_path_factory.mktemp("ledger") / "ledger.db", create=True)
    ledger.set_limit(Limit(most, 0.0), per_window=True)
    for window in asked:
        with contextlib.suppress(BudgetExceeded):
            begin(ledger, window)
    read = [days_of(window_of(run.plan)) for run in ledger.runs()]
    named = [days for run, days in zip(ledger.runs(), read, strict=True) if "window" in run.plan]
    assert all(sum(bool(days & other) for other in read) <= most for days in named)
    refused_all = not ledger.runs() and asked
    assert not refused_all
    assert sum(days == ALL for days in read) <= most


ALL = frozenset(range(10))


def days_of(window: Window | None) -> frozenset[int]:
    if window is None:
        return ALL
    first = (window.first - date(2026, 11, 1)).days
    return frozenset(range(first, first + (window.last - window.first).days + 1))


def test_a_window_that_nobody_can_read_counts_everywhere(ledger: BudgetFile) -> None:
    ended(ledger, "sometime")
    ended(ledger, "2026-W47")
    assert shown(ledger) == {"2026-W47": 2.0}


def test_a_refused_run_says_what_would_fit_into_its_window(ledger: BudgetFile) -> None:
    def run(week: str, epsilon: float) -> None:
        plan = Plan(users=100, items=5, epsilon=epsilon, mechanism="laplace", window=week)
        with charged(ledger.path, plan, label="visits.csv"):
            pass

    ledger.set_limit(Limit(1.5, 1e-5), per_window=True)
    with pytest.raises(BudgetExceeded, match=r"2026-W47.*It would fit with epsilon 1\.4"):
        run("2026-W47", 2.0)
    run("2026-W47", 1.4)


def test_nothing_is_counted_in_an_empty_ledger() -> None:
    assert by_window([]) == {None: Spending()}
    assert math.isclose(by_window([], also=Window.parse("2026"))[Window.parse("2026")].epsilon, 0.0)
