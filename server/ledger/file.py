"""A ledger that outlives the process: one file, a limit, and every run that spent from it.

It is an SQLite database. Two processes that ask for the last of a budget at once, and a machine that loses
power between a charge and its noise, are what a database is for; a file format of our own would get one of
them wrong. Every operation is one connection and one transaction, so a `BudgetFile` holds no open handle, and threads
may share it. The settings, and why:

- A rollback journal (SQLite's default), not a write-ahead log: at rest the ledger is one file that can be
  copied, and it may lie on a network drive.
- `synchronous = EXTRA`: a commit returns when the data *and* the removal of the journal are on disk. With
  FULL, a power cut could bring the journal back and undo a charge whose noise was already drawn.
- Operations that write take the write lock before they read (`BEGIN IMMEDIATE`).

A run reserves its whole cost when it begins, and charges each mechanism before that draws noise. When it has
ended, what was charged counts. A run that never ended, because its process died, may have drawn noise that
somebody saw: its whole reservation counts until a person closes it. A first run that took more of a limit than
it could share with others counts in full. `protocol/privacy/ledger.py`, `Limit`, says how a limit counts,
and why that holds for runs that are chosen in view of earlier results.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from fedhist.display.tables import html_table
from fedhist.protocol.errors import BudgetExceeded, InvalidFile, InvalidInput, InvalidPlan
from fedhist.protocol.privacy.composition import tight_total
from fedhist.protocol.privacy.ledger import Charge, Cost, Limit, Spending, check_same_neighbours

VERSION = 3
_BUSY_SECONDS = 30.0
_APPLICATION_ID = int.from_bytes(b"fdhl", "big")
_MAGIC = b"SQLite format 3\x00"
_SCHEMA = (
    """CREATE TABLE budget (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        epsilon REAL NOT NULL,
        delta REAL NOT NULL
    )""",
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        begun TEXT NOT NULL,
        plan_hash TEXT NOT NULL,
        plan TEXT NOT NULL,
        label TEXT NOT NULL,
        reserved_epsilon REAL NOT NULL,
        reserved_delta REAL NOT NULL,
        reserved_rho REAL NOT NULL,
        reserved_failure REAL NOT NULL,
        alone INTEGER NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('open', 'released', 'failed', 'closed')),
        reason TEXT
    )""",
    """CREATE TABLE charges (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES runs (id),
        charge TEXT NOT NULL
    )""",
)
RunStatus = Literal["open", "released", "failed", "closed"]


@dataclass(frozen=True)
class RunRecord:
    """One run as the file knows it.

    Args:
        id: its number in the file.
        time: when it began.
        plan_hash: which plan it ran.
        plan: that plan.
        label: what the user called it.
        status: open (running, or its process died), released, failed, or closed by a person.
        charges: what it charged, in order.
        reserved: the most that it may charge. It counts while the run is open; after that, the charges count.
        alone: whether it was admitted as the only run of a limit. Then the reservation counts once anything is charged.
        reason: the kind of error that a failed run ended with.
    """

    id: int
    time: datetime
    plan_hash: str
    plan: Mapping[str, Any]
    label: str
    status: RunStatus
    charges: tuple[Charge, ...]
    reserved: Spending
    alone: bool = False
    reason: str | None = None

    @property
    def charged(self) -> Spending:
        """What its charges sum to."""
        return Spending.of(self.charges)

    @property
    def counted(self) -> Spending:
        """What it takes from the limit."""
        whole = self.status == "open" or (self.alone and self.charges)
        return self.reserved if whole else self.charged


