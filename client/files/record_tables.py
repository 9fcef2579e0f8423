"""Tables of user, item and count, as they stand in text, JSON lines and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.client.files.native_errors import silent_native_errors
from fedhist.client.files.unpacked import check_parquet, text_source
from fedhist.protocol.errors import InvalidFile

if TYPE_CHECKING:
    import polars as pl

_COLUMNS = ("user", "item", "count")


def text_table(path: Path, *, separator: str) -> pl.DataFrame:
    """The columns user, item and maybe count of a text file; users and items are text.

    Types are never guessed: a guess from the first rows would turn 007 into 7 in one file and not in another.
    """
    import polars as pl

    source = text_source(path)

    def read(**options: Any) -> pl.DataFrame:
        return pl.read_csv(source, separator=separator, infer_schema_length=0, glob=False, **options)

    with _refusing_damage(
        path, advice="write labels that hold a quote or a separator in double quotes, as UTF-8"
    ):
        header = read(has_header=False, n_rows=1, truncate_ragged_lines=True).row(0)
        names = named_columns(path, [name or "" for name in header])
        whole = {name: pl.Int64 for name, meaning in names.items() if meaning == "count"}
        try:
            table = read(columns=list(names), schema_overrides=whole)
        except pl.exceptions.PolarsError:
            # Some count is not written as an integer: 2.0 is welcome, and otherwise the error names the row.
            table = read(columns=list(names))
    return table.rename(names)


def parquet_table(path: Path) -> pl.DataFrame:
    """The columns user, item and maybe count of a Parquet file; users and items are strings or integers."""
    import polars as pl

    check_parquet(path, frozenset(_COLUMNS))
    with _refusing_damage(path, advice="write it again"):
        names = named_columns(path, list(pl.read_parquet_schema(path.resolve())))
        table = pl.read_parquet(path.resolve(), columns=list(names), glob=False).rename(names)
    for name in ("user", "item"):
        kind = table.schema[name]
        if isinstance(kind, pl.Categorical | pl.Enum):
            table = table.with_columns(pl.col(name).cast(pl.String))
        elif not (kind.is_integer() or kind in (pl.String, pl.Null)):
            raise InvalidFile(
                f"column {name} of {path} has the type {kind}",
                allowed="strings or integers",
                advice="convert the column",
            )
    return table


def json_table(path: Path) -> pl.DataFrame:
    """The keys user, item and maybe count of a file with a JSON object a line; numbers become text as written.

    A line without a count is one observation. A count that is no number does not spoil the file: it is text here.
    """
    import polars as pl

    schema = dict.fromkeys(_COLUMNS, pl.String)
    advice = 'write {"user": ..., "item": ..., "count": 1} in every line, as UTF-8'
    source = text_source(path)
    # Opened here, because a name with a star or bracket in it would be taken for a pattern.
    opened = BytesIO(source) if isinstance(source, bytes) else path.open("rb")
    with _refusing_damage(path, advice=advice), opened as file:
        table = pl.read_ndjson(file, schema=schema)
    return table.with_columns(pl.col("count").fill_null("1"))


@contextmanager
def _refusing_damage(path: Path, *, advice: str) -> Iterator[None]:
    """Turn the reader's errors into ours. Theirs quote the file, so they are neither passed on nor printed."""
    import polars as pl

    try:
        with silent_native_errors():
            yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError):
        raise InvalidFile(
            f"{path} is damaged or does not follow its format", allowed="a complete file", advice=advice
        ) from None


def named_columns(path: Path, found: list[str]) -> dict[str, str]:
    """From the file's own names of the columns we read to user, item and count."""
    names = {name: name.lower() for name in found if name.lower() in _COLUMNS}
    matches = [name.lower() for name in found if name in names]
    if "user" in matches and "item" in matches and len(set(matches)) == len(matches):
        return names
    # Not the names that were found: in a file without a line of names these are somebody's data.
    known = ", ".join(matches) or "none of user, item and count"
    raise InvalidFile(
        f"{path} has {len(found)} columns, and {known} among their names",
        allowed="one column user, one column item and at most one column count, in any case, among others",
        advice="rename the columns, or add a first line with their names",
    )
