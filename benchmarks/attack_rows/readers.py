"""Files, queries and frames that are made to mislead a reader: its memory, its sentences, and what it counts."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from attack_rows import attack
from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.files.database import Database
from fedhist.client.files.read import node_users, read_frame, read_population
from fedhist.protocol.errors import FedhistError

ITEMS = ("a", "b")
LIMIT = 256 << 20
SPARE = 320 << 20
"""What a process takes beside its limit: the interpreter, numpy, polars and the page of a result."""

NAMES = (
    *(
        "^.*$",
        "^u",
        "^a.c$",
        "*",
        'it"em',
        "it'em",
        "a.b",
        "a,b",
        "$x",
        "%s",
        "{}",
        "item ",
        "  ",
        "\u202e",
        "e\u0301",
    ),
    *(
        "ITEM",
        "0",
        "-1",
        "null",
        "item:1",
        "col\nname",
        "tab\tname",
        "[x]",
        "x" * 300,
        "ß",
        "count",
        "time",
        "literal",
    ),
)
SECRET = "HUNTER2"  # noqa: S105 - what must not be shown
QUERIES = (
    "drop table v",
    "select 1) as q; drop table v; --",
    "select * from v) as q; attach 'new.db' as n; create table n.x(a); --",
    "insert into v values (1, 2, 3) returning user, item",
    "update v set user = 'x' returning user, item",
    "pragma writable_schema = 1",
    "pragma journal_mode = wal",
    "vacuum into 'new.db'",
    "attach 'new.db' as n",
    "select load_extension('x') as user, item from v",
    "select readfile('v.db') as user, item from v",
    "select user, item from HUNTER2",
    "select 'HUNTER2' from v",
    "select :user as user, item from v",
    "select user, item from v; select 1",
    "select user, item, 1e999 as count from v",
    "select user, item, -1 as count from v",
    "select user, item, 9223372036854775807 as count from v",
    "select user, item, 'HUNTER2' as count from v",
    "select user, item, cast(x'ff' as text) as count from v",
    "select cast(x'ffff' as text) as user, item from v",
    "select x'ff00' as user, item from v",
    "select user, user as user, item from v",
    "",
    ";",
)
ADDRESSES = (
    *("sqlite:///", "sqlite:///.", "sqlite:////dev/zero", "sqlite:///new.db", "sqlite:///v.db?mode=rwc"),
    *(
        "sqlite:///file:v.db?mode=rwc",
        f"postgresql://u:{SECRET}@127.0.0.1:1/x",
        f"postgresql://u:{SECRET}@[::1",
    ),
    *(
        f"postgresql://u:{SECRET}@127.0.0.1:port/x",
        f"mysql://u:{SECRET}@h/x",
        SECRET,
        "postgresql://${" + SECRET + "}@h/x",
    ),
)


@contextmanager
def in_folder() -> Iterator[Path]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def misread(read: Callable[[], Any]) -> bool:
    """Whether a reader ends otherwise than with a population or a sentence of ours."""
    try:
        read()
    except FedhistError:
        return False
    except BaseException as error:
        # A panic of polars is no Exception.
        if isinstance(error, KeyboardInterrupt):
            raise
        return True
    return False


def parquet_files() -> list[bytes]:
    count = 2_000
    users, items = [f"u{row % 50}" for row in range(count)], [f"p{row * 7 % 40}" for row in range(count)]
    text = pa.table({"user": users, "item": items, "count": [row % 5 + 1 for row in range(count)]})
    numbers = pa.table(
        {"user": pa.array(np.arange(count) % 50, pa.int32()), "item": pa.array(items).dictionary_encode()}
    )
    files = []
    for table in (text, numbers):
        for options in (
            {"compression": "snappy"},
            {"compression": "none", "use_dictionary": False},
            {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 300},
        ):
            target = io.BytesIO()
            pq.write_table(table, target, **options)
            files.append(target.getvalue())
    return files


def damaged(file: bytes, dice: random.Random) -> bytes:
    """The file with other sizes, counts, types or offsets in its footer or in the headers of its pages."""
    changed, footer = bytearray(file), int.from_bytes(file[-8:-4], "little")
    for _ in range(dice.choice((1, 1, 2, 4))):
        value = dice.choice((dice.randrange(256), 0xFF, 0x00, 0x80, 0x7F))
        match dice.randrange(6):
            case 0 | 1 | 2:
                changed[len(changed) - 8 - dice.randrange(1, footer)] = value
            case 3:
                changed[4 + dice.randrange(60)] = value
            case 4:
                changed[-8:-4] = dice.choice((0, 1, footer - 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little")
            case _:
                place = len(changed) - 8 - dice.randrange(1, footer)
                changed[place:place] = bytes([0xFF] * dice.choice((1, 5, 9)) + [1])
    return bytes(changed)


@attack("a Parquet file claims other sizes, counts, types or offsets than it has")
def parquet_claims(quick: bool) -> tuple[int, int]:
    tries, dice, files = 200 if quick else 5_000, random.Random(1), parquet_files()
    with in_folder() as folder:
        path, successes = folder / "x.parquet", 0
        for _ in range(tries):
            path.write_bytes(damaged(dice.choice(files), dice))
            successes += misread(lambda: read_population(path, memory=LIMIT))
    return tries, successes


def zeros(file: Any, count: int) -> None:
    for _ in range(count >> 20):
        file.write(bytes(1 << 20))


def bombs(folder: Path, size: int) -> Iterator[Path]:
    """Small files that unpack to this many bytes."""
    line = b"user,item\nu,"
    with gzip.open(folder / "line.csv.gz", "wb", 1) as file:
        file.write(line)
        zeros(file, size)
    yield folder / "line.csv.gz"
    with gzip.open(folder / "line.jsonl.gz", "wb", 1) as file:
        file.write(b'{"user": "u", "item": "')
        for _ in range(size >> 20):
            file.write(b"a" * (1 << 20))
    yield folder / "line.jsonl.gz"
    piece = gzip.compress(bytes(1 << 20))
    (folder / "members.csv.gz").write_bytes(gzip.compress(line) + piece * (size >> 20))
    yield folder / "members.csv.gz"
    rows = size >> 4
    table = pa.table({"user": pa.array(np.zeros(rows, np.int32)), "item": pa.array(np.zeros(rows, np.int32))})
    pq.write_table(table, folder / "zeros.parquet", row_group_size=rows, compression="zstd")
    yield folder / "zeros.parquet"
    matrix = {
        "indices": np.zeros(size >> 2, np.int32),
        "indptr": np.zeros(2, np.int32),
        "data": np.ones(1, np.int32),
    }
    np.savez_compressed(folder / "zeros.npz", shape=(1, 1), format=b"csr", **matrix)
    yield folder / "zeros.npz"


@attack("a small file unpacks to far more than the limit on memory", slow=True)
def small_files(quick: bool) -> tuple[int, int]:
    code = "import sys; from fedhist.__main__ import main; main()"
    tries = successes = 0
    with in_folder() as folder:
        for path in bombs(folder, (1 << 30) if quick else (2 << 30)):
            command = [sys.executable, "-c", code, "run", "--data", str(path), "--memory", "256MiB", "--json"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
                said = child.stderr.read() if child.stderr else b""
                _, status, used = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            tries += 1
            peak = used.ru_maxrss << 10
            successes += b"Traceback" in said or child.returncode < 0 or peak > LIMIT + SPARE
            path.unlink()
    return tries, successes


@attack(
    "a query or an address of a node writes, makes a file, or its error repeats a value, a name or a password"
)
def queries(quick: bool) -> tuple[int, int]:
    tries = successes = 0
    with in_folder() as folder:
        with closing(sqlite3.connect("v.db")) as database:
            database.execute("create table v (user, item, count)")
            rows = [(f"u{row % 9}", SECRET, row % 3 + 1) for row in range(100)]
            database.executemany("insert into v values (?, ?, ?)", rows)
            database.commit()
        before = Path("v.db").read_bytes()
        asked = [("sqlite:///v.db", query) for query in QUERIES]
        asked += [(address, "select * from v") for address in ADDRESSES]
        for address, query in asked:
            said = ""
            try:
                node_users(Database(address, query), columns=USUAL_COLUMNS, items=ITEMS)
            except FedhistError as refusal:
                said = str(refusal)
            except Exception:
                successes += 1
            # The name of a variable is no secret, and the sentence has to say which is missing.
            successes += SECRET in said and "${" not in address
            successes += sorted(path.name for path in folder.iterdir()) != ["v.db"]
            successes += Path("v.db").read_bytes() != before
            tries += 1
    return tries, successes


def tables_with(name: str, folder: Path) -> Iterator[Any]:
    """Six observations of two items under a column of this name, in every kind of table."""
    other, counts = "who", "how often"
    rows = [("a", "u1", 2), ("b", "u2", 3), ("b", "u1", 1)]
    frame = pl.DataFrame(rows, schema=[name, other, counts], orient="row")
    frame.write_parquet(folder / "x.parquet")
    yield folder / "x.parquet"
    with (folder / "x.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([(name, other, counts), *rows])
    yield folder / "x.csv"
    lines = [json.dumps(dict(zip((name, other, counts), row, strict=True))) for row in rows]
    (folder / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    yield folder / "x.jsonl"
    yield from (frame, frame.lazy(), frame.to_pandas(), frame.to_arrow())
    (folder / "x.db").unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / "x.db")) as database:
        quoted = name.replace('"', '""')
        database.execute(f'create table v ("{quoted}", "{other}", "{counts}")')
        database.executemany("insert into v values (?, ?, ?)", rows)
        database.commit()
    yield Database(f"sqlite:///{folder / 'x.db'}", "select * from v")


@attack(
    "a column whose name is a pattern, a quote or another column's in part is taken for another, or can't be read"
)
def column_names(quick: bool) -> tuple[int, int]:
    tries = successes = 0
    with in_folder() as folder:
        for name in NAMES:
            columns = Columns(user="who", item=name, count="how often")
            for table in tables_with(name, folder):
                read = read_population if isinstance(table, Path) else read_frame
                read = node_users if isinstance(table, Database) else read
                try:
                    found = read(table, columns=columns, items=ITEMS)
                    successes += (found.users, found.totals().tolist()) != (2, [2, 4])
                except BaseException:
                    successes += 1
                tries += 1
    return tries, successes


def odd_columns() -> list[Any]:
    """Columns of six values, of kinds that a frame may hold."""
    texts = ["a", "b"] * 3
    return [
        pd.Series(["a", 1, "b", "1", True, None], dtype=object),
        pd.Series(["a", "\ud800"] * 3, dtype=object),
        pd.Series([object(), *texts[1:]], dtype=object),
        pd.Series([b"a", "a", "b", "a", "b", "b"], dtype=object),
        pd.Series(pd.Categorical([1, 2] * 3)),
        pd.Series(pd.arrays.SparseArray([1, 0, 0, 2, 0, 0])),
        pd.Series(pd.interval_range(0, 6)),
        pd.Series(pd.period_range("2020", periods=6, freq="D")),
        pd.Series(np.array([1 + 2j] * 6)),
        pd.Series([float("nan"), float("inf"), -1.0, 1e300, 1.5, 2.0]),
        pd.Series(pd.timedelta_range(0, periods=6, freq="s")),
        pl.Series([["a"]] * 6),
        pl.Series([{"a": 1}] * 6),
        pl.Series([b"a", b"\xff"] * 3),
        pl.Series([None] * 6),
        pl.Series(texts, dtype=pl.Enum(["a", "b"])),
        pl.Series(["1.50", "2"] * 3).cast(pl.Decimal(10, 2)),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0, 1, 0]), pa.array(["a", None])),
        pa.UnionArray.from_sparse(pa.array([0] * 6, pa.int8()), [pa.array(texts)]),
        pa.Array.from_buffers(
            pa.string(),
            6,
            [None, pa.py_buffer(np.arange(7, dtype=np.int32).tobytes()), pa.py_buffer(b"ab\xff\xfeab")],
        ),
        pa.array([bytes([place]) * 16 for place in range(6)], pa.binary(16)),
        pa.array([0] * 6, pa.duration("s")),
    ]


@attack("a data frame of odd types leaves a traceback")
def odd_frames(quick: bool) -> tuple[int, int]:
    usual = {"user": ["u1", "u2"] * 3, "item": ["a", "b"] * 3, "count": [1] * 6}
    tries = successes = 0
    for column in odd_columns():
        for role in usual:
            kind = type(column).__module__.partition(".")[0]
            make: Callable[[dict[str, Any]], Any] = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(
                kind, pa.table
            )
            frame = make(usual | {role: column})
            for read in (node_users, read_frame):
                successes += misread(lambda: read(frame, columns=USUAL_COLUMNS, items=ITEMS))  # noqa: B023
                tries += 1
    return tries, successes
