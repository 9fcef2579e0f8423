from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedhist.client.memory_file import admit_in_file
from fedhist.client.policy import Policy
from fedhist.protocol.envelope import Envelope
from fedhist.protocol.errors import DecodeError, InvalidFile, Refused
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import SelectRequest

PLAN = Plan(users=10, items=2, epsilon=1.0, epsilon_select=1.0)


def ask(path: Path, run: str, limit: float = 2.0) -> None:
    envelope = Envelope(run=run, request=SelectRequest(PLAN))
    admit_in_file(path, Policy(max_epsilon=limit), envelope)


def test_a_limit_holds_from_one_process_to_the_next(tmp_path: Path) -> None:
    ask(tmp_path / "m.db", "one")
    ask(tmp_path / "m.db", "one")
    with pytest.raises(Refused, match="over-budget"):
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
    database = sqlite3.connect(tmp_path / "m.db")
    database.execute("CREATE TABLE other (x)")
    database.close()
    with pytest.raises(InvalidFile):
        ask(tmp_path / "m.db", "one")


def test_a_damaged_memory_is_no_fresh_start(tmp_path: Path) -> None:
    ask(tmp_path / "m.db", "one")
    for damage in ("UPDATE memory SET text = '{}'", "DELETE FROM memory"):
        database = sqlite3.connect(tmp_path / "m.db")
        database.execute(damage)
        database.commit()
        database.close()
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
