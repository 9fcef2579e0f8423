"""A ledger file keeps its limit and its runs, and nothing but a ledger is taken for one."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import BudgetExceeded, BudgetFile, Charge, Cost, InvalidInput, Ledger, Limit, Spending
from tests.support.api import (
    ApproximateLoss,
    BoundedRangeLoss,
    GaussianLoss,
    InvalidFile,
    InvalidPlan,
    OpenRun,
    epsilon_at,
    gaussian_epsilon,
)
from tests.support.refusals import refused

NOW = datetime(2024, 5, 17, 12, 30, tzinfo=UTC)
SELECT = Charge("select", "em", {"candidates": 64}, 1.0, "score", "zero-out", 0.1, 0.0, BoundedRangeLoss())
RELEASE = Charge("release", "gauss", {}, 8.0, "l2", "zero-out", 1.0, 1e-6, GaussianLoss(4.2243))
RUN_COST = Spending.of([SELECT, RELEASE])
NOTHING = Spending()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> BudgetFile:
    return BudgetFile.open(path, create=True)


def begin(ledger: BudgetFile, cost: Spending = RUN_COST, label: str = "a run") -> OpenRun:
    return ledger.begin("hash", {"items": 5, "bounds": [1.5, 2]}, cost, label, NOW)


def ended(ledger: BudgetFile, *charges: Charge, cost: Spending = RUN_COST) -> OpenRun:
    """A run that charged these and was released."""
    run = begin(ledger, cost)
    for charge in charges:
        run.record(charge)
    run.released()
    return run


def altered(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(statement)
        database.commit()


def test_a_run_is_there_with_all_its_parts_when_the_file_is_opened_again(
    ledger: BudgetFile, path: Path
) -> None:
    ledger.set_limit(Limit(10.0, 1e-5))
    run = ended(ledger, SELECT, RELEASE)
    again = BudgetFile.open(path, create=False)
    (record,) = again.runs()
    assert record.id == run.id
    assert record.time == NOW
    assert record.plan_hash == "hash"
    assert record.plan == {"items": 5, "bounds": [1.5, 2]}
    assert record.label == "a run"
    assert record.status == "released"
    assert record.charges == (SELECT, RELEASE)
    assert record.reserved == RUN_COST
    assert record.charged == RUN_COST
    assert again.limit == Limit(10.0, 1e-5)
    assert again.spent() == RUN_COST
    assert again.reserved() == NOTHING


def test_the_file_is_the_journal_of_a_ledger_in_memory(ledger: BudgetFile) -> None:
    run = begin(ledger, Spending.of([RELEASE]))
    memory = Ledger(journal=run.record)
    memory.charge(SELECT)
    with pytest.raises(BudgetExceeded):
        memory.charge(RELEASE)
    assert memory.entries == ledger.runs()[0].charges == (SELECT,)


def test_what_counts_is_the_reservation_of_an_open_run_and_the_charges_of_an_ended_one(
    ledger: BudgetFile,
) -> None:
    running, failed, closed = begin(ledger), begin(ledger), begin(ledger)
    for run in (running, failed, closed):
        run.record(SELECT)
    assert ledger.spent() == NOTHING
    assert dataclasses.astuple(ledger.reserved().cost) == pytest.approx((3.3, 3e-6))
    assert ledger.reserved().rho == pytest.approx(3 * RUN_COST.rho)
    failed.failed("RoundFailed")
    ledger.close(closed.id)
    assert [run.status for run in ledger.runs()] == ["open", "failed", "closed"]
    assert [run.reason for run in ledger.runs()] == [None, "RoundFailed", None]
    assert ledger.spent() == Spending.of([SELECT, SELECT])
    assert ledger.reserved() == RUN_COST


def test_a_limit_that_is_met_exactly_is_not_passed(ledger: BudgetFile) -> None:
    """0.1 + 0.1 + 0.1 is above 0.3 by one float."""
    ledger.set_limit(Limit(0.3, 0.0))
    for _ in range(3):
        ended(ledger, SELECT, cost=Spending.of([SELECT]))
    with pytest.raises(BudgetExceeded):
        begin(ledger, Spending.of_cost(Cost(1e-9, 0.0)))


@pytest.mark.parametrize("cost", [Cost(1.2, 1e-9), Cost(0.1, 2e-6), Cost(5.0, 1e-3)])
def test_a_run_beyond_the_limit_is_told_all_the_numbers_and_leaves_nothing_behind(
    ledger: BudgetFile, path: Path, cost: Cost
) -> None:
    ledger.set_limit(Limit(2.5, 3e-6))
    ended(ledger, SELECT)
    held = begin(ledger, Spending.of_cost(Cost(1.25, 1e-7)))
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded) as refusal:
        begin(ledger, Spending.of_cost(cost))
    message = str(refusal.value)
    asked = f"by itself is (epsilon {cost.epsilon:g}, delta {cost.delta:g})"
    for words in ("at delta 3e-06, epsilon 0.1 is spent", "1.35 with what open runs", asked, "epsilon 2.5"):
        assert words in message
    assert f"Open runs: {held.id}." in message
    assert path.read_bytes() == before


def test_runs_that_add_up_to_more_than_the_limit_fit_as_long_as_it_holds(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(3.0, 1e-5))
    expected = ledger.runs_left(RUN_COST)
    assert expected is not None
    for left in range(expected, 0, -1):
        assert ledger.runs_left(RUN_COST) == left
        ended(ledger, SELECT, RELEASE)
    with pytest.raises(BudgetExceeded):
        begin(ledger)
    claimed, left = ledger.claimed(), ledger.left()
    assert claimed is not None
    assert left is not None
    assert ledger.tight().epsilon < claimed.epsilon <= 3.0 < ledger.spent().epsilon
    assert left == Cost(3.0 - claimed.epsilon, 1e-5)


def test_a_limit_of_one_run_has_room_for_that_run_alone(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(1.1, 1e-6))
    ended(ledger, SELECT, RELEASE)
    claimed = ledger.claimed()
    assert claimed is not None
    assert dataclasses.astuple(claimed) == pytest.approx((1.1, 1e-6))
    with pytest.raises(BudgetExceeded):
        begin(ledger, Spending.of([SELECT]))


@pytest.mark.parametrize("end", ["failed", "closed", "released"])
def test_a_run_that_took_a_limit_for_itself_is_given_nothing_back_once_it_has_shown_something(
    ledger: BudgetFile, end: str
) -> None:
    """To go on without it would be a choice in view of its first result, beside a guarantee that took all of delta."""
    ledger.set_limit(Limit(1.1, 1e-6))

    def finish(run: OpenRun) -> None:
        if end == "closed":
            ledger.close(run.id)
        else:
            run.failed("RoundFailed") if end == "failed" else run.released()

    finish(begin(ledger))
    assert ledger.counted() == NOTHING
    run = begin(ledger)
    run.record(SELECT)
    finish(run)
    assert ledger.counted() == RUN_COST
    with pytest.raises(BudgetExceeded):
        begin(ledger, Spending.of([SELECT]))
    ledger.set_limit(Limit(3.0, 1e-5), replace=True)
    run = begin(ledger)
    run.record(SELECT)
    finish(run)
    assert ledger.counted() == RUN_COST + Spending.of([SELECT])


@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=14), st.sampled_from([1e-6, 1e-5]), st.booleans()
)
@settings(max_examples=8, deadline=None)
def test_whatever_is_admitted_is_claimed_at_no_less_than_its_tight_total(
    seeds: list[int], delta: float, gaussian_only: bool
) -> None:
    """Each run is chosen by what the runs before it showed: here by a number that stands for their results."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = BudgetFile.open(Path(folder) / "ledger.db", create=True)
        ledger.set_limit(Limit(4.0, delta))
        admitted: list[Charge] = []
        shown = 0
        for seed in seeds:
            shown = (shown * 31 + seed) % 1000
            noise = GaussianLoss(3.0 + shown / 100)
            epsilon = gaussian_epsilon(noise.multiplier, delta / 50)
            release = dataclasses.replace(RELEASE, epsilon=epsilon, delta=delta / 50, loss=noise)
            charges = [release] if gaussian_only or shown % 3 else [SELECT, release]
            try:
                run = begin(ledger, Spending.of(charges))
            except BudgetExceeded:
                continue
            for charge in charges[: 1 + shown % 2]:
                run.record(charge)
                admitted.append(charge)
            if shown % 5:
                run.released()
            else:
                ledger.close(run.id)
        claimed = ledger.claimed()
        assert claimed is not None
        assert epsilon_at(admitted, delta) * (1 - 1e-9) <= claimed.epsilon <= 4.0 * (1 + 1e-9)