@dataclass(frozen=True)
class OpenRun:
    """The right to charge up to what was reserved. `record` is the journal of the run's `Ledger`."""

    path: Path
    id: int
    plan_hash: str
    time: datetime
    reserved: Spending

    def record(self, charge: Charge) -> None:
        """Write a charge: on return it is on disk. Beyond the reservation it raises and writes nothing."""
        if not charge.private:
            raise _not_private(charge.name)
        with transaction(self.path) as database:
            status = self._status(database)
            if status != "open":
                raise BudgetExceeded(
                    f"run {self.id} of {self.path} is {status}: its reservation was given back and nothing "
                    "more can be charged to it; begin a new run",
                    code="run-ended",
                )
            charges = _read_charges(database)
            check_same_neighbours(charge, [entry for _, entry in charges[:1]])
            earlier = [entry for run_id, entry in charges if run_id == self.id]
            if not Spending.of([*earlier, charge]).within(self.reserved):
                raise BudgetExceeded(
                    f"run {self.id} reserved {_text(self.reserved)} and has charged "
                    f"{_text(Spending.of(earlier))}; {charge.name} asks for another "
                    f"{_text(charge.cost)}. Nothing was charged"
                )
            database.execute(
                "INSERT INTO charges (run, charge) VALUES (?, ?)",
                (self.id, json.dumps(charge.to_json(), allow_nan=False)),
            )

    def released(self) -> None:
        """End the run: its result is out, and from now on it counts what it charged."""
        self._end("released", None)

    def failed(self, reason_kind: str) -> None:
        """End the run without a result; it counts what it charged.

        Args:
            reason_kind: the name of the error's class. Never its text, which may hold data.
        """
        self._end("failed", reason_kind)

    def _end(self, status: RunStatus, reason: str | None) -> None:
        with transaction(self.path) as database:
            before = self._status(database)
            # A person may have closed a run that was slow and not dead. How it ended is still worth knowing,
            # and counts the same.
            if before not in {"open", "closed"}:
                raise InvalidInput(
                    f"run {self.id} is {before} already", allowed="ending a run once", code="run-ended"
                )
            database.execute("UPDATE runs SET status = ?, reason = ? WHERE id = ?", (status, reason, self.id))

    def _status(self, database: sqlite3.Connection) -> RunStatus:
        """The status, if it is still this run: a copy put in the file's place may number others alike."""
        row = database.execute(
            "SELECT status FROM runs WHERE id = ? AND plan_hash = ? AND begun = ?",
            (self.id, self.plan_hash, _time_text(self.time)),
        ).fetchone()
        if row is None:
            raise InvalidFile(
                f"the ledger {self.path} does not know run {self.id} any more",
                allowed="one file for the whole run",
                advice="it was replaced while the run was going on; put it back",
                code="ledger-replaced",
            )
        return cast(RunStatus, row[0])


