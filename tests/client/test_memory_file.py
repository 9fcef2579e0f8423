from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from fedhist import Plan
from fedhist.client import Policy
from tests.asking import select_request
from tests.support.api import MAX_SESSIONS, DecodeError, Envelope, InvalidFile, MemoryFile, Refused
from tests.support.refusals import refused

PLAN = Plan(users=10, items=2, epsilon=1.0, epsilon_select=1.0)


def ask(path: Path, run: str, limit: float = 2.0) -> None:
    envelope = Envelope(run=run, request=select_request(PLAN))
    MemoryFile(path).admit(Policy(max_epsilon=limit), envelope)


def altered(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


def test_a_limit_holds_from_one_process_to_the_next(tmp_path: Path) -> None:
    ask(tmp_path / "m.db", "one")
    ask(tmp_path / "m.db", "one")
    with refused(Refused, "over-budget"):
        ask(tmp_path / "m.db", "two")
    ask(tmp_path / "m.db", "two", limit=3.0)


def test_of_many_at_once_only_so_many_as_fit_are_admitted(tmp_path: Path) -> None:
    def admitted(number: int) -> bool:
        try:
            ask(tmp_path / "m.db", str(number), limit=4.0)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(admitted, range(12))) == 3


def test_a_refused_first_request_leaves_a_usable_file(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        ask(tmp_path / "m.db", "one", limit=0.5)
    ask(tmp_path / "m.db", "one")


@pytest.mark.parametrize(
    "content", [b"not a database, and long enough to be seen as none" * 20, b"SQLite format 3\0"]
)
def test_another_file_is_never_taken_for_a_memory(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.db").write_bytes(content)
    with pytest.raises(InvalidFile):
        ask(tmp_path / "m.db", "one")
    assert (tmp_path / "m.db").read_bytes() == content


def test_another_database_is_refused(tmp_path: Path) -> None:
    altered(tmp_path / "m.db", "CREATE TABLE other (x)")
    with pytest.raises(InvalidFile):
        ask(tmp_path / "m.db", "one")


def test_a_damaged_memory_is_no_fresh_start(tmp_path: Path) -> None:
    ask(tmp_path / "m.db", "one")
    for damage in ("UPDATE memory SET text = '{}'", "DELETE FROM memory"):
        altered(tmp_path / "m.db", damage)
        with pytest.raises((DecodeError, InvalidFile)):
            ask(tmp_path / "m.db", "two")


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile):
        ask(tmp_path / "none" / "m.db", "one")


def test_a_schema_that_is_no_text_is_not_a_python_error(tmp_path: Path) -> None:
    """sqlite3 fails to quote it in its own error."""
    ask(tmp_path / "m.db", "one")
    content = (tmp_path / "m.db").read_bytes()
    assert b"only = 1" in content
    for damage in (b"only \xff 1", b"\xff\xff\xff\xff\xff\xff\xff\xff"):
        (tmp_path / "m.db").write_bytes(content.replace(b"only = 1", damage))
        with pytest.raises(InvalidFile):
            ask(tmp_path / "m.db", "two")


class TestTheFile:
    def test_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        before = os.umask(0o022)
        try:
            ask(tmp_path / "m.db", "one")
        finally:
            os.umask(before)
        assert (tmp_path / "m.db").stat().st_mode & 0o777 == 0o600

    def test_the_secret_stays_the_same(self, tmp_path: Path) -> None:
        secrets = [
            MemoryFile(tmp_path / name).admit(Policy(), Envelope(run=run, request=select_request(PLAN)))
            for name, run in [("m.db", "one"), ("m.db", "two"), ("other.db", "one")]
        ]
        assert secrets[0] == secrets[1] != secrets[2]
        assert {len(secret) for secret in secrets} == {32}

    def test_a_damaged_secret_is_an_error(self, tmp_path: Path) -> None:
        ask(tmp_path / "m.db", "one")
        altered(tmp_path / "m.db", "UPDATE secret SET bytes = 'short'")
        with refused(InvalidFile, "damaged-secret"):
            ask(tmp_path / "m.db", "two", limit=9.0)


class TestSessions:
    @pytest.fixture
    def memory(self, tmp_path: Path) -> MemoryFile:
        return MemoryFile(tmp_path / "m.db")

    def test_each_state_is_taken_once(self, memory: MemoryFile) -> None:
        memory.keep("one", b"first")
        assert memory.take("one", bytes) == b"first"
        with refused(Refused, "no-session"):
            memory.take("one", bytes)

    def test_one_that_the_message_does_not_continue_stays(self, memory: MemoryFile) -> None:
        def refuse(state: bytes) -> None:
            raise Refused("no-session")

        memory.keep("one", b"first")
        with pytest.raises(Refused):
            memory.take("one", refuse)
        assert memory.take("one", bytes) == b"first"

    def test_the_least_recent_run_gives_way(self, memory: MemoryFile) -> None:
        for run in range(MAX_SESSIONS + 1):
            memory.keep(str(run), b"state")
        with pytest.raises(Refused):
            memory.take("0", bytes)
        for run in range(1, MAX_SESSIONS + 1):
            memory.take(str(run), bytes)

    @pytest.mark.parametrize("kept", ["kept - 1.1", "kept + 1.1", "'2999-01-01'", "9e999"])
    def test_one_that_is_not_continued_for_a_day_is_forgotten(self, memory: MemoryFile, kept: str) -> None:
        """Also one that was kept while the clock was ahead: it would stay for ever."""
        memory.keep("abandoned", b"the secrets of a session")
        memory.keep("under way", b"other secrets")
        altered(memory.path, f"UPDATE session SET kept = {kept} WHERE run = 'abandoned'")  # noqa: S608 - ours
        assert memory.take("under way", bytes) == b"other secrets"
        assert b"the secrets of a session" not in memory.path.read_bytes()
        with refused(Refused, "no-session"):
            memory.take("abandoned", bytes)

    def test_a_file_that_others_may_read_is_closed_to_them(self, memory: MemoryFile) -> None:
        memory.keep("one", b"secrets")
        memory.path.chmod(0o644)
        with sqlite3.connect(memory.path) as database:
            database.execute("PRAGMA journal_mode = WAL")
        memory.keep("one", b"newer secrets")
        assert memory.path.stat().st_mode & 0o777 == 0o600
        assert not (memory.path.with_name("m.db-wal")).exists()
