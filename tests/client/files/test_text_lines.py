"""Errors name the line of a file, also where quotes and blank lines make it differ from the row of the table."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Columns, InvalidInput, read_population
from tests.support.api import InvalidFile, InvalidPopulation, parse_items, read_node_data, records
from tests.support.refusals import refused

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(content: bytes, name: str = "rows.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            b"user,item\na,x\nann,caf\xe9\n",
            ("not-utf8", "line 3", "21"),
        ),
        (b"user,item\na,x\nann,\x93tea\x94\n", ("not-utf8", "line 3")),
        (
            "user,item\nann,tea\n".encode("utf-16"),
            ("not-utf8",),
        ),
        (b"user,item\na,x\nann,tea,much\n", ("too-many-fields", "line 3")),
        (b'user,item\na,"two\nlines"\nann,tea,much\n', ("too-many-fields", "line 4")),
        (b'user,item\na,x\nb,"tea\nann,y\n', ("bad-quotes", "line 3")),
        (b'user,item\na,"two\nlines"\nb,x\n"ann,tea\n', ("bad-quotes", "line 5")),
        (
            b'user,item\na,"tea" ann\n',
            ("bad-quotes", "line 2"),
        ),
        (b'user,item\na,"tea\nb,"milk"\n', ("bad-quotes", "line 2")),
        (
            b'user,item\na,ann"tea\nb,y\n',
            ("bad-quotes", "line 2"),
        ),
    ],
)
def test_the_refused_line_is_named_and_never_quoted(
    written: Write, name: str, content: bytes, told: tuple[str, ...]
) -> None:
    with refused(InvalidFile, *told) as caught:
        read_population(written(content, name))
    assert not {"ann", "tea"} & set(str(caught.value).replace(",", " ").split())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            b'user,item,count\na,"two\nlines",1\n\xef\xbb\xbf,x,many\n',
            ("count-not-a-number", "line 4", "count"),
        ),
        (
            b"\xef\xbb\xbfuser,item,count\r\na,x,1\r\nb,x,-1\r\n",
            ("bad-count", "line 3", "count"),
        ),
        (
            b"user,item,count\na,x,1\nb\n",
            ("missing-value", "line 3"),
        ),
        (b"user,item\na,x\n\n", ("missing-value", "line 3", "line 2")),
    ],
)
def test_a_wrong_value_is_named_by_its_line(written: Write, content: bytes, told: tuple[str, ...]) -> None:
    with refused(InvalidPopulation, *told):
        read_population(written(content), columns=Columns(strict=True))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"user": "a", "item": "x"}\n\n{"user": "ann"\n', ("not-a-json-object", "line 3")),
        (b'{"user": "a", "item": "x"}\n[1]\n', ("not-a-json-object", "line 2")),
        (b'\xef\xbb\xbf{"user": "a", "item": "x"}\n', ("not-a-json-object", "line 1")),
        (b'{"user": "ann\xe9", "item": "x"}\n', ("not-utf8", "line 1")),
        (
            b'{"user": "a", "item": "x"}\n\n{"user": "ann"}\n',
            ("missing-value", "line 3"),
        ),
    ],
)
def test_lines_of_json(written: Write, content: bytes, told: tuple[str, ...]) -> None:
    with refused(InvalidInput, *told) as caught:
        read_population(written(content, "rows.jsonl"), columns=Columns(strict=True))
    assert "ann" not in str(caught.value)


def test_a_node_tells_no_line(written: Write) -> None:
    for name, content in {
        "a.csv": b"user,item\na,x\nb,x,y\n",
        "a.jsonl": b'{"user": "a", "item": "x"}\n[]\n',
    }.items():
        with refused(InvalidFile, "damaged-file") as caught:
            read_node_data(written(content, name))
        assert "line 3" not in str(caught.value)


def test_a_quote_out_of_place_in_a_column_that_is_not_read_loses_no_row(written: Write) -> None:
    """polars alone parses only what is asked for, and took the line end within the last two quotes for data."""
    with refused(InvalidFile, "bad-quotes", "line 2"):
        read_population(written(b'user,item,x\na,p,x"y\nb,q,\nc,r,x"y\n'))


FIELD = st.sampled_from(["", "a", 'q"', "two\nlines", "c,d", "\r\n", '""', " "])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(FIELD, min_size=1, max_size=3) | st.just(None), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
)
def test_records_are_the_rows_that_polars_sees(rows: list[list[str] | None], end: str) -> None:
    def quoted(field: str) -> str:
        return '"' + field.replace('"', '""') + '"' if set(field) & set('",\n\r') else field

    lines = ["a,b,c", *("" if row is None else ",".join(map(quoted, row)) for row in rows)]
    content = "".join(line + end for line in lines).encode()
    table = pl.read_csv(io.BytesIO(content), infer_schema_length=0)
    found = list(records(content.decode(), ","))
    assert len(found) == table.height + 1
    assert [problem for _, _, problem in found] == [None] * len(found)
    starts = [sum(line.count("\n") + 1 for line in lines[:place]) for place in range(len(lines))]
    assert [line for line, _, _ in found] == starts
    assert [fields for _, fields, _ in found] == [3, *(1 if row is None else len(row) for row in rows)]


def test_repeats_in_lists_of_items_are_named_by_their_lines(tmp_path: Path, written: Write) -> None:
    with refused(InvalidFile, "repeated-item", "line 5", "line 1") as caught:
        parse_items(b"tea\r\n\r\nmilk\r\n\r\ntea\r\n", name="items.txt")
    assert "tea" not in str(caught.value)
    with refused(InvalidFile, "not-utf8", "line 2", "items.txt"):
        parse_items(b"tea\ncaf\xe9\n", name="items.txt")
    with refused(InvalidInput, "repeated-item"):
        read_population(written(b"user,item\na,x\n"), items=[7, "x", "7"])


def test_a_missing_column_of_ones_own_is_named_and_the_header_is_not_quoted(written: Write) -> None:
    path = written(b"ann,tea\nbob,tea\n")
    with refused(InvalidFile, "missing-column", "who", "what") as caught:
        read_population(path, columns=Columns("who", "what"))
    assert "tea" not in str(caught.value)
