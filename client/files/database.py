"""The rows of a query, in streams, as the tables that files give.

SQLAlchemy reads them: Flower brings it along, it knows most databases, and it hands out each value as it is. So one odd
value is one row that is left out, where readers that type a whole column give up
(docs/decisions/0020-databases-through-sqlalchemy.md).

Errors of databases quote data, queries and addresses. None of that is passed on: only the class of an error and its
SQLSTATE, a code of five characters.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from fedhist.client.files.columns import Columns
from fedhist.client.files.data_files import check_is_file
from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput

if TYPE_CHECKING:
    import polars as pl
    from sqlalchemy import URL, Engine

EXAMPLE = "postgresql://reader:${PASSWORD}@127.0.0.1/shop"

_SQLITE = "sqlite"
# Rows that are Python's objects at a time, of a few hundred bytes each.
_ROWS = 1 << 16
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STATE = re.compile(r"[0-9A-Z]{5}")
_PACKAGE = "pip install 'fedhist[database]'"


@dataclass(frozen=True)
class Database:
    """A query to a database. Neither it nor the address shows in errors and logs.

    Args:
        url: as SQLAlchemy has it. `${NAME}` as the user, the password or all of it is read from the environment.
        query: a SELECT.
    """

    url: str = field(repr=False)
    query: str = field(repr=False)

    def batches(self, columns: Columns) -> Generator[pl.DataFrame]:
        """The columns user, item and maybe count of the rows that the query gives."""
        with _without_words():
            engine = _engine(self.url)
            # Where a server can keep the rows and hand them out in parts, it does.
            options: dict[str, Any] = {"stream_results": True, "max_row_buffer": _ROWS, "no_parameters": True}
            connection = engine.connect().execution_options(**options, postgresql_readonly=True)
            with connection, connection.exec_driver_sql(self.query) as result:
                if not result.returns_rows:
                    raise InvalidInput(
                        "the query in the node's configuration gives no rows", allowed="a SELECT"
                    )
                read = _Reading(columns, list(result.keys()), typed=engine.dialect.name != _SQLITE)
                while rows := result.fetchmany(_ROWS):
                    yield read.table(rows)

    def place(self, row: int, role: str) -> str:
        """The words for a row in errors."""
        return f"row {row + 1:,} of the query"


class _Reading:
    """Turns values into the columns of a table.

    Args:
        columns: which ones are wanted.
        found: their names in the result of the query.
        typed: a column has values of one kind. Then a kind that is nobody's name is a mistake in the query; elsewhere
            it is one of a row.
    """

    def __init__(self, columns: Columns, found: list[str], *, typed: bool) -> None:
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
        self._places = {role: found.index(name) for name, role in names.items()}
        self._columns, self._typed = columns, typed

    def table(self, rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
        """These rows."""
        import polars as pl

        return pl.DataFrame(
            [self._column(role, [row[place] for row in rows]) for role, place in self._places.items()]
        )

    def _column(self, role: str, values: list[Any]) -> pl.Series:
        import polars as pl

        numbers = role == "count" or (role == "item" and self._columns.bins is not None)
        kind = pl.String if not numbers else pl.Int64 if role == "count" else pl.Float64
        try:
            return pl.Series(role, values, dtype=kind)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            texts = [self._number(value) if numbers else self._name(role, value) for value in values]
            return pl.Series(role, texts, dtype=pl.String)

    def _number(self, value: Any) -> str | None:
        return _utf8(str(value)) if isinstance(value, int | float | Decimal | str) else None

    def _name(self, role: str, value: Any) -> str | None:
        """A value as a text file has it; None if it is nobody's name, or no time."""
        match value:
            case str():
                return _utf8(value)
            case date() if role == "time":
                return value.isoformat()
            case bool() if role != "time":
                return str(value).lower()
            case Decimal() if role != "time":  # the numbers of some databases, whole or not
                return str(value) if value.as_tuple().exponent == 0 else None
            case int() | UUID() | date() if not isinstance(value, datetime) and role != "time":
                return str(value)
        if self._typed and value is not None:
            raise self._wrong_kind(role, value)
        return None

    def _wrong_kind(self, role: str, value: Any) -> InvalidInput:
        return InvalidInput(
            f"column {self._columns.name_of(role)} of the query has values of the type {type(value).__name__}",
            allowed="dates, with a time of day or without, or their text"
            if role == "time"
            else "text, whole numbers, truth values, dates or UUIDs"
            + (", and any numbers with bins" if role == "item" else ""),
            advice="convert it in the query, as in CAST(day AS DATE)",
            code="column-type",
        )


