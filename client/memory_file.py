"""A device's memory in a file of its own: it outlives a Flower run, where Flower's own state of a node ends.

An SQLite database, because two messages may be answered at once and only one of them may get the last of a budget.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fedhist.client.policy import Memory, Policy, admit
from fedhist.protocol.envelope import Envelope
from fedhist.protocol.errors import InvalidFile

_BUSY_SECONDS = 30.0
_APPLICATION_ID = int.from_bytes(b"fdhm", "big")


def admit_in_file(path: Path, policy: Policy, envelope: Envelope) -> None:
    """Admit a request in view of the file's memory, and have that on disk on return; raises Refused like `admit`.

    A file that is missing or empty is made. One that holds anything else is an error: never a fresh start.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
            # A charge must not be undone by a power cut after its answer was sent.
            database.execute("PRAGMA synchronous = EXTRA")
            database.execute("BEGIN IMMEDIATE")
            memory = admit(policy, _read(database, path), envelope)
            database.execute("INSERT OR REPLACE INTO memory (only, text) VALUES (1, ?)", (memory.to_text(),))
            database.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as problem:  # the latter when a damaged schema is no text
        raise InvalidFile(
            f"the device's memory {path} can't be used: {problem}",
            allowed="a memory that fedhist wrote, or a path where nothing lies yet, on a disk with room that may "
            "be written",
            advice="the request is not answered, and nothing is spent",
        ) from problem


def read_memory(path: Path) -> Memory:
    """What the device remembers, for its operator. A file that no request was admitted into is an empty memory."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return _read(database, path) if tables else Memory()
    except sqlite3.Error as problem:
        raise InvalidFile(
            f"the device's memory {path} can't be read: {problem}", allowed="a memory that fedhist wrote"
        ) from problem


def _read(database: sqlite3.Connection, path: Path) -> Memory:
    (mark,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if mark == 0 and tables == 0:
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        database.execute(
            "CREATE TABLE memory (only INTEGER PRIMARY KEY CHECK (only = 1), text TEXT NOT NULL)"
        )
        return Memory()
    if mark != _APPLICATION_ID:
        raise InvalidFile(f"{path} is not a device's memory", allowed="a memory that fedhist wrote")
    row = database.execute("SELECT text FROM memory").fetchone()
    if row is None:
        raise InvalidFile(f"the device's memory {path} is empty", allowed="a memory that fedhist wrote")
    return Memory.from_text(row[0])
