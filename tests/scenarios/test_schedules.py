"""Schedules: what is due is run once, in order; what is not as it was is refused before anything is spent.

The table of states in `server/schedule.py` is the specification; each of its rows has a test here.
"""

from __future__ import annotations

import shutil
import signal
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from fedhist import BudgetExceeded, BudgetFile, InvalidInput, Limit, Plan, Schedule, Spending
from tests.builders import rows_of
from tests.support.api import (
    HeldByAnother,
    InvalidFile,
    NotWritten,
    RecordedRun,
    budget_file_module,
    folder_module,
    held_off,
    only_operator,
    planned_charges,
)
from tests.support.refusals import refused
from tests.support.schedules import (
    TOTAL,
    WEEKS,
    bytes_in,
    clock,
    ledger_of,
    runs_of,
    said_in,
    schedule_in,
    statuses,
    visits,
)


def run(made: Schedule, data: object = None, **how: Any) -> list[str]:
    """The windows that one call released."""
    return list(made.run(visits() if data is None else data, **how))


class Killed(BaseException):
    """Stands for the end of a process, where the ledger can't be told of it."""


def die(made: Schedule, *, after_charges: int, window: str = "2020-W40") -> Spending:
    """What a run of this window charges that dies after so many charges; its entry in the ledger stays open."""
    plan = Plan(**said_in(made)["plan"], users=120, window=window)
    charges = planned_charges(plan)
    entry = ledger_of(made).begin(
        plan.digest.hex(), plan.to_json(), Spending.of(charges), f"autumn/{window}", datetime.now(UTC)
    )
    for charge in charges[:after_charges]:
        entry.record(charge)
    return Spending.of(charges[:after_charges])


