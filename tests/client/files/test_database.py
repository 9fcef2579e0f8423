"""Users in a database: the same as in a file with the same rows, and nothing that it says leaves the node."""

from __future__ import annotations

import csv
import random
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Columns, InvalidInput
from tests.builders import rows_in_any_order, table_of
from tests.support.api import Database, InvalidFile, labels_of, read_node_data
from tests.support.refusals import refused

NAMES = Columns("who", "what", "n")
ALL = "SELECT who, what, n FROM visits"

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=3)
rows_of_visits = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "cay", "007"]) | texts,
        st.sampled_from("ab") | texts,
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=30,
)


def database(path: Path, rows: Iterable[Sequence[Any]]) -> str:
    """The address of a new SQLite file with these visits, whose columns take values of any kind."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE visits (who, what, n)")
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{path}"


def csv_file(path: Path, rows: Iterable[Sequence[Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(NAMES.names)
        writer.writerows(rows)
    return path


def same(one: Any, other: Any) -> bool:
    return labels_of(one) == labels_of(other) and rows_in_any_order(one) == rows_in_any_order(other)


@settings(max_examples=40, deadline=None)
@given(rows_of_visits, st.booleans())
def test_a_database_a_frame_and_a_file_with_the_same_rows_are_the_same_users(
    rows: list[tuple[str, str, int]], closed: bool
) -> None:
    items = ["b", "a", "z"] if closed else None
    with TemporaryDirectory() as folder:
        address = database(Path(folder, "v.db"), rows)
        from_file, _ = read_node_data(csv_file(Path(folder, "v.csv"), rows), columns=NAMES, items=items)
        from_database, _ = read_node_data(Database(address, ALL), columns=NAMES, items=items)
    frame = pl.DataFrame(rows, schema=NAMES.names, orient="row")
    from_frame, _ = read_node_data(frame, columns=NAMES, items=items)
    assert same(from_database, from_file)
    assert same(from_frame, from_file)


def test_the_order_of_rows_decides_nothing(tmp_path: Path) -> None:
    rows = [(f"u{number % 40}", f"i{number % 7}", number % 3) for number in range(500)]
    items = [f"i{number}" for number in range(7)]
    shuffled = random.Random(1).sample(rows, len(rows))
    tables = []
    for name, some in (("a", rows), ("b", shuffled)):
        address = database(tmp_path / name, some)
        tables.append(read_node_data(Database(address, ALL), columns=NAMES, items=items)[0])
    assert same(*tables)


def test_values_are_read_as_a_text_file_has_them_and_odd_ones_are_left_out(tmp_path: Path) -> None:
    rows = [
        (7, "a", 1), ("7", "a", 2.0), ("007", "a", "3"),
        ("ann", 5, 1), ("ann", "5", " 1 "),
        ("ann", b"blob", 1), ("ann", 2.5, 1), ("ann", None, 1), ("ann", "a", 1.5), ("ann", "a", "x"),
        ("ann", "a", -1), ("ann", "a", 2**40), ("ann", "a", None), (None, "a", 1), (b"x", "a", 1),
        ("bob", b"all of bob's rows are odd", 1),
    ]  # fmt: skip
    found, left_out = read_node_data(Database(database(tmp_path / "d", rows), ALL), columns=NAMES)
    assert labels_of(found) == ("a", "5")
    assert rows_in_any_order(found) == [[0, 0], [0, 2], [3, 0], [3, 0]]
    assert left_out == 11


@pytest.mark.parametrize("column", ["who", "what", "n"])
def test_one_text_that_is_not_utf8_leaves_out_its_row_and_not_the_node(tmp_path: Path, column: str) -> None:
    address = database(tmp_path / "v.db", [("ann", "a", 2), ("bob", "b", "1"), ("cay", "a", 1)])
    with sqlite3.connect(tmp_path / "v.db") as connection:
        connection.execute(f"UPDATE visits SET {column} = CAST(x'ff41' AS TEXT) WHERE who = 'cay'")  # noqa: S608
    connection.close()
    users, left_out = read_node_data(Database(address, ALL), columns=NAMES, items=["a", "b"])
    assert left_out == 1
    cay = [] if column == "who" else [[0, 0]]
    assert rows_in_any_order(users) == [*cay, [0, 1], [2, 0]]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_database_in_utf16(tmp_path: Path, encoding: str) -> None:
    with sqlite3.connect(tmp_path / "v.db") as connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
    connection.close()
    address = database(tmp_path / "v.db", [("änn", "a", 2), ("änn", "b", "1"), (None, "a", 1)])
    users, left_out = read_node_data(Database(address, ALL), columns=NAMES)
    assert (rows_in_any_order(users), labels_of(users), left_out) == ([[2, 1]], ("a", "b"), 1)


@pytest.mark.parametrize("rows", [0, 1, 70_000])
def test_the_first_rows_decide_no_type(tmp_path: Path, rows: int) -> None:
    """Neither missing values nor numbers before a text."""
    for name, first in (("none", (None, None, None)), ("numbers", (5, 5, 1))):
        address = database(tmp_path / name, [*[first] * rows, ("ann", "a", 2), ("bob", "b", "1")])
        users, left_out = read_node_data(Database(address, ALL), columns=NAMES, items=["a", "b"])
        others = [[0, 0]] * bool(rows and name == "numbers")
        assert rows_in_any_order(users) == [*others, [0, 1], [2, 0]]
        assert left_out == (rows if name == "none" else 0)


def test_a_number_in_bins_keeps_all_its_digits(tmp_path: Path) -> None:
    address = database(tmp_path / "v.db", [("ann", 9.999999999999998, 1), ("ann", 10.0, 1)])
    columns = Columns("who", "what", "n", bins=[0, 10, 20])
    assert rows_in_any_order(read_node_data(Database(address, ALL), columns=columns)[0]) == [[1, 1]]


def test_numbers_in_bins(tmp_path: Path) -> None:
    rows = [("a", 5, 1), ("a", 9.99, 1), ("a", "10", 2), ("b", -1, 1), ("b", "much", 1), ("b", None, 1)]
    columns = Columns("who", "what", "n", bins=[0, 10, 20])
    found, left_out = read_node_data(Database(database(tmp_path / "d", rows), ALL), columns=columns)
    assert labels_of(found) == ("[0, 10)", "[10, 20)")
    assert rows_in_any_order(found) == [[0, 0], [2, 2]]
    assert left_out == 2


def test_more_rows_than_are_read_at_a_time(tmp_path: Path) -> None:
    """One odd value after many rows is one row: a reader that types a column by its first rows would give up."""
    rows = [(f"u{number % 1000}", number % 5, 1) for number in range(150_000)]
    address = database(tmp_path / "d", [*rows, ("odd", "text", "x"), ("u1", 4, 1)])
    found, left_out = read_node_data(Database(address, ALL), columns=NAMES)
    assert (found.users, int(table_of(found).sum()), left_out) == (1001, 150_001, 1)


def test_no_rows_are_no_users(tmp_path: Path) -> None:
    found, _ = read_node_data(Database(database(tmp_path / "d", []), ALL), columns=NAMES, items=["a"])
    assert found.users == 0


def test_a_query_is_taken_as_it_is(tmp_path: Path) -> None:
    """Colons and percent signs stand for themselves."""
    address = database(tmp_path / "d", [("a:b", "100%", 1), ("c", "x", 1)])
    query = "SELECT who AS \"user\", what AS item FROM visits WHERE what LIKE '1%' AND who = 'a:b'"
    found, _ = read_node_data(Database(address, query))
    assert labels_of(found) == ("100%",)


def test_nothing_is_written(tmp_path: Path) -> None:
    address = database(tmp_path / "d", [("a", "x", 1)])
    before = (tmp_path / "d").read_bytes()
    for query in ("DELETE FROM visits", "DELETE FROM visits RETURNING who, what, n", "DROP TABLE visits",
                  "SELECT who, what, n FROM visits; DROP TABLE visits"):  # fmt: skip
        with refused(InvalidFile, "database-failed"):
            read_node_data(Database(address, query), columns=NAMES)
    assert (tmp_path / "d").read_bytes() == before
    with refused(InvalidFile, "missing-file"):
        read_node_data(Database(f"sqlite:///{tmp_path}/none.db", ALL), columns=NAMES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d"]


@pytest.mark.parametrize("name", ["a file with spaces.db", "hash#.db", "ü.db"])
def test_any_name_of_a_file(tmp_path: Path, name: str) -> None:
    address = database(tmp_path / name, [("a", "x", 1)])
    assert read_node_data(Database(address, ALL), columns=NAMES)[0].users == 1


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("no address hunter2", "bad-address"),
        ("mysql://me:hunter2@localhost/x", "unknown-database"),
        ("postgresql://me:hunter2@[localhost/x", "bad-address"),
        ("sqlite://", "database-without-file"),
        ("sqlite:///:memory:", "database-without-file"),
        ("${FEDHIST_NO_SUCH_URL}", "unset-variable"),
        ("postgresql://me:${FEDHIST_NO_SUCH_PASSWORD}@x/y", "unset-variable"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_without_it(address: str, code: str) -> None:
    with refused(InvalidInput, code) as error:
        read_node_data(Database(address, ALL), columns=NAMES)
    assert "hunter2" not in str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_a_missing_driver_is_a_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with refused(InvalidInput, "missing-driver", "adbc_driver_postgresql", "fedhist[database]"):
        read_node_data(Database("postgresql://me@localhost/x", ALL), columns=NAMES)


def test_an_address_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDHIST_VISITS", database(tmp_path / "d", [("a", "x", 1)]))
    assert read_node_data(Database("${FEDHIST_VISITS}", ALL), columns=NAMES)[0].users == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT alice_visited_the_clinic FROM visits",
        "SELECT who, what, n FROM alice_visited_the_clinic",
        "alice_visited_the_clinic",
        "SELECT who, what, abs('alice_visited_the_clinic') + json('alice_visited_the_clinic') AS n FROM visits",
    ],
)
def test_errors_quote_neither_the_query_nor_values(tmp_path: Path, query: str) -> None:
    address = database(tmp_path / "d", [("a", "x", 1)])
    with refused(InvalidFile, "database-failed") as error:
        read_node_data(Database(address, query), columns=NAMES)
    assert "alice" not in str(error.value)
    assert "alice" not in repr(Database(address, query))


@pytest.mark.parametrize(
    ("query", "columns", "told"),
    [
        (ALL, Columns(), ("wrong-columns-of-query", "user-column")),
        ("SELECT who, who, what FROM visits", Columns("who", "what"), ("wrong-columns-of-query",)),
        ("SELECT who, what FROM visits", NAMES, ("wrong-columns-of-query",)),
        (ALL, Columns("who", "what", separator=";"), ("option-of-text-files",)),
    ],
)
def test_columns_that_are_not_there(
    tmp_path: Path, query: str, columns: Columns, told: tuple[str, ...]
) -> None:
    address = database(tmp_path / "d", [("a", "x", 1)])
    with refused(InvalidInput, *told):
        read_node_data(Database(address, query), columns=columns)


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("alice visited the clinic, again and again, and again, and again")
    with refused(InvalidFile, "database-failed") as error:
        read_node_data(Database(f"sqlite:///{tmp_path}/d", ALL), columns=NAMES)
    assert "alice" not in str(error.value)
