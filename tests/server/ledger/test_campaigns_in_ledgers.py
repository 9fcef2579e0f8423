"""Ledgers count the releases of a campaign together, whichever runs they are of."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedhist import BudgetExceeded, BudgetFile, Limit, Plan, Spending
from fedhist.server import charged
from tests.support.api import (
    OpenRun,
    Window,
    by_window,
    gaussian_epsilon,
    gaussian_rho,
    noise_multiplier,
    planned_charges,
)

NOW = datetime(2026, 11, 18, tzinfo=UTC)
Z = noise_multiplier(1.0, 1e-6)


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetFile:
    return BudgetFile.open(tmp_path / "ledger.db", create=True)


def plan_of(day: int = 1, **settings: Any) -> Plan:
    usual = {"selector": "fixed", "threshold": 10, "campaign": "autumn", "visits": 3}
    return Plan(**({"users": 100, "items": 5, "window": f"2026-11-{day:02}"} | usual | settings))


def begin(ledger: BudgetFile, plan: Plan) -> OpenRun:
    return ledger.begin(plan.digest.hex(), plan.to_json(), Spending.of(planned_charges(plan)), "a run", NOW)


def ran(ledger: BudgetFile, plan: Plan) -> None:
    with charged(ledger.path, plan, label="a run") as journal:
        assert journal is not None
        for charge in planned_charges(plan):
            journal(charge)


def test_thirty_windows_cost_what_one_release_of_all_visits_does(ledger: BudgetFile) -> None:
    rhos = []
    for day in range(1, 31):
        ran(ledger, plan_of(day))
        rhos.append(ledger.spent().rho)
    whole = gaussian_rho(Z)
    assert all(math.isclose(rho, min(day / 3, 1) * whole) for day, rho in enumerate(rhos, 1))
    assert (ledger.spent().epsilon, ledger.spent().delta) == (1.0, 1e-6)
    assert math.isclose(ledger.tight().epsilon, 1.0, rel_tol=1e-6) and ledger.tight().delta == 1e-6


def test_each_choice_of_a_threshold_costs_anew(ledger: BudgetFile) -> None:
    for day in range(1, 6):
        ran(ledger, plan_of(day, selector="weighted-quantile", threshold=None))
    assert math.isclose(ledger.spent().epsilon, 1.0 + 5 * 0.1)
    assert math.isclose(ledger.spent().rho, gaussian_rho(Z) + 5 * 0.1**2 / 8)


def test_runs_that_are_open_at_once_hold_the_campaign_once_and_one_that_fails_gives_back(
    ledger: BudgetFile,
) -> None:
    first, second = (begin(ledger, plan_of(day)) for day in (1, 2))
    assert ledger.reserved().epsilon == 1.0 and math.isclose(ledger.counted().rho, 2 / 3 * gaussian_rho(Z))
    first.failed("RoundFailed")
    assert ledger.counted().epsilon == 1.0 and math.isclose(ledger.counted().rho, 1 / 3 * gaussian_rho(Z))
    second.record(*planned_charges(plan_of(2)))
    second.released()
    assert ledger.spent().epsilon == 1.0 and ledger.reserved() == Spending()
    third = begin(ledger, plan_of(3))
    third.failed("RoundFailed")
    assert math.isclose(ledger.spent().rho, 1 / 3 * gaussian_rho(Z))


def test_a_campaign_that_never_charged_costs_nothing(ledger: BudgetFile) -> None:
    begin(ledger, plan_of(1)).failed("RoundFailed")
    assert ledger.counted() == Spending()


def test_a_limit_admits_all_windows_of_a_campaign_and_not_another_one(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(1.2, 1e-5))
    for day in range(1, 15):
        ran(ledger, plan_of(day))
    with pytest.raises(BudgetExceeded, match="would be passed"):
        for day in range(1, 4):
            ran(ledger, plan_of(day, campaign="winter"))
    assert ledger.claimed() is not None and ledger.claimed().epsilon <= 1.2  # type: ignore[union-attr]
    ran(ledger, plan_of(16))


def test_a_limit_for_a_whole_campaign_has_its_delta_in_the_share_of_sums(ledger: BudgetFile) -> None:
    """As docs/privacy-campaigns.md says: the campaign's own delta is not enough for a limit."""
    ledger.set_limit(Limit(1.0, 1e-6))
    with pytest.raises(BudgetExceeded):
        for day in range(1, 6):
            ran(ledger, plan_of(day))
    ledger.set_limit(Limit(1.0, 1e-6 / 0.3), replace=True)
    for day in range(6, 12):
        ran(ledger, plan_of(day))


def test_of_many_campaigns_at_once_only_those_that_fit_begin(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(3.0, 1e-5))

    def admitted(number: int) -> bool:
        with contextlib.suppress(BudgetExceeded):
            # Two windows of each: the second one of a campaign that began adds no epsilon.
            begin(ledger, plan_of(number % 28 + 1, campaign=f"c{number // 2}", visits=1))
            return True
        return False

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(admitted, range(20)))
    assert any(found) and not all(found)
    limit = ledger.limit
    assert limit is not None and limit.has_room(ledger.counted())


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_one_user_in_one_window_is_touched_by_all_releases_of_a_campaign(
    ledger: BudgetFile, neighbours: str
) -> None:
    """What a user sends in one window decides what is left for others."""
    for day in (1, 2):
        ran(ledger, plan_of(day, neighbours=neighbours))
    apart = 2 if neighbours == "zero-out" else 1
    for spent in by_window(ledger.runs()).values():
        assert math.isclose(spent.rho, 2 / 3 * apart * gaussian_rho(Z), rel_tol=1e-9)
        assert math.isclose(spent.epsilon, gaussian_epsilon(Z / math.sqrt(apart), 1e-6), rel_tol=1e-6)
    ran(
        ledger,
        plan_of(
            3, campaign=None, visits=None, neighbours=neighbours, selector="weighted-quantile", threshold=None
        ),
    )
    third = by_window(ledger.runs())[Window.parse("2026-11-03")]
    assert math.isclose(third.rho, 0.1**2 / 8 + (1 + 2 / 3 * apart) * gaussian_rho(Z), rel_tol=1e-9)


def test_a_limit_for_one_window_counts_releases_of_a_campaign_in_others(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(1.0, 1e-5), per_window=True)
    ran(ledger, plan_of(1))
    with pytest.raises(BudgetExceeded, match="in one window would be passed: for the window 2026-11-01"):
        for day in range(2, 6):
            ran(ledger, plan_of(day))
    assert len(ledger.runs()) < 4


def test_what_would_fit_is_said_of_a_campaign(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(0.5, 1e-5))
    with pytest.raises(BudgetExceeded, match="It would fit with epsilon"):
        ran(ledger, plan_of(1, visits=1))


def test_a_run_that_a_window_admits_only_by_itself_is_given_nothing_back(ledger: BudgetFile) -> None:
    """For one user in one window a campaign is two bounds: with these, and not with one, the run fits only alone."""
    ledger.set_limit(Limit(1.56, 1e-6), per_window=True)
    plan = plan_of(1, visits=1, selector="weighted-quantile", threshold=None)
    choice, _ = planned_charges(plan)
    run = begin(ledger, plan)
    run.record(choice)
    run.failed("RoundFailed")
    # What came of the choice was seen: nothing that is chosen in view of it may spend the limit a second time.
    with pytest.raises(BudgetExceeded, match="in one window would be passed"):
        begin(ledger, plan_of(1, campaign=None, visits=None, epsilon=0.5))
