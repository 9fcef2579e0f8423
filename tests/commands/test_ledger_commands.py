"""`fedhist ledger`: show, limit and close."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedhist import BudgetFile, Charge, Cost, Limit, Spending
from tests.builders import Fedhist
from tests.support.api import PureLoss

NOW = datetime(2024, 5, 17, 12, 30, tzinfo=UTC)
PLAN_HASH = "0123456789abcdef" * 4
STEP = Charge("select", "exponential-mechanism", {}, 1.0, "score", "zero-out", 0.25, 0.0, PureLoss())


@pytest.fixture
def budget(tmp_path: Path) -> BudgetFile:
    """A ledger with one run that was released and one whose process died."""
    budget = BudgetFile.open(tmp_path / "l.db", create=True)
    plan = {"selector": "weighted-quantile", "users": 7}
    released = budget.begin(PLAN_HASH, plan, Spending.of_cost(Cost(1.0, 1e-6)), label="survey.csv", now=NOW)
    released.record(STEP)
    released.released()
    died = budget.begin(PLAN_HASH, plan, Spending.of_cost(Cost(2.0, 1e-6)), label="survey.csv", now=NOW)
    died.record(STEP)
    return budget


def shown(fedhist: Fedhist) -> dict[str, Any]:
    outcome = fedhist("ledger", "show", "l.db", "--json")
    assert outcome.out.count("\n") == 1
    document: dict[str, Any] = outcome.document()
    return document


class TestShow:
    def test_json_tells_what_was_spent_by_which_plan(self, fedhist: Fedhist, budget: BudgetFile) -> None:
        document = shown(fedhist)
        assert document["limit"] is None
        assert document["spent"] == {"epsilon": 0.25, "delta": 0}
        assert document["reserved"] == {"epsilon": 2, "delta": 1e-6}
        assert document["total"] == {"epsilon": 2.25, "delta": 1e-6}
        assert document["tight"]["epsilon"] <= 2.25
        first, second = document["runs"]
        assert (first["run"], first["status"], first["data"]) == (1, "released", "survey.csv")
        assert (second["run"], second["status"]) == (2, "open")
        assert first["plan_digest"] == PLAN_HASH
        assert first["plan"]["selector"] == "weighted-quantile"
        assert first["time"] == "2024-05-17T12:30:00+00:00"
        assert first["charged"] == {"epsilon": 0.25, "delta": 0}
        assert [charge["name"] for charge in first["charges"]] == ["exponential-mechanism"]

    def test_a_person_reads_the_same(self, fedhist: Fedhist, budget: BudgetFile) -> None:
        text = fedhist("ledger", "show", "l.db").out
        for words in (
            "ledger l.db", "2024-05-17 12:30:00", PLAN_HASH[:8], "survey.csv", "weighted-quantile", "released",
            "open", "sum:   epsilon 2.25", "held:  epsilon 2,", "ledger close", "tight: epsilon 2.25",
            "fixed beforehand", "limit: none",
        ):  # fmt: skip
            assert words in text
        assert "left:" not in text

    def test_it_tells_what_is_left_of_a_limit(self, fedhist: Fedhist, budget: BudgetFile) -> None:
        budget.set_limit(Limit(3.0, 1e-5))
        text = fedhist("ledger", "show", "l.db").out
        assert "spent: epsilon 2.25 of the limit" in text
        assert "limit: epsilon 3, delta 1e-05" in text
        assert "left:  epsilon 0.75, room for 0 more runs like the last" in text
        document = shown(fedhist)
        assert (document["left"]["epsilon"], document["runs_left"]) == (0.75, 0)


class TestLimit:
    def test_it_makes_the_ledger_and_changes_the_limit_if_that_is_meant(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        outcome = fedhist("ledger", "limit", "l.db", "--epsilon", 3, "--delta", 1e-5)
        assert outcome.code == 0
        assert outcome.out == "limit of l.db: epsilon 3, delta 1e-05\n"
        refused = fedhist("ledger", "limit", "l.db", "--epsilon", 9, "--delta", 1e-5)
        assert refused.code == 2
        assert "setting a limit once" in refused.err
        assert BudgetFile.open(tmp_path / "l.db", create=False).limit == Limit(3, 1e-5)
        assert fedhist("ledger", "limit", "l.db", "--epsilon", 9, "--delta", 1e-5, "--replace").code == 0
        assert BudgetFile.open(tmp_path / "l.db", create=False).limit == Limit(9, 1e-5)


class TestClose:
    def test_a_dead_run_counts_what_it_charged_from_then_on(
        self, fedhist: Fedhist, budget: BudgetFile
    ) -> None:
        outcome = fedhist("ledger", "close", "l.db", 2)
        assert outcome.code == 0
        assert outcome.out == "run 2 of l.db is closed\n"
        assert budget.reserved() == Spending()
        assert budget.spent().cost == Cost(0.5, 0)
        assert shown(fedhist)["runs"][1]["status"] == "closed"
