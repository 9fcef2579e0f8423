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
    ("content", "words"),
    [
        (
            b"user,item\na,x\nann,caf\xe9\n",
            r"line 3 of .* is not in UTF-8: byte 0xE9 at position 21 .*Latin-1; .*iconv",
        ),
        (b"user,item\na,x\nann,\x93tea\x94\n", r"line 3 of .*byte 0x93 .*Windows-1252"),
        (
            "user,item\nann,tea\n".encode("utf-16"),
            r"byte 0xFF at position 0 .* looks like UTF-16; .*iconv -f UTF-16",
        ),
        (b"user,item\na,x\nann,tea,much\n", r"line 3 of .* has 3 fields, and the first line has 2"),
        (b'user,item\na,"two\nlines"\nann,tea,much\n', r"line 4 of .* has 3 fields"),
        (b'user,item\na,x\nb,"tea\nann,y\n', r"a quote opens in line 3, field 2, and is never closed"),
        (b'user,item\na,"two\nlines"\nb,x\n"ann,tea\n', r"a quote opens in line 5, field 1"),
        (
            b'user,item\na,"tea" ann\n',
            r"a quote opens in line 2, field 2, and text follows where it closes in line 2",
        ),
        (b'user,item\na,"tea\nb,"milk"\n', r"a quote opens in line 2, field 2, .* closes in line 3"),
        (
            b'user,item\na,ann"tea\nb,y\n',
            r"in line 2, field 2, a quote stands inside of a field without quotes",
        ),
    ],
)
def test_the_refused_line_is_named_and_never_quoted(
    written: Write, name: str, content: bytes, words: str
) -> None:
    with pytest.raises(InvalidFile, match=words) as caught:
        read_population(written(content, name))
    assert not {"ann", "tea"} & set(str(caught.value).replace(",", " ").split())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b'user,item,count\na,"two\nlines",1\n\xef\xbb\xbf,x,many\n',
            r"the count in line 4, column 'count', of .*rows",
        ),
        (
            b"\xef\xbb\xbfuser,item,count\r\na,x,1\r\nb,x,-1\r\n",
            r"the count at line 3, column 'count', of .* is negative",
        ),
        (
            b"user,item,count\na,x,1\nb\n",
            r"item in line 3, column 'item', .*\(it has 1 field, the first line 3\) is missing",
        ),
        (b"user,item\na,x\n\n", r"the user in line 3, .*\(it has 1 field, the first line 2\) is missing"),
    ],
)
def test_a_wrong_value_is_named_by_its_line(written: Write, content: bytes, words: str) -> None:
    with pytest.raises(InvalidPopulation, match=words):
        read_population(written(content))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"user": "a", "item": "x"}\n\n{"user": "ann"\n', "line 3 of .* is not JSON"),
        (b'{"user": "a", "item": "x"}\n[1]\n', "line 2 of .* is no JSON object but a list"),
        (b'\xef\xbb\xbf{"user": "a", "item": "x"}\n', "line 1 of .* begins with a byte order mark"),
        (b'{"user": "ann\xe9", "item": "x"}\n', "line 1 of .* byte 0xE9"),
        (
            b'{"user": "a", "item": "x"}\n\n{"user": "ann"}\n',
            "the item in line 3, key 'item', of .* is missing",
        ),
    ],
)
def test_lines_of_json(written: Write, content: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        read_population(written(content, "rows.jsonl"))
    assert "ann" not in str(caught.value)


def test_a_node_tells_no_line(written: Write) -> None:
    for name, content in {
        "a.csv": b"user,item\na,x\nb,x,y\n",
        "a.jsonl": b'{"user": "a", "item": "x"}\n[]\n',
    }.items():
        with pytest.raises(InvalidFile, match="is damaged or does not follow its format") as caught:
            read_node_data(written(content, name))
        assert "line 3" not in str(caught.value)


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
    found = list(records(io.BytesIO(content), b","))
    assert len(found) == table.height + 1
    assert [one.problem for one in found] == [None] * len(found)
    starts = [1 + sum(line.count("\n") + 1 for line in lines[:place]) for place in range(len(lines))]
    assert [one.line for one in found] == starts
    assert [one.fields for one in found] == [3, *(1 if row is None else len(row) for row in rows)]


def test_repeats_in_lists_of_items_are_named_by_their_lines(tmp_path: Path, written: Write) -> None:
    with pytest.raises(InvalidFile, match=r"line 5 repeats line 1") as caught:
        parse_items(b"tea\r\n\r\nmilk\r\n\r\ntea\r\n", name="items.txt")
    assert "tea" not in str(caught.value)
    with pytest.raises(InvalidFile, match=r"line 2 of items.txt is not in UTF-8: byte 0xE9 at position 7"):
        parse_items(b"tea\ncaf\xe9\n", name="items.txt")
    with pytest.raises(InvalidInput, match="item 2 of the list of items repeats item 0"):
        read_population(written(b"user,item\na,x\n"), items=[7, "x", "7"])


def test_a_missing_column_of_ones_own_is_named_and_the_header_is_not_quoted(written: Write) -> None:
    path = written(b"ann,tea\nbob,tea\n")
    with pytest.raises(
        InvalidFile, match="has 2 columns, and none of them is called 'who', 'what'"
    ) as caught:
        read_population(path, columns=Columns("who", "what"))
    assert "tea" not in str(caught.value)
