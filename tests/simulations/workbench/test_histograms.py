"""`fedhist.histograms`: several questions about the same people under one budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedhist
from fedhist import Columns, RoundFailed
from tests.builders import files_in, runs_in
from tests.support.api import InProcess, Request, Round, Total, labels_of, seed_of_question, tight_total
from tests.support.api import in_process_module as in_process
from tests.support.api import masked_in_process_module as masked_in_process

PLACES, KINDS, EDGES = ["park", "shop", "pier"], ["rest", "work"], [0, 12, 24]
_RANDOM = np.random.default_rng(5)
FRAME = pl.DataFrame(
    {
        "user": _RANDOM.integers(0, 600, 3_000),
        "place": _RANDOM.choice(PLACES, 3_000, p=[0.6, 0.3, 0.1]),
        "kind": _RANDOM.choice(KINDS, 3_000),
        "hour": _RANDOM.uniform(0, 24, 3_000),
    }
)
QUESTIONS: dict[str, dict[str, Any]] = {
    "place": {"items": PLACES, "weight": 2},
    "kind": {"items": KINDS},
    "hour": {"bins": EDGES},
}
TOTAL = {"total_epsilon": 4.0, "total_delta": 1e-6}
MASKED = {"masking": "secagg", "nodes": 8}


def values_of(answers: Any) -> dict[str, list[float]]:
    return {name: result.release.histogram.tolist() for name, result in answers.items()}


def failing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second round of the question with these items fail."""
    whole = InProcess.total

    def total(self: InProcess, request: Request) -> Total:
        found = whole(self, request)
        if request.round is Round.RELEASE and name in (labels_of(self.population) or ()):
            raise RoundFailed("nobody answered")
        return found

    monkeypatch.setattr(InProcess, "total", total)


def test_each_question_is_answered_and_all_cost_the_total_together() -> None:
    answers = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1)
    assert list(answers) == ["place", "kind", "hour"]
    for name, result in answers.items():
        found = result.to_frame()["value"].to_numpy()
        columns = Columns(item=name, bins=QUESTIONS[name].get("bins"))
        items = QUESTIONS[name].get("items")
        exact = fedhist.true_histogram(fedhist.read_frame(FRAME, columns=columns, items=items))
        assert np.abs(found - exact).max() < 0.35 * exact.sum()
    charges = [charge for result in answers.values() for charge in result.release.charges]
    assert 3.96 < tight_total(charges).epsilon <= 4.0
    assert tight_total(charges) == answers.total
    assert answers.total.epsilon < answers.basic.epsilon
    place, kind = answers["place"].release, answers["kind"].release
    assert (kind.standard_error / kind.threshold) ** 2 == pytest.approx(
        2 * (place.standard_error / place.threshold) ** 2, rel=1e-3
    )


def test_a_question_is_a_run_of_its_plan_with_its_own_seed() -> None:
    answers = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1)
    population = fedhist.read_frame(FRAME, columns=Columns(item="place"), items=PLACES)
    seed = seed_of_question(1, "place")
    assert answers["place"].seed == seed
    alone = fedhist.simulate(population, answers.plans["place"], seed=seed)
    assert alone.release.histogram.tolist() == answers["place"].release.histogram.tolist()
    assert alone.threshold == answers["place"].threshold
    assert len({result.seed for result in answers.values()}) == 3


@pytest.mark.parametrize("noise_from", ["server", "devices"])
def test_masked_together_in_one_session_a_round_gives_what_sessions_of_their_own_give(
    noise_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[int] = []
    run_cohort = in_process.masked_together.__globals__["run_cohort"]

    def counted(terms: Any, *arguments: Any, **more: Any) -> Any:
        sessions.append(terms.length)
        return run_cohort(terms, *arguments, **more)

    monkeypatch.setitem(in_process.masked_together.__globals__, "run_cohort", counted)
    answers = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1, **MASKED, noise_from=noise_from)
    assert len(sessions) == 2
    # A user count for each question, and a value for each item: 3 places, 2 kinds, 2 bins.
    assert sessions[-1] == 3 + 3 + 2 + 2
    for name, result in answers.items():
        columns = Columns(item=name, bins=QUESTIONS[name].get("bins"))
        population = fedhist.read_frame(FRAME, columns=columns, items=QUESTIONS[name].get("items"))
        alone = fedhist.simulate(population, answers.plans[name], seed=result.seed)
        assert alone.release.histogram.tolist() == result.release.histogram.tolist()
    assert len(sessions) == 2 + 3 * 2
    if noise_from == "server":
        plain = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1)
        assert values_of(plain) == values_of(answers)


def test_masked_questions_that_find_their_items_share_sessions_with_those_that_do_not() -> None:
    questions = {"place": {"domain": "open", "table_capacity": 64}, "kind": {"items": KINDS}}
    answers = fedhist.histograms(
        FRAME, questions, total_epsilon=9, total_delta=1e-4, seed=2, **MASKED, max_threshold=50
    )
    assert set(answers["place"].to_frame()["item"]) <= set(PLACES)
    assert set(answers["place"].rounds) == {"discover", "select", "release"}
    assert answers["place"].rounds["release"].size == answers["kind"].rounds["release"].size


