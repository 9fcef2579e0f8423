"""Tables of user, item and count, batch by batch, as they stand in text, JSON lines and Parquet files.

Readers run ahead in threads of polars. As long as one is open, native code prints nothing: close it before anything is
to be seen, or use `native_errors.aloud`.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.client.files.columns import ROLES, Columns
from fedhist.client.files.memory import Memory
from fedhist.client.files.native_errors import silent_native_errors
from fedhist.client.files.text_lines import refused_json, refused_table
from fedhist.client.files.unpacked import unpacked_text
from fedhist.protocol.errors import InvalidFile, InvalidInput

if TYPE_CHECKING:
    import polars as pl

# How the system's refusal of memory, or of a thread for want of it, reads in errors of polars.
_NO_MEMORY = ("os error 12", "os error 11", "code: 12", "code: 11")

# The same words reach people at a command line and the operator of a node, in its log.
_ON_NODES = "a node's configuration has the same keys without --"


def text_batches(
    path: Path, columns: Columns, *, separator: str, tell: bool, memory: Memory
) -> Generator[pl.DataFrame]:
    """The columns user, item and maybe count of a text file; all are text.

    Types are never guessed: a guess from the first rows would turn 007 into 7 in one file and not in another.
    """
    import polars as pl

    advice = "write labels that hold a quote or a separator in double quotes, as UTF-8"
    why = partial(refused_table, path, separator) if tell else None
    options: dict[str, Any] = {"separator": separator, "glob": False, "infer_schema": False}
    with unpacked_text(path) as source, _refusing_damage(path, advice=advice, why=why):
        first = pl.read_csv(source, has_header=False, n_rows=1, truncate_ragged_lines=True, **options)
        found = [name or "" for name in first.row(0)]
        names = (
            _numbered_columns(path, first.columns, columns)
            if columns.numbered
            else named_columns(path, found, columns)
        )
        table = pl.scan_csv(source, has_header=not columns.numbered, **options)
        rows = table.select(list(names)).rename(names)
        yield from rows.collect_batches(chunk_size=memory.batch_rows)


def parquet_batches(path: Path, columns: Columns, *, memory: Memory) -> Generator[pl.DataFrame]:
    """The columns user, item and maybe count of a Parquet file; users and items are strings or integers."""
    import polars as pl

    with _refusing_damage(path, advice="write it again"):
        names = named_columns(path, list(pl.read_parquet_schema(path.resolve())), columns)
        rows = pl.scan_parquet(path.resolve(), glob=False, hive_partitioning=False)
        for batch in rows.select(list(names)).rename(names).collect_batches(chunk_size=memory.batch_rows):
            table = with_plain_types(batch, str(path), columns, InvalidFile)
            # Categories have other numbers in every file.
            kinds = (pl.Categorical, pl.Enum)
            named = [name for name, kind in table.schema.items() if isinstance(kind, kinds)]
            yield table.with_columns(pl.col(named).cast(pl.String))


def with_plain_types(
    table: pl.DataFrame, source: str, columns: Columns, error: type[InvalidInput]
) -> pl.DataFrame:
    """The table with users and items as text, categories or integers: truth values and dates become text.

    With bins the items may be any numbers.
    """
    import polars as pl

    for role in ("user", "item"):
        kind = table.schema[role]
        if kind in (pl.Boolean, pl.Date):
            table = table.with_columns(pl.col(role).cast(pl.String))
        elif kind.is_integer() or isinstance(kind, pl.String | pl.Null | pl.Categorical | pl.Enum):
            continue
        elif not (role == "item" and columns.bins is not None and kind.is_numeric()):
            raise error(
                f"column {columns.name_of(role)} of {source} has the type {type_name(kind)}",
                allowed="strings, integers, categories, truth values or dates"
                + (", and any numbers with bins" if role == "item" else ""),
                advice=_advice_for(kind, role),
                code="column-type",
            )
    return table


def type_name(kind: pl.DataType) -> str:
    """The name of a type without the names of fields and categories in it: these may be somebody's data."""
    return str(kind.base_type()) if kind.is_nested() or hasattr(kind, "categories") else str(kind)