def test_a_limit_is_set_once_unless_replacing_it_is_meant(ledger: BudgetFile) -> None:
    ledger.set_limit(Limit(2.0, 1e-6))
    ledger.set_limit(Limit(2.0, 1e-6))
    with refused(InvalidPlan, "other-limit"):
        ledger.set_limit(Limit(3.0, 1e-6))
    assert ledger.limit == Limit(2.0, 1e-6)
    ledger.set_limit(Limit(3.0, 1e-6), replace=True)
    assert ledger.limit == Limit(3.0, 1e-6)


def test_a_run_ends_once_and_charges_nothing_more_and_a_closed_one_may_still_say_how(
    ledger: BudgetFile,
) -> None:
    released, closed = begin(ledger), begin(ledger)
    released.released()
    ledger.close(closed.id)
    for run in (released, closed):
        with refused(BudgetExceeded, "run-ended"):
            run.record(SELECT)
    with refused(InvalidInput, "run-ended"):
        released.failed("RoundFailed")
    for number in (released.id, 77):
        with refused(InvalidInput, "no-open-run"):
            ledger.close(number)
    closed.released()
    assert [record.status for record in ledger.runs()] == ["released", "released"]
    assert ledger.spent() == NOTHING


def test_a_step_without_a_guarantee_has_no_place_in_the_file(ledger: BudgetFile) -> None:
    oracle = dataclasses.replace(SELECT, epsilon=math.inf, loss=ApproximateLoss(), private=False)
    with refused(InvalidPlan, "not-private"):
        begin(ledger, Spending(math.inf, 0.0, math.inf, 0.0))
    assert ledger.runs() == []
    run = begin(ledger)
    with refused(InvalidPlan, "not-private"):
        run.record(oracle)
    assert ledger.runs()[0].charges == ()