class TestLedger:
    def test_all_questions_are_one_run_whose_charges_say_what_they_are_for(self, tmp_path: Path) -> None:
        ledger = tmp_path / "people.ledger"
        with fedhist.Session(ledger, epsilon=5, delta=1e-5) as session:
            answers = session.histograms(FRAME, QUESTIONS, **TOTAL)
            assert 0 < session.spent.epsilon < answers.basic.epsilon
        [run] = runs_in(ledger)
        assert run.status == "released"
        named = [charge.parameters["question"] for charge in run.charges]
        assert sorted(named) == sorted([*QUESTIONS, *QUESTIONS])
        assert tight_total(run.charges).epsilon <= 4.0

    def test_what_does_not_fit_runs_nothing_at_all(self, tmp_path: Path) -> None:
        ledger = tmp_path / "people.ledger"
        session = fedhist.Session(ledger, epsilon=1, delta=1e-5)
        with pytest.raises(fedhist.BudgetExceeded, match="None of the 3 questions was run"):
            session.histograms(FRAME, QUESTIONS, **TOTAL, out=tmp_path / "answers")
        assert runs_in(ledger) == []
        assert not (tmp_path / "answers").exists()

    def test_a_question_that_fails_is_spent_and_the_others_are_released(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing("rest", monkeypatch)
        ledger, out = tmp_path / "people.ledger", tmp_path / "answers"
        answers = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, ledger=ledger, out=out)
        assert list(answers) == ["place", "hour"]
        assert list(answers.failed) == ["kind"]
        assert "kind" not in answers
        with pytest.raises(KeyError, match="kind failed and has no result: nobody answered"):
            answers["kind"]
        assert "kind failed (RoundFailed)" in answers.notes[0] and "spent" in answers.notes[0]
        [run] = runs_in(ledger)
        assert run.status == "released"
        named = [charge.parameters["question"] for charge in run.charges]
        assert named.count("kind") == 1 and named.count("hour") == 2
        document = json.loads((out / "result.json").read_text())
        assert document["questions"]["kind"]["status"] == "failed"
        assert "nobody answered" not in json.dumps(document)
        assert sorted(path.name for path in out.iterdir()) == ["hour", "place", "result.json"]

    def test_where_all_fail_the_run_has_failed(self, tmp_path: Path) -> None:
        ledger = tmp_path / "people.ledger"
        with pytest.raises(RoundFailed):
            fedhist.histograms(
                FRAME, ["place", "kind"], **TOTAL, ledger=ledger, dropout=0.5, nodes=4, minimum_cohort=500
            )
        assert [run.status for run in runs_in(ledger)] == ["failed"]


def test_the_folder_has_a_folder_for_each_question_or_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1, out=tmp_path / "answers")
    assert json.loads((tmp_path / "answers" / "result.json").read_text()) == json.loads(
        json.dumps(answers.to_json() | {})
    ) | {"questions": json.loads((tmp_path / "answers" / "result.json").read_text())["questions"]}
    for name in QUESTIONS:
        assert {"result.json", "histogram.csv", "plan.json"} <= set(files_in(tmp_path / "answers" / name))

    from tests.support.api import questions_module as questions

    def stopped(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(questions, "write_results", stopped)
    with pytest.raises(KeyboardInterrupt):
        fedhist.histograms(
            FRAME, QUESTIONS, **TOTAL, out=tmp_path / "stopped", ledger=tmp_path / "people.ledger"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers", "people.ledger"]
    [run] = runs_in(tmp_path / "people.ledger")
    assert (run.status, run.reason) == ("failed", "KeyboardInterrupt")


def test_a_total_that_is_too_small_is_warned_of_before_it_is_charged(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with pytest.raises(UserWarning, match="place: the noise will exceed a typical item"):
        fedhist.histograms(FRAME, QUESTIONS, total_epsilon=0.01, ledger=ledger)
    assert not ledger.exists()


@pytest.mark.parametrize(
    ("questions", "settings", "words"),
    [
        ({"town": {}}, {}, "town"),
        ("place", {}, "questions are no names"),
        ({}, {}, "questions are no names"),
        (["place", "place"], {}, "named twice"),
        ({"place": {}, "Place": {"item": "place"}}, {}, "two questions are called"),
        ({"../place": {"item": "place"}}, {}, "it names a folder"),
        ({"place": {"weight": 0}}, {}, "the weight of place is 0"),
        ({"place": {"wieght": 2}}, {}, "did you mean weight"),
        ({"place": {"epsilon": 2}}, {}, "has the setting 'epsilon'"),
        ({"place": {"masking": "secagg"}}, {}, "give it once"),
        ({"place": {}}, {"epsilon": 1.0}, "epsilon for several questions"),
        ({"place": {"domain": "closed"}}, {}, "inferred from the data"),
    ],
)
def test_what_can_not_be_asked_is_refused_in_words(
    questions: Any, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "people.ledger"
    with pytest.raises(fedhist.InvalidInput, match=words):
        fedhist.histograms(FRAME, questions, **TOTAL | settings, ledger=ledger)
    assert not ledger.exists()


def test_a_sum_that_can_not_be_read_in_a_shared_session_leaves_the_other_questions_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = masked_in_process.to_total

    def to_total(vector: Any, request: Request, *, participants: int) -> Total:
        if request.plan.items == len(PLACES) and request.round is Round.RELEASE:
            raise RoundFailed("the participants declare too many users")
        return read(vector, request, participants=participants)

    whole = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1, **MASKED)
    monkeypatch.setattr(masked_in_process, "to_total", to_total)
    answers = fedhist.histograms(FRAME, QUESTIONS, **TOTAL, seed=1, **MASKED)
    assert list(answers.failed) == ["place"]
    assert values_of(answers) == {name: values_of(whole)[name] for name in ("kind", "hour")}


def test_a_shared_session_without_enough_participants_fails_all_and_is_spent(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with pytest.raises(RoundFailed, match="nothing was unmasked"):
        fedhist.histograms(FRAME, QUESTIONS, **TOTAL, **MASKED | {"nodes": 20}, dropout=0.5, ledger=ledger)
    [run] = runs_in(ledger)
    assert run.status == "failed"