def _utf8(text: str) -> str | None:
    """The text, if it can be written; half of a pair of surrogates can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _engine(text: str) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    url = _url(text)
    if url.get_backend_name() == _SQLITE:
        url = _for_reading(url)
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
    if engine.dialect.name == _SQLITE:
        event.listen(engine, "connect", _hand_out_any_text)
    if engine.dialect.is_async:
        raise InvalidInput(
            f"db-url names the driver {engine.dialect.driver}, which is asynchronous",
            allowed="a driver that is not",
            advice=f"as in {EXAMPLE}",
        )
    return engine


def _url(text: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    text = _from_environment(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InvalidInput(
            "db-url is no address of a database",
            allowed="DATABASE://USER:PASSWORD@HOST/NAME",
            advice=f"as in {EXAMPLE}",
            code="bad-address",
        ) from None
    if url.username is not None:
        url = url.set(username=_from_environment(url.username))
    if url.password is not None:
        url = url.set(password=_from_environment(url.password))
    # Which driver the name alone stands for depends on the version of SQLAlchemy.
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    return url


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


def _for_reading(url: URL) -> URL:
    """The address of a SQLite file, opened for reading. SQLite would make a new file where there is none."""
    if url.database in (None, "", ":memory:"):
        raise InvalidInput(
            "db-url is a SQLite database without a file",
            allowed="a file",
            advice="as in sqlite:////data/visits.db",
            code="database-without-file",
        )
    path = Path(str(url.database))
    check_is_file(path)
    return url.set(database=f"file:{quote(str(path.resolve()))}").update_query_dict(
        {"mode": "ro", "uri": "true"}
    )


def _hand_out_any_text(connection: Any, record: object) -> None:
    """Let a text that is not UTF-8, which SQLite stores like any other, be one odd value and not the query's end."""
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="surrogateescape")


@contextmanager
def _without_words() -> Iterator[None]:
    """Turn the errors of others into ours."""
    try:
        from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError
    except ImportError:
        raise InvalidInput(
            "reading a database needs SQLAlchemy",
            allowed="an environment that has it",
            advice=f"run {_PACKAGE}",
        ) from None
    try:
        yield
    except FedhistError:
        raise
    except NoSuchModuleError:
        raise InvalidInput(
            "db-url names a database that SQLAlchemy does not know",
            allowed="sqlite, postgresql, or one whose dialect is installed",
            advice=f"as in {EXAMPLE}",
            code="unknown-database",
        ) from None
    except ImportError as error:
        missing = "" if error.name is None else f" {error.name}"
        raise InvalidInput(
            f"the driver{missing} of the database in db-url is not installed",
            allowed="an environment that has it",
            advice=f"run {_PACKAGE}" if error.name == "psycopg" else "install the package that has it",
            code="missing-driver",
        ) from None
    except (
        *(SQLAlchemyError, OSError, ArithmeticError, LookupError, MemoryError),
        *(RuntimeError, TypeError, ValueError),
    ) as error:
        raise InvalidFile(
            f"the database could not be read ({_kind(error)})",
            allowed="a database that answers, and a query that it takes",
            advice="try the query with the database's own client, under the node's account",
            code="database-failed",
        ) from None


def _kind(error: BaseException) -> str:
    """The class of a driver's error, and its SQLSTATE if it has one."""
    own = getattr(error, "orig", None) or error
    state = getattr(own, "sqlstate", None) or getattr(own, "pgcode", None)
    known = isinstance(state, str) and _STATE.fullmatch(state)
    return f"{type(own).__name__}, SQLSTATE {state}" if known else type(own).__name__
