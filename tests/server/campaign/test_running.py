"""Campaigns: what is due is run once, in order, and whatever is not as it was is refused before anything is spent."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fedhist import BudgetExceeded, BudgetFile, InvalidInput, Limit, Plan, Spending
from tests.builders import rows_of
from tests.campaigns import TOTAL, WEEKS, bytes_in, campaign_in, runner_of, runs_of, visits
from tests.support.api import (
    Definition,
    HeldByAnother,
    InvalidFile,
    NotWritten,
    RecordedRun,
    Window,
    WindowRun,
    budget_file_module,
    only_operator,
    opened,
    planned_charges,
    read_definition,
    result_folder_module,
    run_due,
    states_of,
    undisturbed,
    windows_in,
)
from tests.support.refusals import refused


def run(definition: Definition, data: object = None, *, now: datetime | None = None, **how: Any) -> list[str]:
    """The windows that one call released, by this clock or the machine's."""
    clock = {} if now is None else {"clock": lambda: now}
    done = run_due(definition.place, runner_of(definition, data), **clock, **how)
    return [window.text for window in done]


class Killed(BaseException):
    """Stands for the end of a process, where the ledger can't be told of it."""


def break_off(definition: Definition, *, after_charges: int) -> None:
    """A run of the next window that dies after this many charges; its entry in the ledger stays open."""

    def dying(window: WindowRun) -> None:
        budget = BudgetFile.open(window.ledger, create=False)
        plan = dict(window.fields) | {"users": 120, "items": 3}
        made = Plan(**plan)
        charges = planned_charges(made)
        entry = budget.begin(
            made.digest.hex(), made.to_json(), Spending.of(charges), window.label, datetime.now(UTC)
        )
        for charge in charges[:after_charges]:
            entry.record(charge)
        raise Killed

    with pytest.raises(Killed):
        run_due(definition.place, dying)