def test_the_tight_total_is_below_the_sum_and_holds_open_reservations(ledger: BudgetFile) -> None:
    for _ in range(10):
        ended(ledger, SELECT, RELEASE)
    tight = ledger.tight()
    assert tight.delta == pytest.approx(1e-5)
    assert 1.1 < tight.epsilon < 0.5 * ledger.spent().epsilon
    begin(ledger, Spending.of_cost(Cost(0.75, 1e-7)))
    assert dataclasses.astuple(ledger.tight()) == pytest.approx((tight.epsilon + 0.75, 1.01e-5))


def test_times_are_kept_whatever_their_zone_and_refused_without_one(ledger: BudgetFile) -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    run = ledger.begin("hash", {}, RUN_COST, "", elsewhere)
    run.record(SELECT)
    assert ledger.runs()[0].time == NOW
    with refused(InvalidInput, "time-without-zone"):
        ledger.begin("hash", {}, RUN_COST, "", NOW.replace(tzinfo=None))


@pytest.mark.parametrize("plan", [{"epsilon": math.nan}, {"epsilon": {1, 2}}])
def test_a_plan_that_is_not_json_is_refused(ledger: BudgetFile, plan: dict[str, object]) -> None:
    with refused(InvalidPlan, "not-json"):
        ledger.begin("hash", plan, RUN_COST, "", NOW)
    assert ledger.runs() == []


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "charge", "release", "fail", "close"]), st.integers(0, 5)),
        max_size=30,
    )
)
def test_no_order_of_events_spends_more_than_the_limit(steps: list[tuple[str, int]]) -> None:
    limit = Limit(3.3, 3e-6)
    with tempfile.TemporaryDirectory() as folder:
        ledger = BudgetFile.open(Path(folder) / "ledger.db", create=True)
        ledger.set_limit(limit)
        runs: list[OpenRun] = []
        charged = 0
        for step, number in steps:
            run = runs[number % len(runs)] if runs else None
            with contextlib.suppress(BudgetExceeded, InvalidInput):
                if step == "begin":
                    runs.append(begin(ledger))
                elif run is not None and step == "charge":
                    run.record(RELEASE if number % 2 else SELECT)
                    charged += 1
                elif run is not None and step == "close":
                    ledger.close(run.id)
                elif run is not None:
                    run.released() if step == "release" else run.failed("RoundFailed")
        claimed = ledger.claimed()
        assert claimed is not None
        assert claimed.epsilon <= limit.epsilon * (1 + 1e-9)
        records = ledger.runs()
        assert sum(len(record.charges) for record in records) == charged
        assert all(record.charged.within(record.reserved) for record in records)


