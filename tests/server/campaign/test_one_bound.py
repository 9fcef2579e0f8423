"""Campaigns with --visits: one bound for each user over all windows, so that each window has the noise of few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedhist import BudgetFile, InvalidInput
from tests.campaigns import TOTAL, WEEKS, campaign_in, runner_of, runs_of
from tests.support.api import (
    InvalidFile,
    InvalidPlan,
    MemoryFile,
    NotWritten,
    RecordedRun,
    read_definition,
    run_due,
    states_of,
)


def test_all_windows_share_one_bound_and_one_threshold(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, plan={"domain": "closed", "visits": 1}, thresholds=None)
    done = run_due(made.place, runner_of(made))
    assert [window.text for window in done] == list(WEEKS)
    assert made.memory is not None
    assert made.memory.stat().st_mode & 0o777 == 0o600
    plans = [entry.plan for entry in runs_of(made)]
    assert {(plan["campaign"], plan["visits"], plan["epsilon"], plan["delta"]) for plan in plans} == {
        (made.name, 1, made.first.fields["epsilon"], made.first.fields["delta"])
    }
    assert [plan["selector"] for plan in plans] == ["weighted-quantile", *["fixed"] * (len(WEEKS) - 1)]
    budget = BudgetFile.open(made.ledger, create=False)
    assert 0.9 * TOTAL.epsilon < TOTAL.claimed(budget.counted()) <= TOTAL.epsilon
    (tmp_path / "split").mkdir()
    split = campaign_in(tmp_path / "split", thresholds="first")
    run_due(split.place, runner_of(split))
    others = states_of(split, BudgetFile.open(split.ledger, create=False).runs())
    for state, other in zip(states_of(made, budget.runs()), others, strict=True):
        assert state.document is not None
        assert other.document is not None
        assert _noise(state.document) < 0.7 * _noise(other.document)
        # Under one visit a window alone costs what all of them do, and with a choice more.
        assert state.own.epsilon <= state.counted.epsilon


def test_the_definition_is_read_back_with_its_bound(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, plan={"domain": "closed", "visits": 3}, thresholds=None)
    read = read_definition(made.place)
    assert read.first == made.first
    assert read.later == made.later
    assert read.later.cost.campaigns
    assert read.later.cost.times(30).rho == pytest.approx(3 * read.later.cost.rho)


def test_windows_that_choose_again_leave_less_for_the_releases(tmp_path: Path) -> None:
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
    once = campaign_in(tmp_path / "once", plan={"domain": "closed", "visits": 2}, thresholds="first")
    again = campaign_in(tmp_path / "again", plan={"domain": "closed", "visits": 2}, thresholds="choose")
    assert again.first.fields["epsilon"] < once.first.fields["epsilon"]
    assert again.first == again.later


def test_a_lost_memory_is_not_a_second_bound(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, plan={"domain": "closed", "visits": 2}, thresholds=None)
    run_due(made.place, runner_of(made), until=made.due_from(made.windows[1]))
    assert made.memory is not None
    made.memory.unlink()
    with pytest.raises(InvalidFile, match="is gone"):
        run_due(made.place, runner_of(made))
    # A new one in its place knows nobody.
    assert MemoryFile(made.memory).releases("any") == 0
    with pytest.raises(InvalidInput, match="knows of none"):
        run_due(made.place, runner_of(made))


def test_an_older_copy_of_the_memory_is_not_a_second_bound(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, plan={"domain": "closed", "visits": 2}, thresholds=None)
    run_due(made.place, runner_of(made), until=made.due_from(made.windows[0]))
    assert made.memory is not None
    older = made.memory.read_bytes()
    run_due(made.place, runner_of(made), until=made.due_from(made.windows[1]))
    latest = made.memory.read_bytes()
    made.memory.write_bytes(older)
    with pytest.raises(InvalidInput, match=r"has 2 releases .* knows of 1"):
        run_due(made.place, runner_of(made))
    assert len([entry for entry in runs_of(made) if entry.charges]) == 2
    made.memory.write_bytes(latest)
    assert [window.text for window in run_due(made.place, runner_of(made))] == list(WEEKS[2:])


def test_who_repeats_a_window_is_told_that_its_users_have_less_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = {"domain": "closed", "visits": 1, "selector": "fixed", "threshold": 1.0}
    made = campaign_in(tmp_path, plan=fixed, spare=1, thresholds=None)

    def full(*_: Any, **__: Any) -> None:
        raise NotWritten("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(RecordedRun, "write", full)
        with pytest.raises(NotWritten):
            run_due(made.place, runner_of(made))
    said: list[str] = []
    run_due(made.place, runner_of(made), until=made.due_from(made.windows[0]), tell=said.append)
    assert "they have less left for it, or nothing" in said[0]
    assert run_due(made.place, runner_of(made), again=made.windows[:1]) == list(made.windows)


def test_a_bound_that_is_given_needs_no_word_about_thresholds(tmp_path: Path) -> None:
    fixed = {"domain": "closed", "visits": 2, "selector": "fixed", "threshold": 2.0}
    made = campaign_in(tmp_path, plan=fixed, thresholds=None)
    run_due(made.place, runner_of(made))
    assert {entry.plan["threshold"] for entry in runs_of(made)} == {2.0}


def test_a_campaign_draws_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlan, match="name of its own"):
        campaign_in(tmp_path, plan={"domain": "closed", "visits": 2, "campaign": "mine"}, thresholds=None)


def _noise(document: dict[str, float]) -> float:
    """The noise of a release for each count of its threshold."""
    return document["standard_error"] / document["threshold"]