def test_what_is_due_is_run_in_order_and_only_once(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    with clock(2020, 10, 4, 23, 59, 59):
        assert run(made) == []
        assert statuses(made) == ["waiting"] * 4
    assert statuses(made) == ["due"] * 4
    assert run(made, until="2020-10-05") == ["2020-W40"]
    first = bytes_in(made.folder)
    assert run(made) == list(WEEKS[1:])
    assert first.items() <= bytes_in(made.folder).items()
    whole = bytes_in(made.folder)
    assert run(made) == []
    assert bytes_in(made.folder) == whole
    assert [entry.label for entry in runs_of(made)] == [f"autumn/{week}" for week in WEEKS]
    assert statuses(made) == ["done"] * 4
    spent = ledger_of(made).counted()
    assert 0.99 * TOTAL.epsilon < TOTAL.claimed(spent) <= TOTAL.epsilon


def test_each_release_is_of_its_own_week(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, epsilon=400, delta=1e-3)
    run(made)
    values = {
        week: [float(row["value"]) for row in rows_of(made.folder / week / "histogram.csv")] for week in WEEKS
    }
    assert values["2020-W40"] == pytest.approx([60, 60, 0], abs=3)
    assert values["2020-W41"] == pytest.approx([40, 40, 40], abs=3)


def test_a_delay_is_waited_for_and_until_is_what_was_due_then(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, delay=2)
    with clock(2020, 10, 6, 23):
        assert run(made) == []
    assert run(made, until=date(2020, 10, 14)) == ["2020-W40", "2020-W41"]
    for still_to_come in (datetime.now(UTC) + timedelta(hours=1), "9999-12-31T23:59-14:00"):
        with refused(InvalidInput, "not-past"):
            run(made, until=still_to_come)
    for no_time in ("tomorrow", 2020):
        with refused(InvalidInput, "not-past", no_time):
            run(made, until=no_time)


def test_all_is_utc_whatever_the_zone_of_the_clock(tmp_path: Path) -> None:
    made, table = (
        schedule_in(tmp_path, windows="2020-10-25"),
        visits().with_columns(when=pl.lit("2020-10-25")),
    )
    # The night in which summer time ends there: 2020-10-26 begins at 23:00 UTC of the day before.
    for hour, released in ((0, []), (1, ["2020-10-25"])):
        with clock(2020, 10, 26, hour, zone=ZoneInfo("Europe/Berlin")):
            assert run(made, table) == released


def test_a_clock_that_was_set_back_runs_nothing(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    with clock(2020, 10, 5):
        run(made)
    before = bytes_in(made.folder)
    moment = max(entry.time for entry in runs_of(made)) - timedelta(hours=1)
    with clock(*moment.timetuple()[:6]), refused(InvalidInput, "clock-went-back"):
        run(made)
    assert bytes_in(made.folder) == before
    assert len(runs_of(made)) == 1


def test_a_clock_that_was_ahead_has_run_windows_once_and_none_again(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    with clock(2999, 1, 1):
        assert run(made) == list(WEEKS)
        assert run(made) == []
    assert statuses(made) == ["done"] * 4


def test_an_attempt_that_charged_nothing_costs_nothing_and_is_made_again(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    die(made, after_charges=0)
    assert statuses(made)[0] == "reserved"
    with pytest.warns(UserWarning, match="before it charged anything"):
        assert run(made) == list(WEEKS)
    assert [entry.status for entry in runs_of(made)] == ["closed", *["released"] * 4]
    assert TOTAL.has_room(ledger_of(made).counted())


@pytest.mark.parametrize("charges", [1, 2])
def test_a_charged_attempt_stays_charged_and_is_not_made_again_unasked(tmp_path: Path, charges: int) -> None:
    made = schedule_in(tmp_path, spare=1)
    lost = die(made, after_charges=charges)
    assert statuses(made)[0] == "reserved"
    with pytest.warns(UserWarning, match="--again 2020-W40"):
        assert run(made) == list(WEEKS[1:])
    assert not (made.folder / "2020-W40").exists()
    assert statuses(made) == ["lost", *["done"] * 3]
    assert any("2020-W40 is lost" in note for note in made.show()["notes"])
    assert run(made, again=["2020-W40"]) == ["2020-W40"]
    assert [entry.status for entry in runs_of(made)] == ["closed", *["released"] * 4]
    counted = ledger_of(made).counted()
    assert counted.epsilon == pytest.approx(lost.epsilon + 4 * runs_of(made)[1].charged.epsilon)
    assert made.show()["spent"]["epsilon"] == TOTAL.claimed(counted)


def test_without_room_a_second_charge_is_refused(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    die(made, after_charges=2)
    with pytest.warns(UserWarning, match="is lost"):
        assert run(made) == list(WEEKS[1:])
    ledger_of(made).set_limit(Limit(40, 1e-5), replace=True)
    with refused(BudgetExceeded, "no-room-for-window", "2020-W40"):
        run(made, again="2020-W40")
    assert len(runs_of(made)) == 4


def test_only_what_is_lost_can_be_run_again(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, windows="2020-W40,2020-W41,2999-W50")
    run(made, until="2020-10-05")
    for window, status in (
        ("2020-W40", "done"),
        ("2020-W41", "due"),
        ("2999-W50", "waiting"),
        ("2020-W49", "not in the calendar"),
    ):
        with refused(InvalidInput, "not-run-again", window, status):
            run(made, again=[window])
    assert len(runs_of(made)) == 1


def test_a_run_that_died_after_its_folder_was_written_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule_in(tmp_path)
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
    before = bytes_in(made.folder)
    assert run(made) == list(WEEKS[1:])
    assert before.items() <= bytes_in(made.folder).items()
    assert [entry.status for entry in runs_of(made)] == ["released"] * 4


def test_a_disk_that_takes_no_folder_leaves_a_window_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule_in(tmp_path, spare=1)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "write_text", full)
    with refused(NotWritten, "not-written"):
        run(made)
    monkeypatch.undo()
    assert [path.name for path in made.folder.iterdir() if path.is_dir()] == []
    with pytest.warns(UserWarning, match="is lost"):
        assert run(made) == list(WEEKS[1:])


def test_what_a_killed_run_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    left = made.folder / ".fedhist-abc.partial"
    left.mkdir()
    (left / "result.json").write_text("{}")
    run(made)
    assert not list(made.folder.glob(".*partial"))


def test_of_two_operators_one_runs_and_the_other_is_told(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    with only_operator(made.folder), refused(HeldByAnother, "held-by-another"):
        run(made)
    outcomes: list[object] = []
    together = threading.Barrier(2)

    def operate() -> None:
        together.wait()
        try:
            outcomes.append(len(run(made)))
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


def edit(made: Schedule, *changes: tuple[str, str]) -> None:
    path = made.folder / "schedule.toml"
    text = path.read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def test_a_wrong_column_is_corrected_in_the_file(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, time="wehn", user="who")
    with pytest.raises(InvalidInput):
        run(made)
    assert runs_of(made) == []
    edit(made, ('"wehn"', '"when"'), ('"who"', '"user"'))
    assert run(Schedule(made.folder)) == list(WEEKS)


@pytest.mark.parametrize(
    "change",
    [
        ('name = "autumn"', 'name = "spring"\nname = "winter"'),
        ('name = "autumn"', ""),
        ("delay = 0", "delay = 'two'"),
        ("delay = 0", "delay = true"),
        ("delay = 0", "delays = 0"),
        ("[total]", "[total]\nepsilom = 3"),
        ("[total]", "[totals]"),
        ("[columns]", "[columns]\nwhere = 'here'"),
        ("[columns]", "[columns]\nseparator = 3"),
        ("[plan]", "[plan]\nepsilons = 3"),
        ("[plan]", '[plan]\nmechanism = "gausian"'),
        ("2020-W43", "2020-W39"),
        ("epsilon = 4", "epsilon = -4"),
        ("delay = 0", f"delay = {'[' * 5_000}"),
        ("[columns]", "[columns]\nbins = 1.5"),
        ("[columns]", "[columns]\nbins = ['1,2']"),
        ('"items.txt"', '"items\\u0000.txt"'),
    ],
)
def test_a_file_that_says_no_schedule_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    made = schedule_in(tmp_path)
    edit(made, change)
    with pytest.raises(InvalidInput):
        Schedule(made.folder).run(visits())
    assert BudgetFile.open(tmp_path / "ledger.db", create=False).charges() == []


def test_a_total_that_is_edited_is_still_held_by_the_ledger(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    budget = said_in(made)["plan"]["epsilon"]
    edit(made, ("epsilon = 4", "epsilon = 400"), (f"epsilon = {budget!r}", f"epsilon = {2 * budget!r}"))
    with pytest.raises(BudgetExceeded):
        run(Schedule(made.folder))
    assert TOTAL.has_room(ledger_of(made).counted())


def test_a_session_older_than_a_correction_charges_the_ledger_whose_room_is_checked(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    shutil.copy(tmp_path / "ledger.db", tmp_path / "moved.db")
    edit(made, ("ledger.db", "moved.db"))
    assert run(made) == list(WEEKS)
    assert BudgetFile.open(tmp_path / "ledger.db", create=False).charges() == []
    assert len(runs_of(made)) == 4


def test_a_budget_that_the_file_leaves_out_costs_what_was_checked(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, selector="dpsgd", mechanism="gaussian", windows="2020-W40")
    delta = said_in(made)["plan"]["delta_select"]
    edit(made, (f"delta_select = {delta!r}\n", ""), ("delta = 1e-06", "delta = 1e-05"))
    ledger_of(made).set_limit(Limit(100, 1e-2), replace=True)
    run(made)
    assert ledger_of(made).counted() == Spending.of(
        planned_charges(Plan(**said_in(made)["plan"], users=10**6))
    )


def test_a_delay_to_after_the_last_year_is_one_to_its_beginning(tmp_path: Path) -> None:
    assert statuses(schedule_in(tmp_path, windows="9998", delay=3650)) == ["waiting"]


def test_a_ledger_that_was_deleted_or_replaced_is_refused(tmp_path: Path) -> None:
    made, ledger = schedule_in(tmp_path), tmp_path / "ledger.db"
    early = ledger.read_bytes()
    run(made, until="2020-10-05")
    ledger.rename(tmp_path / "away.db")
    with refused(InvalidFile, "no-ledger"):
        run(made)
    assert not ledger.exists()
    BudgetFile.open(ledger, create=True)
    with refused(InvalidFile, "ledger-replaced"):
        run(made)
    ledger.write_bytes(early)
    with refused(InvalidFile, "unknown-release"):
        run(made)


def test_a_release_that_was_taken_away_or_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    run(made, until="2020-10-12")
    week = made.folder / "2020-W40"
    week.rename(tmp_path / "away")
    with refused(InvalidFile, "release-gone", "2020-W40"):
        run(made)
    shutil.copytree(made.folder / "2020-W41", week)
    with refused(InvalidFile, "not-this-release"):
        run(made)
    shutil.rmtree(week)
    week.write_text("notes")
    with refused(InvalidFile, "not-this-release"):
        run(made)
    assert len(runs_of(made)) == 2


def test_a_folder_that_was_moved_or_copied_is_refused_until_that_is_said(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    run(made, until="2020-10-05")
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    with refused(InvalidFile, "schedule-moved"):
        Schedule(copy)
    with refused(InvalidFile, "schedule-moved"):
        Schedule(copy, moved=True)
    shutil.rmtree(made.folder)
    with refused(InvalidFile, "schedule-moved"):
        Schedule(copy)
    assert run(Schedule(copy, moved=True)) == list(WEEKS[1:])
    assert run(Schedule(copy)) == []


def test_a_folder_behind_a_link_is_where_it_was_made(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made = schedule_in(tmp_path / "link", ledger=tmp_path / "ledger.db")
    for place in ("real", "link"):
        assert statuses(Schedule(tmp_path / place / made.folder.name)) == ["due"] * 4


def test_somebody_elses_folder_is_no_schedule_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    with refused(InvalidFile, "not-a-schedule"):
        Schedule(tmp_path / "theirs")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_one_name_stands_for_one_schedule_in_a_ledger(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    (tmp_path / "sub").mkdir()
    with refused(InvalidInput, "name-taken"):
        schedule_in(tmp_path / "sub", ledger=tmp_path / "ledger.db")
    # One that never ran may be thrown away and made again; one that did has windows of its name.
    shutil.rmtree(made.folder)
    run(schedule_in(tmp_path), until="2020-10-05")
    shutil.rmtree(made.folder)
    with refused(InvalidInput, "name-taken"):
        schedule_in(tmp_path)
    assert not made.folder.exists()


def test_other_runs_of_the_ledger_take_from_the_last_windows_and_nothing_is_passed(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    run(made, until="2020-10-12")
    cost = runs_of(made)[0].reserved
    budget = ledger_of(made)
    budget.begin("other", {}, cost, "another run", datetime.now(UTC)).failed("RoundFailed")
    assert run(made, until="2020-10-19") == ["2020-W42"]
    budget.begin("other", {}, cost, "another run", datetime.now(UTC))
    assert any("only 0 of the 1 windows" in note for note in made.show()["notes"])
    with pytest.raises(BudgetExceeded):
        run(made)
    assert not (made.folder / "2020-W43").exists()


def test_a_ledger_with_a_limit_keeps_it_and_gives_the_schedule_what_is_left(tmp_path: Path) -> None:
    budget = BudgetFile.open(tmp_path / "ledger.db", create=True)
    budget.set_limit(Limit(2, 1e-6))
    made = schedule_in(tmp_path, epsilon=None, delta=None)
    assert made.show()["total"] == made.show()["limit"] == {"epsilon": 2, "delta": 1e-6}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"epsilon": None, "delta": None}, "no-limit"),
        ({"epsilon": None}, "bad-limit"),
        ({"epsilon": "3"}, "bad-limit"),
        ({"window": "2020-W40"}, "window-or-domain"),
        ({"spare": -1}, "bad-value"),
        ({"spare": 1.5}, "bad-value"),
        ({"delay": 10**6}, "bad-schedule"),
        ({"delay": "3"}, "bad-schedule"),
        ({"epsilon": 1e-7, "delta": 1e-9}, "noise-too-wide"),
        ({"items": ["a", "a"]}, "repeated-item"),
        ({"items": ["a", ""]}, "bad-name"),
        ({"items": ["a\nb"]}, "bad-name"),
        ({"items": ["\ud800"]}, None),
        ({"user": "\ud800"}, "not-a-schedule"),
        ({"items": ["a"], "bins": [1, 2]}, "window-or-domain"),
        ({"items": None, "bins": ["one", "two"]}, None),
        ({"domain": "open"}, "window-or-domain"),
        ({"items": None, "domain": "closed"}, "window-or-domain"),
        ({"windows": ""}, "no-windows"),
        ({"selector": "oracle"}, "total-too-small"),
        ({"user": "item"}, None),
    ],
)
def test_what_is_no_schedule_is_refused_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], code: str | None
) -> None:
    with pytest.raises(InvalidInput) as caught:
        schedule_in(tmp_path, **changes)
    assert code in (None, caught.value.code), f"{caught.value.code}: {caught.value}"
    assert list(tmp_path.iterdir()) == []


def test_an_argument_that_does_not_exist_is_refused_as_python_does(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilom'"):
        schedule_in(tmp_path, epsilom=1)


def test_a_strict_schedule_stops_at_a_row_without_a_value(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, strict=True)
    holes = visits().with_columns(item=pl.when(pl.col("user") == "u1").then(None).otherwise(pl.col("item")))
    with pytest.raises(InvalidInput):
        run(made, holes)
    assert runs_of(made) == []
    edit(made, ("strict = true", "strict = false"))
    assert run(Schedule(made.folder), holes) == list(WEEKS)


@pytest.mark.parametrize("changes", [{"normalise": "upper"}, {"neighbours": "add-or-remove-one"}])
def test_what_reading_refuses_costs_nothing_and_may_be_corrected(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    made = schedule_in(tmp_path, **changes)
    with pytest.raises(InvalidInput):
        run(made)
    assert runs_of(made) == []


def test_data_without_times_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    made = schedule_in(tmp_path)
    for data in (None, "synthetic:poisson"):
        with refused(InvalidInput, "no-times"):
            made.run(data)
    assert runs_of(made) == []


def test_a_total_without_delta_is_run_with_laplace_noise(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, delta=0)
    run(made)
    assert {(entry.plan["mechanism"], entry.plan["delta"]) for entry in runs_of(made)} == {("laplace", 0)}
    counted = ledger_of(made).counted()
    assert counted.delta == 0
    assert 3.9 < counted.epsilon <= 4


def test_a_total_that_no_single_plan_may_have_is_shown(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, epsilon=30, delta=0.9)
    assert any("hardly anybody" in note for note in made.show()["notes"])


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "autumn").mkdir()
    with refused(InvalidFile, "exists-already"):
        schedule_in(tmp_path)
    assert not (tmp_path / "ledger.db").exists()


def test_items_that_were_released_are_known_from_then_on(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, items=None, epsilon=60, delta=1e-3)
    run(made)
    known = [entry.plan["known_items"] for entry in runs_of(made)]
    assert known == [None, "bakery\ncinema", "bakery\ncinema\nlibrary", "bakery\ncinema\nlibrary"]


def test_bins_are_a_closed_domain(tmp_path: Path) -> None:
    table = visits().with_columns(hour=visits()["user"].str.len_chars())
    made = schedule_in(tmp_path, items=None, bins=[0, 3, 12], item="hour", windows="2020-W40")
    (result,) = made.run(table).values()
    assert len(result.release.histogram) == 2


def test_items_may_be_whole_numbers(tmp_path: Path) -> None:
    table = visits().with_columns(item=visits()["item"].str.len_chars().cast(int))
    made = schedule_in(tmp_path, items=None, epsilon=60, delta=1e-3, windows="2020-W40x2")
    run(made, table)
    assert set(made.to_frame()["item"].to_list()) == {"6", "7"}
    assert runs_of(made)[1].plan["known_items"] == "6"


def test_a_window_without_rows_is_paid_for_and_its_owner_is_told(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, windows="2020-W39..2020-W40")
    with pytest.warns(UserWarning, match="no rows in 2020-W39") as told:
        run(made)
    assert len(told) == 1
    assert statuses(made) == ["done", "done"]
    for path in sorted(made.folder.glob("2020-W39/*")):
        assert "no rows" not in path.read_text(encoding="utf-8")


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    made = schedule_in(tmp_path, windows=["2020-W40", "2020-W41", "2999-W01"])
    results = made.run(visits(), until=date(2020, 10, 5))
    assert list(results) == ["2020-W40"]
    assert run(Schedule(made.folder)) == ["2020-W41"]
    frame = made.to_frame()
    assert frame["window"].to_list() == ["2020-W40"] * 3 + ["2020-W41"] * 3
    assert frame["value"].to_list()[:3] == pytest.approx(results["2020-W40"].release.histogram.tolist())
    shown = made.show()
    assert 0 < shown["spent"]["epsilon"] < shown["total"]["epsilon"] == 4
    assert made.page.exists()
    assert "2 of 3 windows" in repr(made) and "2999-W01" in made._repr_html_()
    (tmp_path / "ledger.db").unlink()
    assert "autumn" in repr(made)


def test_an_interrupt_while_a_release_is_written_stops_before_the_next_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule_in(tmp_path)
    write = RecordedRun.write

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        with held_off():
            signal.raise_signal(signal.SIGINT)
            return write(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(RecordedRun, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(made)
    assert statuses(made) == ["done", *["due"] * 3]
    assert len(run(made)) == len(WEEKS) - 1
