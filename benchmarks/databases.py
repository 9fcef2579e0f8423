"""What a node's database costs next to a CSV file of the same rows, and next to other ways to read it.

    python benchmarks/databases.py --rows 20000000 --memory 512MiB
    python benchmarks/databases.py --quick
    python benchmarks/databases.py --url postgresql://reader@127.0.0.1/shop    # makes the table fedhist_benchmark there

Each way is a process of its own, so that peak memory is its own. fedhist makes a node's population; the others only
read the rows, batch by batch: with Python's sqlite3, with ADBC (which needs pyarrow there) and, where it is installed,
with ConnectorX. Then a SQLite file, whose columns take values of any kind, gets a row with a count that is no number:
who reads the others?
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TABLE = "fedhist_benchmark"
QUERY = f"SELECT customer, page, n FROM {TABLE}"  # noqa: S608 - a name of our own
COLUMNS = {"user-column": "customer", "item-column": "page", "count-column": "n"}
VALUES = "'user-' || (i * 7919 % 2000000), 'item-' || (i * 104729 % 5000), i % 3 + 1"
NUMBERS = {
    "sqlite": "(WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {rows}) SELECT i FROM r)",
    "postgresql": "generate_series(1, {rows}::bigint) AS r(i)",
}
CREATE = f"CREATE TABLE {TABLE} (customer TEXT, page TEXT, n INTEGER)"


def fedhist(source: str, memory: str) -> int:
    from fedhist.client.config import read_node_config

    data = {"db-url": source, "query": QUERY} if "://" in source else {"data-path": source}
    return read_node_config(data | COLUMNS | {"memory": memory}).population().users


def sqlite3_alone(source: str, memory: str) -> int:
    cursor = sqlite3.connect(source.removeprefix("sqlite:///")).execute(QUERY)
    rows = 0
    while batch := cursor.fetchmany(1 << 16):
        rows += len(batch)
    return rows


def adbc(source: str, memory: str) -> int:
    if source.startswith("sqlite"):
        from adbc_driver_sqlite import dbapi
    else:
        from adbc_driver_postgresql import dbapi
    with dbapi.connect(source.removeprefix("sqlite:///")) as connection, connection.cursor() as cursor:
        cursor.execute(QUERY)
        return sum(batch.num_rows for batch in cursor.fetch_record_batch())


def connectorx(source: str, memory: str) -> int:
    import connectorx

    address = source.replace("sqlite:///", "sqlite://")
    batches = connectorx.read_sql(address, QUERY, return_type="arrow_stream", batch_size=1 << 16)
    return sum(batch.num_rows for batch in batches)


WAYS = {"fedhist": fedhist, "sqlite3": sqlite3_alone, "ADBC": adbc, "ConnectorX": connectorx}
NEEDS = {"ADBC": "adbc_driver_manager", "ConnectorX": "connectorx"}


def insert(database: str, rows: int) -> str:
    return f"INSERT INTO {TABLE} SELECT {VALUES} FROM {NUMBERS[database].format(rows=rows)}"  # noqa: S608 - as above


def in_a_process(way: str, source: str, memory: str) -> tuple[float, float, float] | None:
    """Seconds on the clock, CPU seconds and gigabytes at the peak; None if it gave up."""
    command = [sys.executable, __file__, "--way", way, "--source", source, "--memory", memory]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode:
        return None
    clock, busy, peak = map(float, finished.stdout.split()[-3:])
    return clock, busy, peak


def show(rows: int, url: str | None, memory: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.db")
        with sqlite3.connect(path) as connection:
            connection.execute(CREATE)
            connection.execute(insert("sqlite", rows))
        file = Path(folder, "rows.csv")
        with file.open("w") as text:
            text.write("customer,page,n\n")
            text.writelines(f"{user},{page},{n}\n" for user, page, n in connection.execute(QUERY))
        sources = {"SQLite": f"sqlite:///{path}"} | ({} if url is None else {"PostgreSQL": url})
        if url is not None:
            fill(url, rows)
        print(f"{rows:,} rows, {memory}: seconds, CPU seconds, their ratio to the file's, peak memory in GB")
        base = in_a_process("fedhist", str(file), memory)
        if base is None:
            raise SystemExit("the CSV file was not read")
        line("CSV file", "fedhist", base, base)
        for name, source in sources.items():
            for way in WAYS:
                is_there = importlib.util.find_spec(NEEDS.get(way, "sqlite3")) is not None
                if is_there and (way, name) != ("sqlite3", "PostgreSQL"):
                    line(name, way, in_a_process(way, source, memory), base)
        with connection:
            connection.execute(f"INSERT INTO {TABLE} VALUES ('odd', 'item-1', 'many')")  # noqa: S608 - as above
        for way in WAYS:
            if importlib.util.find_spec(NEEDS.get(way, "sqlite3")) is not None:
                read = in_a_process(way, sources["SQLite"], memory)
                print(f"{'one odd value':<16}{way:<16}{'gave up' if read is None else 'read the others':>16}")


def fill(url: str, rows: int) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        for statement in (f"DROP TABLE IF EXISTS {TABLE}", CREATE, insert("postgresql", rows)):
            cursor.execute(statement)
        connection.commit()


def line(
    name: str, way: str, read: tuple[float, float, float] | None, base: tuple[float, float, float]
) -> None:
    cells = (
        "gave up"
        if read is None
        else f"{read[0]:>8.1f}{read[1]:>8.1f}{read[1] / base[1]:>8.2f}{read[2]:>8.2f}"
    )
    print(f"{name:<16}{way:<16}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--url", help="a PostgreSQL database as well")
    parser.add_argument("--quick", action="store_true", help="200,000 rows")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way is not None:
        clock = time.perf_counter()
        WAYS[given.way](given.source, given.memory)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(time.perf_counter() - clock, time.process_time(), peak)
        return
    show(200_000 if given.quick else given.rows, given.url, given.memory)


if __name__ == "__main__":
    main()
