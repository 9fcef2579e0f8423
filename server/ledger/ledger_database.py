"""The database behind a persistent ledger: where it may lie, its tables, and transactions on it.

The settings, and why:

- A rollback journal (SQLite's default), not a write-ahead log: at rest the ledger is one file that can be
  copied, and it may lie on a network drive.
- `synchronous = EXTRA`: a commit returns when the data *and* the removal of the journal are on disk. With
  FULL, a power cut could bring the journal back and undo a charge whose noise was already drawn.
- Every operation is one connection and one transaction, and those that write take the write lock before they
  read (`BEGIN IMMEDIATE`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fedhist.protocol.errors import InvalidFile

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