def _advice_for(kind: pl.DataType, role: str) -> str:
    import polars as pl

    if kind.is_numeric() and role == "item":
        return "give the edges of bins, or convert the column to integers or text"
    if isinstance(kind, pl.Datetime):
        return "convert the column to dates, or to text as fine as you want it"
    return "convert the column to text or integers"


def json_batches(path: Path, columns: Columns, *, tell: bool, memory: Memory) -> Generator[pl.DataFrame]:
    """The keys user, item and maybe count of a file with a JSON object a line; numbers become text as written.

    A line without a count is one observation. A count that is no number does not spoil the file: it is text here.
    """
    import polars as pl

    names = {name: role for role, name in columns.roles.items()}
    advice = 'write {"user": ..., "item": ..., "count": 1} in every line, as UTF-8'
    why = partial(refused_json, path) if tell else None
    with unpacked_text(path) as source, _refusing_damage(path, advice=advice, why=why):
        # A name with a star or bracket in it would be taken for a pattern.
        plain = glob.escape(str(source))
        rows = pl.scan_ndjson(plain, schema=dict.fromkeys(names, pl.String)).rename(names)
        for batch in rows.collect_batches(chunk_size=memory.batch_rows):
            yield batch.with_columns(pl.col("count").fill_null("1"))


@contextmanager
def _refusing_damage(
    path: Path, *, advice: str, why: Callable[[], InvalidFile | None] | None = None
) -> Iterator[None]:
    """Turn the reader's errors into ours. Theirs quote the file, so they are neither passed on nor printed.

    Args:
        path: the file.
        advice: what to do.
        why: looks for the line that was refused.
    """
    import polars as pl

    try:
        with silent_native_errors():
            yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError) as error:
        if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
            raise InvalidFile(
                f"there is not enough memory to read {path}",
                allowed="rows that fit in memory batch by batch",
                advice="free some memory, or write the file again with smaller row groups",
                code="not-enough-memory",
            ) from None
        found = None if why is None else why()
        raise found or InvalidFile(
            f"{path} is damaged or does not follow its format",
            allowed="a complete file",
            advice=advice,
            code="damaged-file",
        ) from None


def _numbered_columns(path: Path, found: list[str], columns: Columns) -> dict[str, str]:
    """From the reader's own names of the columns we read to user, item and count."""
    numbers = columns.numbers_of(len(found))
    if numbers is None:
        raise InvalidFile(
            f"the first line of {path} has {len(found)} columns, and one with a higher number was asked for",
            allowed="the numbers of columns, from 1",
            advice=f"check --user-column, --item-column and the --separator; {_ON_NODES}",
            code="too-few-columns",
        )
    return {found[number - 1]: role for role, number in numbers.items()}


def named_columns(path: Path, found: list[str], columns: Columns) -> dict[str, str]:
    """From the file's own names of the columns we read to user, item and count."""
    names = columns.named_in(found)
    if names is not None:
        return names
    # Not the names that were found: in a file without a line of names these are somebody's data.
    if {"user", "item", "count", "window"} & set(columns.given):
        missing = ", ".join(map(repr, columns.missing_in(found)))
        problem = f"and none of them is called {missing}" if missing else "and two of them have the same name"
        if {name.lower() for name in columns.missing_in(found)} & {name.lower() for name in found}:
            problem += ", but one differs only in upper and lower case"
        raise InvalidFile(
            f"{path} has {len(found)} columns, {problem}",
            allowed="the names of columns as the first line has them, each once",
            advice="check --user-column, --item-column, --count-column and --time-column, and the --separator; "
            f"{_ON_NODES}",
            code="missing-column",
        )
    matches = [name.lower() for name in found if name.lower() in ROLES]
    known = ", ".join(matches) or "none of user, item and count"
    columns_named = "name them with --user-column, --item-column and --count-column"
    separated = "name the character between the fields with --separator"
    raise InvalidFile(
        f"{path} has {len(found)} columns, and {known} among their names",
        allowed="one column user, one column item and at most one column count, in any case, among others",
        advice=f"{separated if len(found) == 1 else columns_named}, or add a first line with their names; {_ON_NODES}",
        code="unknown-columns",
    )
