"""A device's memory in a file of its own: what it was asked and answered, its secret, and its masking sessions.

It outlives a Flower run, where Flower's own state of a node ends. And it is on disk before an answer leaves, where
Flower stores a node's state afterwards, tries once and goes on if that fails.

An SQLite database, because two messages may be answered at once and only one of them may get the last of a budget, or
a session's state. What is in it is secret, so only its owner can read the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedhist.client.policy import Memory, Policy, admit, answered, begin, charge, check, request_key
from fedhist.protocol.errors import DecodeError, Refused, UnusableMemory
from fedhist.protocol.privacy.randomness import SECRET_BYTES, new_secret
from fedhist.protocol.wire.envelope import Envelope, Refusal

_BUSY_SECONDS = 30.0
_APPLICATION_ID = int.from_bytes(b"fdhm", "big")
_OWNER_ONLY = 0o600
_TABLES = {
    "memory": "CREATE TABLE memory (only INTEGER PRIMARY KEY CHECK (only = 1), text TEXT NOT NULL)",
    "secret": "CREATE TABLE secret (only INTEGER PRIMARY KEY CHECK (only = 1), bytes BLOB NOT NULL)",
    "session": "CREATE TABLE session (run TEXT NOT NULL UNIQUE, state BLOB NOT NULL, "
    "kept REAL NOT NULL DEFAULT (julianday('now')))",
    "answer": "CREATE TABLE answer (request TEXT NOT NULL UNIQUE, bytes BLOB NOT NULL, "
    "kept REAL NOT NULL DEFAULT (julianday('now')))",
}
_FORGET = (
    "DELETE FROM session WHERE abs(julianday('now') - kept) > 1 OR typeof(kept) != 'real'",
    "DELETE FROM answer WHERE abs(julianday('now') - kept) > 1 OR typeof(kept) != 'real'",
)
"""A session that is not continued for a day, and an answer as old, must not wait for somebody who finds the file.

Nor may one that was kept while the clock was ahead.
"""
MAX_SESSIONS = 8
"""The most runs that a device can be in the middle of; the least recent one gives way."""
MAX_ANSWERS = 8
"""The most answers that a device keeps for a server that lost them; the least recent one gives way."""

Session = TypeVar("Session")


@dataclass(frozen=True)
class MemoryFile:
    """The memory in a file. Whatever a method changed is on disk when it returns, before an answer leaves."""

    path: Path

    def given(self, policy: Policy, envelope: Envelope) -> bytes | None:
        """The answer that was given to a request without masks; None if there was none. Nothing is charged.

        Raises Refused like `policy.check`, and if the answer is no longer kept. A file that is missing or empty is
        made. One that holds anything else is an error: never a fresh start.
        """
        with _transaction(self.path) as database:
            memory = _read(database, self.path)
            check(policy, memory, envelope)
            return _given(database, memory, envelope)

    def admit(self, policy: Policy, envelope: Envelope) -> bytes:
        """Charge a request without masks, before data is used to answer it; raises Refused like `policy.admit`.

        Returns:
            The device's secret, for what it draws to answer.
        """
        with _transaction(self.path) as database:
            _write(database, admit(policy, _read(database, self.path), envelope))
            return _secret(database, self.path)

    def note(self, envelope: Envelope, answer: bytes) -> bytes:
        """Remember the answer. Returns the one to send: of two processes that answer at once the first one's."""
        with _transaction(self.path) as database:
            memory = _read(database, self.path)
            first = _given(database, memory, envelope)
            if first is None:
                _write(database, answered(memory, envelope, answer))
                _put(database, "answer", request_key(envelope), answer, most=MAX_ANSWERS)
            return answer if first is None else first

    def begin(self, policy: Policy, envelope: Envelope) -> None:
        """Note that a masking session begins, once for each run and round; raises Refused like `policy.begin`."""
        with _transaction(self.path) as database:
            _write(database, begin(policy, _read(database, self.path), envelope))

    def charge(self, policy: Policy, envelope: Envelope) -> None:
        """Charge a masked round, before data is used for its vector; raises Refused like `policy.charge`."""
        with _transaction(self.path) as database:
            _write(database, charge(policy, _read(database, self.path), envelope))

    def keep(self, run: str, state: bytes) -> None:
        """Keep a masking session's state, in place of any other of the same run."""
        with _transaction(self.path) as database:
            _put(database, "session", run, state, most=MAX_SESSIONS)

    def take(self, run: str, resume: Callable[[bytes], Session]) -> Session:
        """The session of this run, which the file has forgotten on return: each state is used once or never.

        A step that fails, or is killed half way, can't be repeated, and no lock is held while it works.

        Args:
            run: the run's name.
            resume: reads the state; when it raises Refused, the session stays where it is.
        """
        with _transaction(self.path) as database:
            row = database.execute("SELECT state FROM session WHERE run = ?", (run,)).fetchone()
            if row is None or not isinstance(row[0], bytes):
                raise Refused(Refusal.NO_SESSION)
            session = resume(row[0])
            database.execute("DELETE FROM session WHERE run = ?", (run,))
            return session

    def read(self) -> Memory:
        """What the device remembers, for its operator. A file without an admitted request is an empty memory."""
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=rw", uri=True)) as database:
                return Memory() if _is_blank(database, self.path) else _read(database, self.path)
        except sqlite3.Error as problem:
            raise UnusableMemory(
                f"the device's memory {self.path} can't be read: {problem}",
                allowed="a memory that fedhist wrote",
            ) from problem


@contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, which has on disk what the block did when it ended well, and nothing of it otherwise."""
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNER_ONLY))
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
            # A charge, or the use of a session, must not be undone by a power cut after its answer was sent.
            database.execute("PRAGMA synchronous = EXTRA")
            # What is forgotten is not to be found in the file either, nor in another beside it.
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("BEGIN IMMEDIATE")
            _prepare(database, path)
            for statement in _FORGET:
                database.execute(statement)
            yield database
            database.execute("COMMIT")
    except (sqlite3.Error, OSError, UnicodeDecodeError) as problem:
        # The last when a damaged schema is no text.
        raise UnusableMemory(
            f"the device's memory {path} can't be used: {problem}",
            allowed="a memory that fedhist wrote, or a path where nothing lies yet, on a disk with room that may "
            "be written",
            advice="the request is not answered, and nothing is spent",
        ) from problem


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file, and see to it that nobody else can read this one."""
    is_blank = _is_blank(database, path)
    if path.stat().st_mode & 0o777 != _OWNER_ONLY:
        path.chmod(_OWNER_ONLY)
    if is_blank:
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for statement in _TABLES.values():
            database.execute(statement)
        _write(database, Memory())


def _is_blank(database: sqlite3.Connection, path: Path) -> bool:
    """Whether nothing was ever written. A file of somebody else's is an error."""
    (mark,) = database.execute("PRAGMA application_id").fetchone()
    if mark == 0 and not _tables(database):
        return True
    if mark != _APPLICATION_ID:
        raise UnusableMemory(f"{path} is not a device's memory", allowed="a memory that fedhist wrote")
    return False


def _tables(database: sqlite3.Connection) -> set[str]:
    return {str(name) for (name,) in database.execute("SELECT name FROM sqlite_master")}


def _read(database: sqlite3.Connection, path: Path) -> Memory:
    row = database.execute("SELECT text FROM memory").fetchone()
    if row is None:
        raise UnusableMemory(f"the device's memory {path} is empty", allowed="a memory that fedhist wrote")
    try:
        return Memory.from_text(row[0])
    except DecodeError:
        raise UnusableMemory(
            f"the device's memory {path} is damaged", allowed="a memory that fedhist wrote"
        ) from None


def _given(database: sqlite3.Connection, memory: Memory, envelope: Envelope) -> bytes | None:
    """The noted answer to this request, if there is one; Refused if it was to another request, or is no longer kept."""
    if request_key(envelope) not in memory.answers:
        return None
    row = database.execute("SELECT bytes FROM answer WHERE request = ?", (request_key(envelope),)).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise Refused(Refusal.SECOND_REQUEST)
    answered(memory, envelope, row[0])
    return row[0]


def _write(database: sqlite3.Connection, memory: Memory) -> None:
    database.execute("INSERT OR REPLACE INTO memory (only, text) VALUES (1, ?)", (memory.to_text(),))


_PUT = {
    "session": (
        "INSERT OR REPLACE INTO session (run, state) VALUES (?, ?)",
        "DELETE FROM session WHERE rowid NOT IN (SELECT rowid FROM session ORDER BY rowid DESC LIMIT ?)",
    ),
    "answer": (
        "INSERT OR REPLACE INTO answer (request, bytes) VALUES (?, ?)",
        "DELETE FROM answer WHERE rowid NOT IN (SELECT rowid FROM answer ORDER BY rowid DESC LIMIT ?)",
    ),
}


def _put(database: sqlite3.Connection, table: str, name: str, value: bytes, *, most: int) -> None:
    """In place of any other of this name, and at the cost of the least recent one when there are too many."""
    insert, prune = _PUT[table]
    database.execute(insert, (name, value))
    database.execute(prune, (most,))


def _secret(database: sqlite3.Connection, path: Path) -> bytes:
    """The device's secret, made when it is first needed."""
    row = database.execute("SELECT bytes FROM secret").fetchone()
    if row is None:
        secret = new_secret()
        database.execute("INSERT INTO secret (only, bytes) VALUES (1, ?)", (secret,))
        return secret
    if not (isinstance(row[0], bytes) and len(row[0]) == SECRET_BYTES):
        raise UnusableMemory(
            f"the secret in the device's memory {path} is damaged",
            allowed="a memory that fedhist wrote",
            code="damaged-secret",
        )
    return row[0]