def test_what_is_due_is_run_in_order_and_only_once(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    assert run(made, now=datetime(2020, 10, 4, 23, 59, 59, tzinfo=UTC)) == []
    assert run(made, until=datetime(2020, 10, 5, tzinfo=UTC)) == ["2020-W40"]
    first = bytes_in(made.place)
    assert run(made) == list(WEEKS[1:])
    assert first.items() <= bytes_in(made.place).items()
    whole = bytes_in(made.place)
    assert run(made) == []
    assert bytes_in(made.place) == whole
    assert len(runs_of(made)) == 4
    spent = BudgetFile.open(made.ledger, create=False).counted()
    assert 0.99 * TOTAL.epsilon < TOTAL.claimed(spent) <= TOTAL.epsilon


def test_each_release_is_of_its_own_week(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, total=Limit(400, 1e-3))
    run(made)
    values = {
        week: [float(row["value"]) for row in rows_of(made.place / week / "histogram.csv")] for week in WEEKS
    }
    assert values["2020-W40"] == pytest.approx([60, 60, 0], abs=3)
    assert values["2020-W41"] == pytest.approx([40, 40, 40], abs=3)


def test_a_delay_is_waited_for_and_until_is_what_was_due_then(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, delay=2)
    assert run(made, now=datetime(2020, 10, 6, 23, tzinfo=UTC)) == []
    assert run(made, until=datetime(2020, 10, 14, tzinfo=UTC)) == ["2020-W40", "2020-W41"]
    with refused(InvalidInput, "still-to-come"):
        run(made, until=datetime.now(UTC) + timedelta(hours=1))


def test_all_is_utc_whatever_the_zone_of_the_clock(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, windows=windows_in("2020-10-25"))
    berlin = ZoneInfo("Europe/Berlin")
    # The night in which summer time ends there: 2020-10-26 begins at 23:00 UTC of the day before.
    assert run(made, now=datetime(2020, 10, 26, 0, 30, tzinfo=berlin)) == []
    assert run(made, now=datetime(2020, 10, 26, 1, 0, tzinfo=berlin)) == ["2020-10-25"]


def test_a_clock_that_was_set_back_runs_nothing(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    run(made, until=datetime(2020, 10, 5, tzinfo=UTC))
    before = bytes_in(made.place)
    last = max(entry.time for entry in runs_of(made))
    with refused(InvalidInput, "clock-went-back"):
        run(made, now=last - timedelta(hours=1))
    assert bytes_in(made.place) == before
    assert len(runs_of(made)) == 1


def test_a_clock_that_was_ahead_has_run_windows_once_and_none_again(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    ahead = datetime.now(UTC) + timedelta(days=3000)
    assert run(made, now=ahead) == list(WEEKS)
    assert run(made, now=ahead) == run(made) == []


def test_an_attempt_that_charged_nothing_costs_nothing_and_is_made_again(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    break_off(made, after_charges=0)
    said: list[str] = []
    assert run(made, tell=said.append) == list(WEEKS)
    assert "before it charged anything" in said[0]
    assert [entry.status for entry in runs_of(made)] == ["closed", *["released"] * 4]
    assert TOTAL.has_room(BudgetFile.open(made.ledger, create=False).counted())


@pytest.mark.parametrize("charges", [1, 2])
def test_a_charged_attempt_stays_charged_and_is_not_made_again_unasked(tmp_path: Path, charges: int) -> None:
    made = campaign_in(tmp_path, spare=1)
    break_off(made, after_charges=charges)
    lost = runs_of(made)[0].charged
    (first, *_) = states_of(made, runs_of(made))
    assert first.status(datetime.now(UTC)) == "unfinished"
    said: list[str] = []
    assert run(made, tell=said.append) == list(WEEKS[1:])
    assert "2020-W40 was charged" in said[0] and "--again 2020-W40" in said[0]
    assert not (made.place / "2020-W40").exists()
    (first, *_) = states_of(made, runs_of(made))
    assert first.status(datetime.now(UTC)) == "broken off"
    assert run(made, again=[Window.parse("2020-W40")]) == ["2020-W40"]
    entries = runs_of(made)
    assert [entry.status for entry in entries] == ["closed", *["released"] * 4]
    counted = BudgetFile.open(made.ledger, create=False).counted()
    assert counted.epsilon == pytest.approx(lost.epsilon + 4 * made.first.cost.epsilon)


def test_without_room_a_second_charge_is_refused(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    break_off(made, after_charges=2)
    assert run(made) == list(WEEKS[1:])
    with refused(BudgetExceeded, "no-room-for-window", "2020-W40"):
        run(made, again=[Window.parse("2020-W40")])
    assert len(runs_of(made)) == 4


def test_only_what_broke_off_can_be_run_again(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, windows=windows_in("2020-W40,2020-W41,2999-W50"))
    run(made, until=datetime(2020, 10, 5, tzinfo=UTC))
    for window, status in (
        ("2020-W40", "released"),
        ("2020-W41", "due"),
        ("2999-W50", "waiting"),
        ("2020-W49", "not"),
    ):
        with refused(InvalidInput, "not-run-again", window, status):
            run(made, again=[Window.parse(window)])
    assert len(runs_of(made)) == 1


def test_a_run_that_died_after_its_folder_was_written_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = campaign_in(tmp_path)
    write = RecordedRun.write

    def dying(*args: Any, **kwargs: Any) -> Any:
        write(*args, **kwargs)
        raise Killed

    # As if the process had died here: the ledger hears nothing.
    monkeypatch.setattr(RecordedRun, "write", dying)
    monkeypatch.setattr(budget_file_module.OpenRun, "failed", lambda *args: None)
    with pytest.raises(Killed):
        run(made)
    monkeypatch.undo()
    assert [entry.status for entry in runs_of(made)] == ["open"]
    before = bytes_in(made.place)
    assert run(made) == list(WEEKS[1:])
    assert before.items() <= bytes_in(made.place).items()
    assert [entry.status for entry in runs_of(made)] == ["released"] * 4


def test_a_disk_that_takes_no_folder_leaves_a_window_that_broke_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = campaign_in(tmp_path, spare=1)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(result_folder_module, "write_text", full)
    with refused(NotWritten, "not-written"):
        run(made)
    monkeypatch.undo()
    assert [path.name for path in made.place.iterdir() if path.is_dir()] == []
    said: list[str] = []
    assert run(made, tell=said.append) == list(WEEKS[1:])
    assert "broke off" in said[0]


def test_what_a_killed_run_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    left = made.place / ".fedhist-abc.partial"
    left.mkdir()
    (left / "result.json").write_text("{}")
    run(made)
    assert not left.exists()


def test_of_two_operators_one_runs_and_the_other_is_told(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    with only_operator(made.place), refused(HeldByAnother, "held-by-another"):
        run(made)
    outcomes: list[object] = []
    runner = runner_of(made)
    together = threading.Barrier(2)

    def operate() -> None:
        together.wait()
        try:
            outcomes.append(len(run_due(made.place, runner)))
        except HeldByAnother as refusal:
            outcomes.append(str(refusal))

    threads = [threading.Thread(target=operate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The second may also come when the first has ended, and finds nothing to do.
    assert sum(outcome for outcome in outcomes if isinstance(outcome, int)) == 4
    assert len(runs_of(made)) == 4


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_definition_or_list_that_was_changed_is_refused(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    path = made.place / "campaign.json"
    whole = path.read_text()
    for change in (
        lambda document: document["first"].update(epsilon=50),
        lambda document: document["windows"].append("2020-W60"),
        lambda document: document["windows"].append("2020-W44"),
        lambda document: document.pop("ledger"),
    ):
        edit(path, change)
        with pytest.raises(InvalidFile) as caught:
            run(made)
        assert caught.value.code in {"campaign-changed", "damaged-campaign"}
        path.write_text(whole)
    (made.place / "items.txt").write_text("bakery\ncinema\n")
    with refused(InvalidFile, "campaign-changed"):
        run(made)
    assert runs_of(made) == []


def test_a_definition_with_keys_of_another_version_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    read = read_definition(made.place)
    assert read == made and read.digest == made.digest
    assert read.moved(made.place).digest == made.digest
    edit(made.place / "campaign.json", lambda document: document.update(later_key=1))
    assert read_definition(made.place).digest != made.digest


def test_a_ledger_that_was_deleted_or_replaced_is_refused(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    early = made.ledger.read_bytes()
    run(made, until=datetime(2020, 10, 5, tzinfo=UTC))
    made.ledger.rename(tmp_path / "away.db")
    with refused(InvalidFile, "ledger-gone"):
        run(made)
    assert not made.ledger.exists()
    BudgetFile.open(made.ledger, create=True)
    with refused(InvalidFile, "ledger-replaced"):
        run(made)
    made.ledger.write_bytes(early)
    with refused(InvalidFile, "unknown-release"):
        run(made)


def test_a_release_that_was_taken_away_or_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    run(made, until=datetime(2020, 10, 12, tzinfo=UTC))
    week = made.place / "2020-W40"
    week.rename(tmp_path / "away")
    with refused(InvalidFile, "release-gone", "2020-W40"):
        run(made)
    shutil.copytree(made.place / "2020-W41", week)
    with refused(InvalidFile, "not-this-release", "2020-W40"):
        run(made)
    shutil.rmtree(week)
    week.write_text("notes")
    with refused(InvalidFile, "not-this-release", "2020-W40"):
        run(made)
    assert len(runs_of(made)) == 2


def test_a_folder_that_was_moved_or_copied_is_refused_until_that_is_said(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    run(made, until=datetime(2020, 10, 5, tzinfo=UTC))
    copy = tmp_path / "copy"
    shutil.copytree(made.place, copy)
    with refused(InvalidFile, "campaign-moved"):
        run_due(copy, runner_of(made))
    with refused(InvalidFile, "campaign-copied"):
        run_due(copy, runner_of(made), moved=True)
    shutil.rmtree(made.place)
    with refused(InvalidFile, "campaign-moved", "--moved"):
        opened(copy)
    done = run_due(copy, runner_of(made), moved=True)
    assert [window.text for window in done] == list(WEEKS[1:])
    assert read_definition(copy).place == copy
    assert run_due(copy, runner_of(made)) == []


def test_somebody_elses_folder_is_no_campaign_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    with refused(InvalidFile, "not-a-campaign"):
        run_due(tmp_path / "theirs", lambda window: None)
    assert list((tmp_path / "theirs").iterdir()) == []


def test_other_runs_of_the_ledger_take_from_the_last_windows_and_nothing_is_passed(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    run(made, until=datetime(2020, 10, 12, tzinfo=UTC))
    budget = BudgetFile.open(made.ledger, create=False)
    other = budget.begin("other", {}, made.first.cost, "another run", datetime.now(UTC))
    other.failed("RoundFailed")
    assert run(made, until=datetime(2020, 10, 19, tzinfo=UTC)) == ["2020-W42"]
    budget.begin("other", {}, made.first.cost, "another run", datetime.now(UTC))
    with refused(BudgetExceeded, "budget-exceeded"):
        run(made)
    assert not (made.place / "2020-W43").exists()


def test_a_ledger_with_a_limit_keeps_it_and_gives_the_campaign_what_is_left(tmp_path: Path) -> None:
    budget = BudgetFile.open(tmp_path / "ledger.db", create=True)
    budget.set_limit(Limit(2, 1e-6))
    made = campaign_in(tmp_path, total=None)
    assert made.total == budget.limit == Limit(2, 1e-6)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"total": None}, ("no-limit", "ledger")),
        ({"plan": {"domain": "closed", "epsilon": 1.0}}, ("fields-of-the-campaign", "epsilon")),
        ({"plan": {"domain": "closed", "window": "2020-W40"}}, ("fields-of-the-campaign", "window")),
        ({"spare": -1}, ("bad-value", "--spare")),
        ({"delay": 10**6}, ("bad-value", "--delay")),
        ({"thresholds": "guess"}, ("bad-value", "--thresholds", "guess")),
        ({"discover": "first"}, ("finds-no-items",)),
        ({"plan": {"domain": "closed", "threshold": 3.0}, "thresholds": "narrow"}, ("fixed-threshold",)),
        ({"total": Limit(1e-7, 1e-9)}, ("noise-too-wide",)),
    ],
)
def test_what_is_no_campaign_leaves_nothing_behind(
    tmp_path: Path, changes: dict[str, Any], told: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *told):
        campaign_in(tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_total_without_delta_is_run_with_laplace_noise(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, total=Limit(4, 0))
    run_due(made.place, runner_of(made))
    assert {(entry.plan["mechanism"], entry.plan["delta"]) for entry in runs_of(made)} == {("laplace", 0)}
    counted = BudgetFile.open(made.ledger, create=False).counted()
    assert counted.delta == 0
    assert 3.9 < counted.epsilon <= 4


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "campaign").mkdir()
    with refused(InvalidFile, "exists-already"):
        campaign_in(tmp_path)
    assert not (tmp_path / "ledger.db").exists()


OPEN: dict[str, Any] = {
    "plan": {"domain": "open", "users": 120},
    "items": None,
    "total": Limit(60, 1e-3),
}


def plans_of(definition: Definition) -> list[dict[str, Any]]:
    return [dict(entry.plan) for entry in runs_of(definition)]


def test_items_that_were_released_are_known_from_then_on(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, **OPEN)
    run(made)
    known = [plan["known_items"] for plan in plans_of(made)]
    assert known == [None, "bakery\ncinema", "bakery\ncinema\nlibrary", "bakery\ncinema\nlibrary"]


def test_with_one_discovery_later_windows_are_closed_and_have_less_noise(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, discover="first", **OPEN)
    run(made)
    plans = plans_of(made)
    assert [plan["domain"] for plan in plans] == ["open", "closed", "closed", "closed"]
    assert [plan["items"] for plan in plans[1:]] == [2, 2, 2]
    assert [row["item"] for row in rows_of(made.place / "2020-W43" / "histogram.csv")] == ["bakery", "cinema"]
    assert len(runs_of(made)) == 4


def test_a_first_window_that_finds_nothing_settles_nothing(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, discover="first", thresholds="first", **OPEN)
    table = visits()
    run(made, table.filter(table["when"] > "2020-10-01"))
    assert [(plan["domain"], plan["selector"]) for plan in plans_of(made)] == [
        ("open", "weighted-quantile"),
        ("open", "weighted-quantile"),
        ("closed", "fixed"),
        ("closed", "fixed"),
    ]


def test_the_first_threshold_is_kept(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, thresholds="first")
    run(made)
    states = states_of(made, BudgetFile.open(made.ledger, create=False).runs())
    thresholds = {state.document["threshold"] for state in states if state.document is not None}
    assert len(thresholds) == 1
    assert [plan["selector"] for plan in plans_of(made)] == ["weighted-quantile", *["fixed"] * 3]
    assert made.later.fields["epsilon"] > made.first.fields["epsilon"]


def test_a_choice_near_the_last_threshold_stays_in_the_range_of_the_plan(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, thresholds="narrow")
    run(made)
    first, *later = plans_of(made)
    assert (first["min_threshold"], first["max_threshold"]) == (1.0, 1500.0)
    states = states_of(made, BudgetFile.open(made.ledger, create=False).runs())
    for plan, state in zip(later, states, strict=False):
        assert state.document is not None
        chosen = state.document["threshold"]
        assert plan["min_threshold"] == max(1.0, chosen / 8)
        assert plan["max_threshold"] == pytest.approx(min(1500.0, 8 * chosen))


def test_an_interrupt_while_a_release_is_written_stops_before_the_next_window(tmp_path: Path) -> None:
    made = campaign_in(tmp_path)
    usual = runner_of(made)

    def interrupted(window: WindowRun) -> None:
        usual(window)
        with undisturbed():
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_due(made.place, interrupted)
    assert [state.window.text for state in states_of(made, runs_of(made)) if state.document] == [WEEKS[0]]
    assert len(run_due(made.place, usual)) == len(WEEKS) - 1
