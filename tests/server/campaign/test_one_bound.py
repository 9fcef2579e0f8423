"""Campaigns with --visits: one bound for each user over all windows, so that each window has the noise of few."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist.client.memory_file import MemoryFile
from fedhist.protocol.errors import InvalidFile, InvalidInput, InvalidPlan
from fedhist.server.campaign.definition import read_definition
from fedhist.server.campaign.running import run_due
from fedhist.server.campaign.state import states_of
from fedhist.server.ledger.budget_file import BudgetFile
from tests.campaigns import TOTAL, WEEKS, campaign_in, runner_of, runs_of


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
    assert not MemoryFile(made.memory).knows("any")
    with pytest.raises(InvalidInput, match="knows nothing of them"):
        run_due(made.place, runner_of(made))


def test_a_campaign_draws_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlan, match="name of its own"):
        campaign_in(tmp_path, plan={"domain": "closed", "visits": 2, "campaign": "mine"}, thresholds=None)


def _noise(document: dict[str, float]) -> float:
    """The noise of a release for each count of its threshold."""
    return document["standard_error"] / document["threshold"]
