"""Users in a real PostgreSQL server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from adbc_driver_postgresql import dbapi
from postgresql_server import PASSWORD, running_server

from fedhist import Columns, InvalidInput
from tests.builders import table_of
from tests.support.api import Database, InvalidFile, labels_of, read_node_data
from tests.support.refusals import refused

NAMES = Columns("who", "what", "n")
SETUP = """
CREATE TABLE visits AS SELECT 'user-' || i % 500 AS who, 'item-' || i % 7 AS what, i % 4 AS n
    FROM generate_series(1, 200000) i;
CREATE TABLE kinds (who uuid, number bigint, day date, truth boolean, whole numeric(9, 0), price numeric(9, 2),
    at timestamp, note jsonb, real double precision);
INSERT INTO kinds VALUES ('00000000-0000-0000-0000-00000000000a', 7, '2026-11-18', true, 12, 9.99, now(), '{}', 'NaN'),
    ('00000000-0000-0000-0000-00000000000a', NULL, 'infinity', false, 3, 10.00, now(), '{}', 2.5);
CREATE SEQUENCE numbers;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDHIST_TEST_PASSWORD", PASSWORD)
        with dbapi.connect(address.replace("reader@", f"reader:{quote(PASSWORD, safe='')}@")) as connection:
            for statement in filter(str.strip, SETUP.split(";\n")):
                with connection.cursor() as cursor:
                    cursor.execute(statement)
            connection.commit()
        yield address.replace("reader@", "reader:${FEDHIST_TEST_PASSWORD}@")


def of_kinds(column: str, user: str = "who") -> str:
    return f"SELECT {user}, {column} AS what FROM kinds"  # noqa: S608 - no foreign words


def read(server: str, query: str, **how: Any) -> tuple[Any, int]:
    return read_node_data(Database(server, query), **{"columns": NAMES} | how)


def test_a_table_is_the_users_of_a_file_with_the_same_rows(server: str, tmp_path: Path) -> None:
    rows = [(f"user-{i % 500}", f"item-{i % 7}", i % 4) for i in range(1, 200_001)]
    path = tmp_path / "visits.csv"
    path.write_text("who,what,n\n" + "".join(f"{who},{what},{n}\n" for who, what, n in rows))
    items = [f"item-{number}" for number in range(7)]
    ours, left_out = read(
        server, "SELECT what, n, who FROM visits ORDER BY split_part(who, '-', 2)::int", items=items
    )
    theirs, _ = read_node_data(path, columns=NAMES, items=items)
    assert left_out == 0
    assert labels_of(ours) == labels_of(theirs) == tuple(items)
    assert sorted(table_of(ours).tolist()) == sorted(table_of(theirs).tolist())


def test_rows_come_in_a_stream(server: str) -> None:
    """The first ones are there before the last one, which can't be computed, is."""
    query = "SELECT i::text AS who, 'a' AS what, 1 / (2000000 - i) AS n FROM generate_series(1, 2000000) i"
    batches = Database(server, query).batches(NAMES)
    assert next(batches)[0].height < 500_000
    with refused(InvalidFile, "database-failed"):
        list(batches)


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        ("number", ("7",)),
        ("day::text", ("infinity", "2026-11-18")),
        ("truth", ("true", "false")),
        ("whole", ("3", "12")),
        ("who", ("00000000-0000-0000-0000-00000000000a",)),
    ],
)
def test_kinds_of_values(server: str, column: str, labels: tuple[str, ...]) -> None:
    found, _ = read(server, of_kinds(column, "who::text AS u"), columns=Columns("u", "what"))
    assert found.users == 1
    assert labels_of(found) == labels


@pytest.mark.parametrize(("column", "kind"), [("at", "Datetime"), ("note", "Extension"), ("real", "Float64")])
def test_kinds_that_are_nobodys_name(server: str, column: str, kind: str) -> None:
    with refused(InvalidInput, "column-type", kind):
        read(server, of_kinds(column), columns=Columns("who", "what"))


@pytest.mark.parametrize(
    ("column", "counts", "odd"), [("price", [1, 1], 0), ("real", [1, 0], 1), ("whole", [1, 1], 0)]
)
def test_any_numbers_in_bins(server: str, column: str, counts: list[int], odd: int) -> None:
    columns = Columns("who", "what", bins=[0, 10, 20])
    found, left_out = read(server, of_kinds(column), columns=columns)
    assert table_of(found).tolist() == [counts]
    assert left_out == odd


def test_a_query_is_taken_as_it_is(server: str) -> None:
    found, _ = read(server, "SELECT who, what, n FROM visits WHERE who LIKE '%-7' AND what LIKE 'item-1%'")
    assert (found.users, labels_of(found)) == (1, ("item-1",))


def test_nothing_is_written(server: str) -> None:
    for query in (
        "SELECT nextval('numbers') AS n, who, what FROM visits",
        "DELETE FROM visits",
        "DELETE FROM visits RETURNING who, what, n",
        "SELECT who, what, n FROM visits; DELETE FROM visits",
    ):
        with refused(InvalidFile, "database-failed"):
            read(server, query)
    assert read(server, "SELECT who, what, n FROM visits")[0].users == 500
    called, _ = read(
        server, "SELECT 'x' AS who, is_called AS what FROM numbers", columns=Columns("who", "what")
    )
    assert labels_of(called) == ("false",)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT who, what, (who || 'alice-clinic')::int AS n FROM visits", ("database-failed",)),
        ("SELECT alice_clinic FROM visits", ("database-failed", "42703")),
        ("SELECT who, what, n FROM alice_clinic", ("database-failed",)),
    ],
)
def test_what_the_server_says_stays_there(
    server: str,
    query: str,
    told: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    with refused(InvalidFile, *told) as error:
        read(server, query)
    said = str(error.value) + caplog.text + "".join(capfd.readouterr())
    assert "alice" not in said
    assert PASSWORD not in said


def test_a_column_that_changes_its_kind_later_on(server: str) -> None:
    query = (
        "SELECT 'u' AS who, CASE WHEN i < 100000 THEN NULL ELSE i::numeric / 2 END AS what "
        "FROM generate_series(1, 100001) i"
    )
    found, left_out = read(server, query, columns=Columns("who", "what"))
    assert left_out == 99_999
    assert found.domain_size == 2


def test_a_wrong_password_is_not_shown(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDHIST_TEST_PASSWORD", "hunter2")
    with refused(InvalidFile, "database-failed") as error:
        read(server, "SELECT 1")
    assert "hunter2" not in str(error.value)
    assert "reader" not in str(error.value)