@dataclass(frozen=True)
class BudgetFile:
    """The persistent ledger at `path`. Get one from `open`, which checks the file."""

    path: Path

    @classmethod
    def open(cls, path: str | Path, *, create: bool) -> BudgetFile:
        """The ledger in this file, once it was found to be one, whole, and writable.

        | what is there                            | create=True  | create=False |
        |------------------------------------------|--------------|--------------|
        | a ledger                                 | opened       | opened       |
        | nothing, or an empty file                | a new ledger | InvalidFile  |
        | anything else, another version, a folder | InvalidFile  | InvalidFile  |
        """
        file = cls(Path(path).absolute())
        check_place(file.path, create=create)
        if create:
            create_if_empty(file.path)
        with transaction(file.path) as database:
            if database.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
                raise damaged(file.path)
            _read_runs(database)
            # A ledger that can't be written must say so now, not after the first round. This touches the
            # first page, for which a journal must be made in the folder, and is undone.
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("ROLLBACK")
            database.execute("BEGIN")
        return file

    @property
    def limit(self) -> Limit | None:
        """The limit, or None when none was set and runs are only recorded."""
        with transaction(self.path, write=False) as database:
            return _read_limit(database)

    def set_limit(self, limit: Limit, *, replace: bool = False) -> None:
        """Fix what all runs together may spend. Below what is spent already, no further run begins.

        Args:
            limit: to reach it exactly is not to pass it.
            replace: needed to change a limit. Raising one weakens a promise made to the users.
        """
        with transaction(self.path) as database:
            earlier = _read_limit(database)
            if earlier is not None and earlier != limit and not replace:
                raise InvalidPlan(
                    f"the limit of {self.path} is {_text(earlier)}, and {_text(limit)} was asked for",
                    allowed="setting a limit once",
                    advice="add --replace if the change is meant",
                    code="other-limit",
                )
            database.execute(
                "INSERT OR REPLACE INTO budget (only, epsilon, delta) VALUES (1, ?, ?)",
                (float(limit.epsilon), float(limit.delta)),
            )

    def begin(
        self, plan_hash: str, plan: Mapping[str, Any], cost: Spending, label: str, now: datetime
    ) -> OpenRun:
        """Reserve the cost of a whole run, or refuse it and write nothing.

        The check and the reservation are one transaction: of two processes that ask for the last of the
        budget, one gets it.

        Args:
            plan_hash: names the plan.
            plan: the plan itself, as JSON would have it.
            cost: the most that the run will charge.
            label: what the user calls the run.
            now: the time, with its zone.
        """
        if not math.isfinite(cost.epsilon):
            raise _not_private("the run")
        if now.utcoffset() is None:
            raise InvalidInput(
                "the time of a run has no zone",
                allowed="a time such as datetime.now(UTC)",
                code="time-without-zone",
            )
        numbers = (cost.epsilon, cost.delta, cost.rho, cost.failure)
        row = (_time_text(now), plan_hash, _plan_text(plan), label, *map(float, numbers))
        with transaction(self.path) as database:
            alone = self._is_alone(database, cost)
            run_id = database.execute(
                "INSERT INTO runs (begun, plan_hash, plan, label, reserved_epsilon, reserved_delta, reserved_rho, "
                "reserved_failure, alone, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open')",
                (*row, alone),
            ).lastrowid
            assert run_id is not None  # noqa: S101 - the INSERT has just set it
        return OpenRun(path=self.path, id=run_id, plan_hash=plan_hash, time=now, reserved=cost)

    def close(self, run_id: int) -> None:
        """Give back what an open run reserved and did not charge: for a person who knows its process is gone.

        Should the process live after all, it can charge no more, and so draws no more noise.
        """
        with transaction(self.path) as database:
            row = database.execute("SELECT status FROM runs WHERE id = ?", (run_id,)).fetchone()
            if row is None or row[0] != "open":
                raise InvalidInput(
                    f"run {run_id} is {'not in the ledger' if row is None else row[0] + ' already'}",
                    allowed="the number of an open run",
                    advice=f"'fedhist ledger show {self.path.name}' lists them",
                    code="no-open-run",
                )
            database.execute("UPDATE runs SET status = 'closed' WHERE id = ?", (run_id,))

    def runs(self) -> list[RunRecord]:
        """All runs, in the order in which they began."""
        with transaction(self.path, write=False) as database:
            return _read_runs(database)

    def charges(self) -> list[Charge]:
        """The charges of all runs, in the order in which they were charged: a tight total asks which was first."""
        with transaction(self.path, write=False) as database:
            return [charge for _, charge in _read_charges(database)]

    def spent(self) -> Spending:
        """What the runs that have ended count. The limit applies to `counted()`."""
        return _sum(run for run in self.runs() if run.status != "open")

    def reserved(self) -> Spending:
        """What the open runs hold, charged or not."""
        return _sum(run for run in self.runs() if run.status == "open")

    def counted(self) -> Spending:
        """What is spent and what open runs hold: what a limit counts."""
        return _sum(self.runs())

    def claimed(self) -> Cost | None:
        """All that is counted, as an epsilon at the limit's delta; None without a limit."""
        limit, runs = self.limit, self.runs()
        if limit is None:
            return None
        claimed = limit.claimed(_sum(runs))
        costs = [run.counted for run in runs if run.counted != Spending()]
        if len(costs) == 1 and costs[0].delta <= limit.delta:
            # All there is: nothing was chosen in view of anything.
            claimed = min(claimed, costs[0].epsilon)
        return Cost(claimed, limit.delta)

    def left(self) -> Cost | None:
        """The limit's epsilon that is not claimed yet, at its delta; None without a limit.

        A run fits that adds no more to what is claimed, which is less than its own epsilon: see `runs_left`.
        """
        limit, claimed = self.limit, self.claimed()
        if limit is None or claimed is None:
            return None
        return Cost(max(limit.epsilon - claimed.epsilon, 0.0), limit.delta)

    def runs_left(self, cost: Spending) -> int | None:
        """How many runs of this cost would still be admitted, one after another; None without a limit."""
        limit = self.limit
        return None if limit is None else limit.runs_left(self.counted(), cost)

    def _repr_html_(self) -> str:
        """The ledger in a notebook: what is spent and left, then one row a run."""
        spent, reserved, claimed = self.spent(), self.reserved(), self.claimed()
        rows: list[tuple[object, ...]] = [
            (run.id, f"{run.time:%Y-%m-%d %H:%M}", run.label, run.status, *_numbers(run.counted))
            for run in self.runs()
        ]
        rows += [("", "", "spent, added up", "", *_numbers(spent))]
        rows += [("", "", "reserved by open runs", "", *_numbers(reserved))] if reserved != Spending() else []
        rows += [("", "", "all of it, as the limit counts", "", *_numbers(claimed))] if claimed else []
        limit = "no limit" if self.limit is None else f"limit {_text(self.limit)}"
        heads = ("run", "time", "data", "status", "epsilon", "delta")
        return html_table(f"Ledger {self.path.name}, {limit}", rows, headings=heads)

    def tight(self) -> Cost:
        """All that is counted by tight composition: a smaller epsilon at the same delta as the sum.

        What open runs reserved and have not charged is added plainly, because nobody knows yet what it will
        be. For information: it holds for runs that were fixed beforehand, see `tight_total`.
        """
        with transaction(self.path, write=False) as database:
            runs, charges = _read_runs(database), _read_charges(database)
        total = tight_total([charge for _, charge in charges])
        for run in runs:
            if run.status == "open":
                total += Cost(
                    max(run.reserved.epsilon - run.charged.epsilon, 0.0),
                    max(run.reserved.delta - run.charged.delta, 0.0),
                )
        return total

    def _is_alone(self, database: sqlite3.Connection, cost: Spending) -> bool:
        """Whether a run of this cost takes more of the limit than it could share; BudgetExceeded if it is too much."""
        limit, runs = _read_limit(database), _read_runs(database)
        counted = _sum(runs)
        if limit is None or limit.admits(counted, cost):
            return limit is not None and not limit.has_room(counted + cost)
        spent = _sum(run for run in runs if run.status != "open")
        held = ", ".join(str(run.id) for run in runs if run.status == "open")
        advice = f" Open runs: {held}. Close one whose process is gone, and only what it charged counts."
        raise BudgetExceeded(
            f"the limit of {self.path} would be passed: at delta {limit.delta:g}, epsilon "
            f"{_claimed(limit, spent)} is spent, {_claimed(limit, counted)} with what open runs reserved, "
            f"{_claimed(limit, counted + cost)} with this run, which by itself is {_text(cost)}, and the limit is "
            f"epsilon {limit.epsilon:g}. Nothing was spent. 'fedhist ledger limit --replace' changes the limit."
            + (advice if held else "")
        )