def test_opening_a_ledger_changes_nothing_and_leaves_no_files_beside_it(
    ledger: BudgetFile, path: Path
) -> None:
    begin(ledger).record(SELECT)
    before = path.read_bytes()
    for create in (True, False):
        BudgetFile.open(path, create=create).runs()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a b?mode=memory.db", "100%41#x.db", "ünïcode.db", "plain"])
def test_odd_names_are_the_names_of_files(tmp_path: Path, name: str) -> None:
    begin(BudgetFile.open(tmp_path / name, create=True))
    assert list(tmp_path.iterdir()) == [tmp_path / name]
    assert len(BudgetFile.open(tmp_path / name, create=False).runs()) == 1


def test_a_relative_path_stays_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = BudgetFile.open("ledger.db", create=True)
    monkeypatch.chdir("/")
    begin(ledger)
    assert len(BudgetFile.open(tmp_path / "ledger.db", create=False).runs()) == 1


@pytest.mark.parametrize(
    ("make", "name", "create", "code"),
    [
        (None, "l.db", False, "no-ledger"),
        (None, "nowhere/l.db", True, "no-folder"),
        (Path.touch, "l.db", False, "not-a-ledger"),
        (Path.mkdir, "l.db", True, "a-folder"),
        (Path.mkdir, "l.db", False, "a-folder"),
        (os.mkfifo, "l.db", True, "not-a-plain-file"),
    ],
)
def test_a_place_without_a_ledger_is_named_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None] | None, name: str, create: bool, code: str
) -> None:
    if make is not None:
        make(tmp_path / name)
    before = list(tmp_path.iterdir())
    with refused(InvalidFile, code):
        BudgetFile.open(tmp_path / name, create=create)
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(range(256)) * 40),
        lambda path: path.write_text('{"epsilon": 1}'),
        lambda path: path.write_bytes(b"SQLite format 3\x00"),
        lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\xa5" * 8000),
        lambda path: altered(path, "CREATE TABLE photos (name TEXT)"),
        lambda path: altered(path, "PRAGMA application_id = 77"),
    ],
    ids=["bytes", "json", "header", "header and bytes", "database", "marked database"],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(
    path: Path, write: Callable[[Path], object], create: bool
) -> None:
    write(path)
    before = path.read_bytes()
    with pytest.raises(InvalidFile):
        BudgetFile.open(path, create=create)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damaged",
    [lambda whole: whole[: len(whole) // 2], lambda whole: whole[:4096] + b"\xff" * 2048 + whole[6144:]],
    ids=["torn", "overwritten"],
)
def test_a_damaged_ledger_is_refused(
    ledger: BudgetFile, path: Path, damaged: Callable[[bytes], bytes]
) -> None:
    for number in range(20):
        begin(ledger, label="x" * 400 + str(number)).record(SELECT)
    path.write_bytes(damaged(path.read_bytes()))
    with refused(InvalidFile, "damaged-ledger"):
        BudgetFile.open(path, create=True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET charge = '{}'",
        "UPDATE charges SET charge = replace(charge, '0.1', '-5')",
        "UPDATE charges SET charge = '" + "[" * 100_000 + "'",
        "UPDATE runs SET plan = '" + "[" * 100_000 + "'",
        "UPDATE runs SET begun = 'yesterday'",
        "UPDATE runs SET reserved_epsilon = -1",
        "UPDATE runs SET reserved_rho = -1",
        "UPDATE runs SET reserved_failure = 'a'",
        # It once counted for nobody: a damaged number took a charge out of what was spent.
        "UPDATE charges SET run = 3",
        "UPDATE budget SET epsilon = -1",
        "PRAGMA user_version = 4",
    ],
    ids=lambda statement: statement[:40],
)
def test_a_ledger_with_unreadable_rows_or_of_a_newer_version_is_refused_and_left_alone(
    ledger: BudgetFile, path: Path, statement: str
) -> None:
    ledger.set_limit(Limit(10.0, 1e-5))
    begin(ledger).record(SELECT)
    altered(path, statement)
    before, code = path.read_bytes(), "other-version" if "version" in statement else "damaged-ledger"
    if "budget" not in statement:
        with refused(InvalidFile, code):
            BudgetFile.open(path, create=False)
        with refused(InvalidFile, code):
            ledger.spent()
    with refused(InvalidFile, code):
        begin(ledger)
    assert path.read_bytes() == before


