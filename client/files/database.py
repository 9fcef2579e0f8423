"""The rows of a query, in streams, as the tables that files give.

ADBC reads SQLite files and PostgreSQL (docs/decisions/0020-databases-through-adbc.md). It types whole columns, so the
query is wrapped in one that hands out each value as the bytes of its text: an odd value is then one row that is left
out. Numbers that are counted stay numbers.

Errors of databases quote data, queries and addresses. None of that is passed on: only the class of an error and its
SQLSTATE, a code of five characters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from fedhist.client.files.columns import Columns, Where, decoded, type_name
from fedhist.client.files.data_files import check_is_file
from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput

if TYPE_CHECKING:
    import polars as pl

EXAMPLE = "postgresql://reader:${PASSWORD}@127.0.0.1/shop"

_ROWS = 1 << 16
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STATE = re.compile(r"[0-9A-Z]{5}")
# Of a name and of a number in SQLite, whose columns take values of any kind. Seventeen digits are a double's.
_SQLITE_TEXT = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) "
_SQLITE_INTEGER = "WHEN 'integer' THEN CAST(CAST({0} AS TEXT) AS BLOB) "
_SQLITE_REAL = "WHEN 'real' THEN CAST(printf('%!.17g', {0}) AS BLOB) "
_SQLITE_NAME, _SQLITE_TIME = _SQLITE_TEXT + _SQLITE_INTEGER + "END", _SQLITE_TEXT + "END"
_SQLITE_NUMBER = _SQLITE_TEXT + _SQLITE_INTEGER + _SQLITE_REAL + "END"
_NO_BYTES = "x''"
_SQLITE_FIRST = ("PRAGMA busy_timeout = 5000",)
_SQLITE_ENCODING = "SELECT encoding FROM pragma_encoding"
_POSTGRESQL_FIRST = (
    "SET TRANSACTION READ ONLY",
    "SET LOCAL client_encoding TO 'UTF8'",
    "SET LOCAL datestyle TO ISO",
)


@dataclass(frozen=True)
class Database:
    """A query to a database. Neither it nor the address shows in errors and logs.

    Args:
        url: of a PostgreSQL database, as its own clients take it, or `sqlite:///` and a path. `${NAME}` as the user,
            the password or all of it is read from the environment.
        query: a SELECT.
    """

    url: str = field(repr=False)
    query: str = field(repr=False)

    def batches(self, columns: Columns) -> Iterator[tuple[pl.DataFrame, Where]]:
        """The columns user, item and maybe count of the rows that the query gives, and how these are named."""
        import polars as pl

        address = _from_environment(self.url)
        is_sqlite = address.startswith("sqlite:")
        inner = f"(\n{self.query.strip().removesuffix(';')}\n) AS q"
        with _without_words(), ExitStack() as stack:
            import adbc_driver_manager

            connection = _connection(address, stack)

            def rows(query: str) -> pl.LazyFrame:
                statement = stack.enter_context(adbc_driver_manager.AdbcStatement(connection))
                statement.set_sql_query(query)
                return pl.scan_arrow_c_stream(statement.execute_query()[0])

            for setting in _SQLITE_FIRST if is_sqlite else _POSTGRESQL_FIRST:
                rows(setting)
            encoding = rows(_SQLITE_ENCODING).collect().item() if is_sqlite else "UTF-8"
            schema = rows(f"SELECT * FROM {inner} LIMIT 0").collect_schema()  # noqa: S608 - the user's own query
            wrapped = (_sqlite_query if is_sqlite else _postgresql_query)(schema, columns)
            row = -1 if is_sqlite else 0
            for batch in rows(f"{wrapped} FROM {inner}").collect_batches(chunk_size=_ROWS):
                table = batch[max(-row, 0) :]
                yield (
                    table.with_columns(
                        decoded(column, encoding) for column in table if column.dtype == pl.Binary
                    ),
                    partial(_place, max(row, 0)),
                )
                row += batch.height


def _place(first: int, row: int, role: str) -> str:
    return f"row {first + row + 1:,} of the query"


def _connection(address: str, stack: ExitStack) -> Any:
    """A connection for reading; the stack closes it."""
    import adbc_driver_manager

    is_sqlite = address.startswith("sqlite:")
    driver, uri = _sqlite(address) if is_sqlite else _postgresql(address)
    database = stack.enter_context(adbc_driver_manager.AdbcDatabase(driver=driver, uri=uri))
    connection = stack.enter_context(adbc_driver_manager.AdbcConnection(database))
    connection.set_autocommit(is_sqlite)
    return connection


def _sqlite_query(schema: pl.Schema, columns: Columns) -> str:
    # Of two columns with one name a subquery calls the second name:1.
    found = [base if (base := name.rpartition(":")[0]) in schema else name for name in schema]
    forms = {"time": _SQLITE_TIME, "count": _SQLITE_NUMBER}
    if columns.bins is not None:
        forms["item"] = _SQLITE_NUMBER
    wanted = {
        role: forms.get(role, _SQLITE_NAME).format(_quoted(name))
        for name, role in _named(columns, found).items()
    }
    # The first row says that all columns are of bytes.
    return f"{_select(dict.fromkeys(wanted, _NO_BYTES))} UNION ALL {_select(wanted)}"


def _postgresql_query(schema: pl.Schema, columns: Columns) -> str:
    wanted = {}
    for name, role in _named(columns, list(schema)).items():
        kind = schema[name]
        is_number = kind.is_numeric() or "numeric" in str(kind)
        if is_number and (role == "count" or (role == "item" and columns.bins is not None)):
            wanted[role] = f"CAST({_quoted(name)} AS double precision)"
            continue
        if role != "count":
            _check_kind(kind, role, columns)
        wanted[role] = f"textsend(CAST({_quoted(name)} AS text))"
    return _select(wanted)


def _check_kind(kind: pl.DataType, role: str, columns: Columns) -> None:
    """A type that is never a name is a mistake in the query, not in a row."""
    import polars as pl

    is_name = not (kind.is_float() or kind.is_nested() or "arrow.json" in str(kind))
    if is_name and ((role == "time") == kind.is_temporal() or kind in (pl.Date, pl.String)):
        return
    raise InvalidInput(
        f"column {columns.name_of(role)} of the query has values of the type {type_name(kind)}",
        allowed="dates, with a time of day or without, or their text"
        if role == "time"
        else "text, numerics, truth values, dates or UUIDs"
        + (", and any numbers with bins" if role == "item" else ""),
        advice="convert it in the query, as in CAST(day AS DATE)",
        code="column-type",
    )


def _select(wanted: dict[str, str]) -> str:
    return f"SELECT {', '.join(f'{form} AS {_quoted(role)}' for role, form in wanted.items())}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _named(columns: Columns, found: list[str]) -> dict[str, str]:
    names = columns.named_in(found)
    if names is None:
        raise InvalidInput(
            f"the query gives {len(found)} columns, and not one for each of {', '.join(columns.names[:2])}"
            + ("" if columns.count is None else f" and {columns.count}")
            + (f" and {columns.time}" if "time" in columns.roles else ""),
            allowed="one column of the users, one of the items, at most one of the counts and, for a window, one "
            "of the times, among others",
            advice="give their names in the query with user-column, item-column, count-column and time-column",
            code="wrong-columns-of-query",
        )
    return names


def _from_environment(text: str) -> str:
    named = _VARIABLE.fullmatch(text)
    if named is None:
        return text
    if named[1] not in os.environ:
        raise InvalidInput(
            f"db-url names the variable {named[1]}, and the environment of the node has none",
            allowed="a variable of the environment in which the SuperNode was started",
            advice=f"set {named[1]} there",
            code="unset-variable",
        )
    return os.environ[named[1]]


def _sqlite(address: str) -> tuple[str, str]:
    """The driver, and the file opened for reading. SQLite would make a new file where there is none."""
    import adbc_driver_sqlite

    name = address.removeprefix("sqlite://")[1:]
    if name in ("", ":memory:"):
        raise InvalidInput(
            "db-url is a SQLite database without a file",
            allowed="a file",
            advice="as in sqlite:////data/visits.db",
            code="database-without-file",
        )
    check_is_file(Path(name))
    return adbc_driver_sqlite._driver_path(), f"file:{quote(str(Path(name).resolve()))}?mode=ro"


def _postgresql(address: str) -> tuple[str, str]:
    """The driver, and the address with what the environment has."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if not parts.scheme or "://" not in address:
        raise InvalidInput(
            "db-url is no address of a database",
            allowed="DATABASE://USER:PASSWORD@HOST/NAME",
            advice=f"as in {EXAMPLE}",
            code="bad-address",
        )
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidInput(
            "db-url names a database that fedhist does not read",
            allowed=f"postgresql, as in {EXAMPLE}, and sqlite",
            advice="export the rows to a Parquet file for data-path, or pass a data frame in an app of your own",
            code="unknown-database",
        )
    import adbc_driver_postgresql

    account, at, host = parts.netloc.rpartition("@")
    words = (
        quote(_from_environment(word), safe="") if _VARIABLE.fullmatch(word) else word
        for word in account.split(":", 1)
    )
    uri = parts._replace(scheme="postgresql", netloc=":".join(words) + at + host).geturl()
    # An empty host is left out of what Python puts together, and an address is none without it.
    uri = uri if "://" in uri else uri.replace(":", "://", 1)
    return adbc_driver_postgresql._driver_path(), uri


@contextmanager
def _without_words() -> Iterator[None]:
    """Turn the errors of others into ours."""
    try:
        import adbc_driver_manager
        import polars as pl

        yield
    except FedhistError:
        raise
    except ImportError as error:
        raise InvalidInput(
            f"the package {error.name} for the database in db-url is not installed",
            allowed="an environment that has it",
            advice="run pip install 'fedhist[database]'",
            code="missing-driver",
        ) from None
    except (
        *(adbc_driver_manager.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError),
        *(ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    ) as error:
        raise InvalidFile(
            f"the database could not be read ({_kind(error)})",
            allowed="a database that answers, and a query that it takes",
            advice="try the query with the database's own client, under the node's account",
            code="database-failed",
        ) from None


def _kind(error: BaseException) -> str:
    """The class of a driver's error, and its SQLSTATE if it has one."""
    state = getattr(error, "sqlstate", None)
    known = isinstance(state, str) and _STATE.fullmatch(state)
    return f"{type(error).__name__}, SQLSTATE {state}" if known else type(error).__name__