def _read_limit(database: sqlite3.Connection) -> Limit | None:
    """The limit; None if none was set."""
    row = database.execute("SELECT epsilon, delta FROM budget").fetchone()
    try:
        return None if row is None else Limit(*row)
    except (InvalidPlan, TypeError) as problem:
        raise sqlite3.DatabaseError("the limit can't be read") from problem


def _read_charges(database: sqlite3.Connection) -> list[tuple[int, Charge]]:
    """All charges with their runs' numbers, in the order in which they were charged."""
    rows = database.execute("SELECT run, charge FROM charges ORDER BY id").fetchall()
    try:
        return [(run_id, Charge.from_json(json.loads(text))) for run_id, text in rows]
    except (TypeError, ValueError, RecursionError) as problem:
        raise sqlite3.DatabaseError("a charge can't be read") from problem


def _read_runs(database: sqlite3.Connection) -> list[RunRecord]:
    charges: dict[int, list[Charge]] = {}
    for run_id, charge in _read_charges(database):
        charges.setdefault(run_id, []).append(charge)
    rows = database.execute(
        "SELECT id, begun, plan_hash, plan, label, status, reason, reserved_epsilon, reserved_delta, reserved_rho, "
        "reserved_failure, alone FROM runs ORDER BY id"
    ).fetchall()
    if not charges.keys() <= {row[0] for row in rows}:
        # It would count for no run, as if it had never been spent.
        raise sqlite3.DatabaseError("a charge of no run")
    try:
        return [
            RunRecord(
                id=row[0],
                time=datetime.fromisoformat(row[1]),
                plan_hash=row[2],
                plan=plan,
                label=row[4],
                status=row[5],
                charges=tuple(charges.get(row[0], ())),
                reason=row[6],
                reserved=Spending(*row[7:11]),
                alone=bool(row[11]),
            )
            for row, plan in ((row, json.loads(row[3])) for row in rows)
        ]
    except (KeyError, TypeError, ValueError, RecursionError) as problem:
        raise sqlite3.DatabaseError("a run can't be read") from problem


def _sum(runs: Iterable[RunRecord]) -> Spending:
    return Spending.total(run.counted for run in runs)


def _claimed(limit: Limit, counted: Spending) -> str:
    epsilon = limit.claimed(counted)
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "no finite one"


def _numbers(cost: Cost | Spending) -> tuple[str, str]:
    return f"{cost.epsilon:.4g}", f"{cost.delta:.3g}"