def test_a_run_notices_when_its_file_was_replaced(ledger: BudgetFile, path: Path) -> None:
    run = begin(ledger)
    path.unlink()
    with refused(InvalidFile, "not-usable"):
        run.record(SELECT)
    replacement = BudgetFile.open(path, create=True)
    replacement.begin("another", {}, RUN_COST, "", NOW)
    with refused(InvalidFile, "ledger-replaced"):
        run.record(SELECT)
    assert replacement.runs()[0].charges == ()


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder and a user whom permissions stop: root, whom they do not, steps down to nobody."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if is_root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if is_root:
                os.seteuid(0)
            folder.chmod(0o700)


def test_a_read_only_folder_can_t_take_a_new_ledger(unprivileged_folder: Path) -> None:
    unprivileged_folder.chmod(0o500)
    with refused(InvalidFile, "not-usable"):
        BudgetFile.open(unprivileged_folder / "ledger.db", create=True)


def test_a_ledger_that_can_t_be_written_says_so_when_it_is_opened(unprivileged_folder: Path) -> None:
    path = unprivileged_folder / "ledger.db"
    BudgetFile.open(path, create=True)
    unprivileged_folder.chmod(0o500)  # the file may be written, but not the journal beside it
    with refused(InvalidFile, "not-usable"):
        BudgetFile.open(path, create=False)
    unprivileged_folder.chmod(0o700)
    path.chmod(0o400)
    with refused(InvalidFile, "not-usable"):
        BudgetFile.open(path, create=False)
    path.chmod(0o000)
    with refused(InvalidFile, "invalid-file"):
        BudgetFile.open(path, create=False)


def test_a_ledger_that_became_read_only_refuses_the_charge(unprivileged_folder: Path) -> None:
    path = unprivileged_folder / "ledger.db"
    run = begin(BudgetFile.open(path, create=True))
    path.chmod(0o400)
    memory = Ledger(journal=run.record)
    with refused(InvalidFile, "not-usable"):
        memory.charge(SELECT)
    assert memory.entries == ()


def test_a_number_beyond_all_doubles_is_not_a_python_error(ledger: BudgetFile, path: Path) -> None:
    """JSON's integers have no end, and sums of the largest doubles have no value."""
    ended(ledger, RELEASE)
    with contextlib.closing(sqlite3.connect(path)) as database:
        (text,) = database.execute("SELECT charge FROM charges").fetchone()
    for number in ('"sensitivity": 8', '"epsilon": 1'):
        assert f"{number}.0" in text
        huge = text.replace(f"{number}.0", f"{number}{'0' * 400}")
        altered(path, f"UPDATE charges SET charge = '{huge}'")  # noqa: S608 - a test's own text
        with refused(InvalidFile, "damaged-ledger"):
            BudgetFile.open(path, create=False)
    altered(path, f"UPDATE charges SET charge = '{text.replace('1.0', '1e308')}'")  # noqa: S608 - the same
    altered(path, "INSERT INTO charges (run, charge) SELECT run, charge FROM charges")
    assert BudgetFile.open(path, create=False).spent().epsilon == math.inf


def test_a_schema_that_is_no_text_is_not_a_python_error(ledger: BudgetFile, path: Path) -> None:
    """sqlite3 fails to quote it in its own error."""
    begin(ledger)
    content = path.read_bytes()
    assert b"only = 1" in content
    path.write_bytes(content.replace(b"only = 1", b"only \xff 1"))
    with refused(InvalidFile, "damaged-ledger"):
        BudgetFile.open(path, create=False)
