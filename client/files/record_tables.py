"""Tables of user, item and count, as they stand in text, JSON lines and Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.client.files.columns import ROLES, Columns
from fedhist.client.files.native_errors import silent_native_errors
from fedhist.client.files.text_lines import refused_json, refused_table
from fedhist.client.files.unpacked import check_parquet, text_source
from fedhist.protocol.errors import InvalidFile, InvalidInput

if TYPE_CHECKING:
    import polars as pl


def text_table(path: Path, columns: Columns, *, separator: str, tell: bool) -> pl.DataFrame:
    """The columns user, item and maybe count of a text file; users and items are text.

    Types are never guessed: a guess from the first rows would turn 007 into 7 in one file and not in another.
    """
    import polars as pl

    source = text_source(path)

    def read(**options: Any) -> pl.DataFrame:
        return pl.read_csv(source, separator=separator, infer_schema_length=0, glob=False, **options)

    advice = "write labels that hold a quote or a separator in double quotes, as UTF-8"
    with _refusing_damage(path, advice=advice, why=partial(refused_table, path, separator) if tell else None):
        header = read(has_header=False, n_rows=1, truncate_ragged_lines=True).row(0)
        names = named_columns(path, [name or "" for name in header], columns)
        whole = {name: pl.Int64 for name, meaning in names.items() if meaning == "count"}
        try:
            table = read(columns=list(names), schema_overrides=whole)
        except pl.exceptions.PolarsError:
            # Some count is not written as an integer: 2.0 is welcome, and otherwise the error names the row.
            table = read(columns=list(names))
    return table.rename(names)


def parquet_table(path: Path, columns: Columns) -> pl.DataFrame:
    """The columns user, item and maybe count of a Parquet file; users and items are strings or integers."""
    import polars as pl

    check_parquet(path, frozenset(name.lower() for name in columns.names))
    with _refusing_damage(path, advice="write it again"):
        names = named_columns(path, list(pl.read_parquet_schema(path.resolve())), columns)
        table = pl.read_parquet(path.resolve(), columns=list(names), glob=False).rename(names)
    return with_plain_types(table, str(path), columns, InvalidFile)


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


def json_table(path: Path, columns: Columns, *, tell: bool) -> pl.DataFrame:
    """The keys user, item and maybe count of a file with a JSON object a line; numbers become text as written.

    A line without a count is one observation. A count that is no number does not spoil the file: it is text here.
    """
    import polars as pl

    names = dict(zip(columns.names, ROLES, strict=True))
    schema = dict.fromkeys(names, pl.String)
    advice = 'write {"user": ..., "item": ..., "count": 1} in every line, as UTF-8'
    source = text_source(path)
    # Opened here, because a name with a star or bracket in it would be taken for a pattern.
    opened = BytesIO(source) if isinstance(source, bytes) else path.open("rb")
    why = partial(refused_json, path) if tell else None
    with _refusing_damage(path, advice=advice, why=why), opened as file:
        table = pl.read_ndjson(file, schema=schema).rename(names)
    return table.with_columns(pl.col("count").fill_null("1"))


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
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError):
        found = None if why is None else why()
        raise found or InvalidFile(
            f"{path} is damaged or does not follow its format", allowed="a complete file", advice=advice
        ) from None


def named_columns(path: Path, found: list[str], columns: Columns) -> dict[str, str]:
    """From the file's own names of the columns we read to user, item and count."""
    names = columns.named_in(found)
    if names is not None:
        return names
    # Not the names that were found: in a file without a line of names these are somebody's data.
    if {"user", "item", "count"} & set(columns.given):
        missing = ", ".join(map(repr, columns.missing_in(found)))
        problem = f"and none of them is called {missing}" if missing else "and two of them have the same name"
        if {name.lower() for name in columns.missing_in(found)} & {name.lower() for name in found}:
            problem += ", but one differs only in upper and lower case"
        raise InvalidFile(
            f"{path} has {len(found)} columns, {problem}",
            allowed="the names of columns as the first line has them, each once",
            advice="check --user-column, --item-column and --count-column, and the --separator",
        )
    matches = [name.lower() for name in found if name.lower() in ROLES]
    known = ", ".join(matches) or "none of user, item and count"
    raise InvalidFile(
        f"{path} has {len(found)} columns, and {known} among their names",
        allowed="one column user, one column item and at most one column count, in any case, among others",
        advice="name the character between the fields with --separator, or add a first line with the names"
        if len(found) == 1
        else "name them with --user-column, --item-column and --count-column, or add a first line with their names",
    )