def _plan_text(plan: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(plan), allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as problem:
        raise InvalidPlan(
            "the plan can't be written as JSON", allowed="text, finite numbers, lists", code="not-json"
        ) from problem


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()


def _text(cost: Cost | Spending | Limit) -> str:
    return f"(epsilon {cost.epsilon:g}, delta {cost.delta:g})"


def _not_private(what: str) -> InvalidPlan:
    return InvalidPlan(
        f"{what} is not private, and a ledger file has no place for an infinite epsilon",
        allowed="private mechanisms",
        advice="leave --ledger out",
        code="not-private",
    )


def check_place(path: Path, *, create: bool) -> None:
    """Look at what lies at the path before SQLite does: it would take an empty file for a database."""
    try:
        if path.is_dir():
            raise InvalidFile(f"{path} is a folder", allowed="the path of a ledger file", code="a-folder")
        if not path.exists():
            if not path.parent.is_dir():
                raise InvalidFile(
                    f"the folder {path.parent} does not exist", allowed="an existing folder", code="no-folder"
                )
            if not create:
                raise InvalidFile(
                    f"there is no ledger {path}",
                    allowed="a ledger that was created before",
                    advice="'fedhist run --ledger' and 'fedhist ledger limit' make one, and so does fedhist.Session",
                    code="no-ledger",
                )
            return
        if not path.is_file():
            raise InvalidFile(
                f"{path} is not a regular file", allowed="the path of a ledger file", code="not-a-plain-file"
            )
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as problem:
        raise InvalidFile(
            f"{path} can't be read ({problem.strerror})", allowed="a file that you may read and write"
        ) from problem
    if start != _MAGIC and not (create and start == b""):
        raise _not_a_ledger(path, "is empty" if start == b"" else "is not a ledger")


def create_if_empty(path: Path) -> None:
    """Make the tables, unless somebody has made them already."""
    with _connection(path, mode="rwc") as database:
        # With the lock held, so that of two processes that create the same ledger the second finds it there.
        database.execute("BEGIN IMMEDIATE")
        tables = database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        if _marks(database) == (0, 0) and tables is None:
            for statement in _SCHEMA:
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")


@contextlib.contextmanager
def transaction(path: Path, *, write: bool = True) -> Iterator[sqlite3.Connection]:
    """A checked ledger inside a transaction, which is undone when the body raises."""
    with _connection(path, mode="rw") as database:
        database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        application, version = _marks(database)
        if application != _APPLICATION_ID or version < 1:
            raise _not_a_ledger(path, "is a database of something else")
        if version != VERSION:
            raise InvalidFile(
                f"the ledger {path} has version {version}, which {'a newer' if version > VERSION else 'an older'} "
                "fedhist wrote",
                allowed=f"version {VERSION}",
                advice=""
                if version > VERSION
                else "what it lists stays spent: begin a new ledger, with a limit that counts it",
                code="other-version",
            )
        yield database
        database.execute("COMMIT")


@contextlib.contextmanager
def _connection(path: Path, *, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection whose transactions we begin and end ourselves, and whose errors say what to do."""
    uri = f"{path.as_uri()}?mode={mode}"
    try:
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as database:
            database.execute("PRAGMA synchronous = EXTRA")
            yield database
    except sqlite3.OperationalError as problem:
        raise InvalidFile(
            f"the ledger {path} can't be used: {problem}",
            allowed="a file in a folder that you may write, on a disk with room, which no other process "
            f"holds for more than {_BUSY_SECONDS:.0f} s",
            code="not-usable",
        ) from problem
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        # sqlite3 quotes the damaged schema in its own message, and fails when that is no text.
        raise damaged(path) from problem


def _marks(database: sqlite3.Connection) -> tuple[int, int]:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return application, version


def _not_a_ledger(path: Path, problem: str) -> InvalidFile:
    return InvalidFile(
        f"{path} {problem}",
        allowed="a ledger, or a path where nothing lies yet",
        advice="an existing file is never overwritten; choose another path",
        code="not-a-ledger",
    )


def damaged(path: Path) -> InvalidFile:
    """The error for a file that is a ledger no more."""
    return InvalidFile(
        f"the ledger {path} is damaged",
        allowed="a ledger as fedhist wrote it",
        advice="restore it from a copy, and count what was spent since as spent",
        code="damaged-ledger",
    )
