"""`fedhist.Session`: one budget for several questions, kept by the ledger and not by whoever asks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedhist
from tests.builders import files_in, runs_in
from tests.support.api import what_fits
from tests.support.refusals import refused

FRAME = pd.DataFrame({"user": [f"u{n % 300}" for n in range(900)], "item": ["tea", "milk", "tea"] * 300})
ASKED: dict[str, Any] = {"items": ["tea", "milk"], "epsilon": 0.9, "epsilon_select": 0.1}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "people.ledger"


class TestQuestions:
    def test_each_is_charged_and_the_rest_is_shown(self, ledger: Path) -> None:
        session = fedhist.Session(ledger, epsilon=2.5, delta=1e-5)
        assert (session.spent, session.left) == (fedhist.Cost(0, 1e-5), fedhist.Cost(2.5, 1e-5))
        for _ in range(2):
            before = session.spent.epsilon
            result = session.histogram(FRAME, **ASKED)
            assert list(result.release.names) == ["tea", "milk"]
            assert before < session.spent.epsilon <= before + 1 + 1e-9
            assert session.left.epsilon == pytest.approx(2.5 - session.spent.epsilon)
        # Two questions of epsilon 1 cost less than 2 together.
        assert 1 < session.spent.epsilon < 1.5
        history = session.history
        assert isinstance(history, pd.DataFrame)
        assert history["status"].tolist() == ["released"] * 2
        assert history["epsilon"].tolist() == pytest.approx([1.0, 1.0])
        assert f"epsilon {session.spent.epsilon:.4g} of 2.5" in repr(session)

    def test_one_that_does_not_fit_runs_nothing_and_the_advice_fits(self, ledger: Path) -> None:
        session = fedhist.Session(ledger, epsilon=1.2, delta=1.5e-6)
        session.histogram(FRAME, **ASKED)
        with pytest.raises(fedhist.BudgetExceeded) as refusal:
            session.histogram(FRAME, **ASKED)
        assert len(runs_in(ledger)) == 1
        fits = re.search(
            r"Left: epsilon 0.\d+ at delta 1.5e-06. It would fit with epsilon (0.\d+)\.", str(refusal.value)
        )
        assert fits is not None
        session.histogram(FRAME, **ASKED | {"epsilon": float(fits[1])})
        assert len(runs_in(ledger)) == 2
        assert session.spent.epsilon <= 1.2

    def test_where_no_epsilon_fits_none_is_named(self, ledger: Path) -> None:
        plan = fedhist.Plan(users=10, items=2)
        budget = fedhist.BudgetFile.open(ledger, create=True)
        budget.set_limit(fedhist.Limit(0.05, 1e-5))
        assert what_fits(plan, budget).endswith("Nothing of this kind fits.")
        budget.set_limit(fedhist.Limit(0.4, 1e-5), replace=True)
        assert re.search(r"It would fit with epsilon 0\.\d+\.$", what_fits(plan, budget))

    def test_a_question_that_is_not_private_is_refused(self, ledger: Path) -> None:
        session = fedhist.Session(ledger, epsilon=9, delta=1e-5)
        not_private = ({"domain": "closed"}, {"items": ["tea"], "selector": "oracle"}, {"top_items": 1})
        for asked in (*not_private, {**ASKED, "evaluate": True}):
            with pytest.raises(fedhist.InvalidInput):
                session.histogram(FRAME, **asked)
        assert session.spent.epsilon == 0


class TestSeveralColumns:
    """One after another under one total, with a split that is known before: no service of its own is needed."""

    COLUMNS: ClassVar[dict[str, dict[str, Any]]] = {
        "place": {"items": ["park", "zoo", "pier"]},
        "hour": {"bins": [0, 12, 24]},
        "kind": {"items": ["rest", "work"], "masking": "secagg", "nodes": 6},
    }
    EACH: ClassVar[dict[str, float]] = {"total_epsilon": 0.54, "total_delta": 1e-6 / 30}

    @pytest.fixture
    def visits(self) -> pl.DataFrame:
        random = np.random.default_rng(5)
        return pl.DataFrame(
            {
                "user": random.integers(0, 900, 3_000),
                "place": random.choice(["park", "zoo", "pier"], 3_000),
                "hour": random.uniform(0, 24, 3_000),
                "kind": random.choice(["rest", "work"], 3_000),
            }
        )

    def test_more_fit_than_their_sum_says_and_no_more_than_the_total(self, visits: pl.DataFrame) -> None:
        session = fedhist.Session(epsilon=1.0, delta=1e-6)
        for column, asked in self.COLUMNS.items():
            session.histogram(visits, item=column, **asked, **self.EACH)
        assert 0.9 < session.spent.epsilon <= 1.0 < 3 * self.EACH["total_epsilon"]
        assert session.spent.delta <= 1e-6
        with pytest.raises(fedhist.BudgetExceeded):
            session.histogram(visits, item="place", **self.COLUMNS["place"], **self.EACH)
        assert session.history["status"].to_list() == ["released"] * 3

    def test_one_that_fails_is_spent_and_the_others_are_answered(
        self, visits: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = fedhist.Session(epsilon=1.0, delta=1e-6)
        session.histogram(visits, item="place", **self.COLUMNS["place"], **self.EACH)
        before = session.spent.epsilon
        # Noise comes from devices: it is charged before they are asked.
        silent = {"dropout": 0.5, "noise_from": "devices"} | self.COLUMNS["kind"]
        with pytest.raises(fedhist.RoundFailed):
            session.histogram(visits, item="kind", **silent, **self.EACH)
        session.histogram(visits, item="hour", **self.COLUMNS["hour"], **self.EACH)
        assert session.history["status"].to_list() == ["released", "failed", "released"]
        assert session.spent.epsilon > before


class TestLedger:
    def test_it_outlives_the_session_with_its_limit(self, ledger: Path) -> None:
        fedhist.Session(ledger, epsilon=2, delta=1e-5).histogram(FRAME, **ASKED)
        for same in ({}, {"epsilon": 2, "delta": 1e-5}):
            with fedhist.Session(str(ledger), **same) as session:
                assert session.left.epsilon == pytest.approx(2 - session.spent.epsilon)
                assert session.spent.epsilon > 0.8
        with refused(fedhist.InvalidInput, "other-limit"):
            fedhist.Session(ledger, epsilon=3, delta=1e-5)
        assert session.limit == fedhist.Limit(2, 1e-5)

    @pytest.mark.parametrize("kept", [True, False])
    @pytest.mark.parametrize(
        "limit",
        [{}, {"epsilon": 1}, {"epsilon": float("inf"), "delta": 0}, {"epsilon": -1, "delta": 0}],
        ids=["none", "half", "endless", "negative"],
    )
    def test_a_limit_that_is_none_leaves_no_file(
        self, ledger: Path, limit: dict[str, Any], kept: bool
    ) -> None:
        with pytest.raises(fedhist.InvalidInput):
            fedhist.Session(ledger if kept else None, **limit)
        assert files_in(ledger.parent) == []

    def test_one_without_a_limit_gets_one(self, ledger: Path) -> None:
        fedhist.histogram(FRAME, **ASKED, ledger=ledger)
        with refused(fedhist.InvalidInput, "no-limit"):
            fedhist.Session(ledger)
        session = fedhist.Session(ledger, epsilon=1.5, delta=1e-5)
        assert session.left.epsilon == pytest.approx(1.5 - session.spent.epsilon)
        assert 0.5 <= session.left.epsilon < 0.7

    def test_one_that_vanished_does_not_come_back_empty(self, ledger: Path) -> None:
        session = fedhist.Session(ledger, epsilon=2, delta=1e-5)
        ledger.unlink()
        with refused(fedhist.InvalidInput, "no-ledger"):
            session.histogram(FRAME, **ASKED)
        assert files_in(ledger.parent) == []
        assert repr(session) == "Session('people.ledger', which can't be read)"

    def test_without_a_file_it_ends_with_the_session(self) -> None:
        with fedhist.Session(epsilon=2, delta=1e-5) as session:
            session.histogram(pl.from_pandas(FRAME), **ASKED)
            assert isinstance(session.history, pl.DataFrame)
            assert session.left.epsilon == pytest.approx(2 - session.spent.epsilon)
        assert not session.ledger.path.parent.exists() and repr(session) == "Session(closed)"
        asks = [lambda name=name: getattr(session, name) for name in ("spent", "left", "history")]
        for ask in (*asks, lambda: session.histogram(FRAME, **ASKED)):
            with refused(fedhist.InvalidInput, "session-closed"):
                ask()
