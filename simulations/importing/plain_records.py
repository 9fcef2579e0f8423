"""Tables with the columns user, item and optionally count: CSV or TSV with a header, JSON lines, Parquet.

Labels stay as they are written. A line is malformed if its user or item is empty, if its count is not a whole number
from 0, or if a field continues in the next line. A JSON line without a count is one observation.
"""

from __future__ import annotations

import io
from functools import partial

import polars as pl

from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.files.native_errors import silent_native_errors
from fedhist.simulations.importing.contract import Format, LineReader, Parsed, counted
from fedhist.simulations.importing.fields import QUOTE, split_fields


class PlainRecords(Format):
    """Items by user."""

    name = "records"
    shape = (
        "the columns user, item and optionally count (a whole number from 0) that the first line names, or "
        '{"user": "ana", "item": "park", "count": 2}'
    )

    def __init__(self, columns: Columns = USUAL_COLUMNS) -> None:
        self.columns = columns

    def reader(self, beginning: pl.Series) -> LineReader | None:
        """Recognises JSON objects, or a first line that names the columns."""
        header = beginning[0] if len(beginning) else ""
        if header.lstrip().startswith("{"):
            return LineReader(partial(parse_json, columns=self.columns))
        separator = self.columns.separator or ("\t" if "\t" in header else ",")
        names = [name.strip().strip(QUOTE) for name in header.split(separator)]
        roles = self.columns.named_in(names)
        # A first line without these names may be data, which no error may quote.
        if roles is None:
            return None
        places = {role: str(names.index(name)) for name, role in roles.items()}
        parse = partial(parse_columns, separator=separator, columns=len(names), places=places)
        return LineReader(parse, header=True)


def parse_columns(lines: pl.Series, *, separator: str, columns: int, places: dict[str, str]) -> Parsed:
    """The records of these lines.

    Args:
        lines: lines of text.
        separator: the text between two fields.
        columns: the number of fields in a line.
        places: the numbers of the columns user, item and, if there is one, count.
    """
    fields = split_fields(lines, separator=separator, columns=columns, quoted=True)
    count = pl.lit(1.0)
    if "count" in places:
        count = pl.col(places["count"]).str.strip_chars().cast(pl.Float64, strict=False)
    user, item = (pl.col(places[name]).alias(name) for name in ("user", "item"))
    return counted(fields.select(user, item, count.alias("count")))


def parse_json(lines: pl.Series, *, columns: Columns) -> Parsed:
    """The records of these JSON objects, one per line."""
    return counted(pl.concat(_objects(lines, columns)))


def parse_rows(table: pl.DataFrame) -> Parsed:
    """The records of rows of a Parquet file, which count as lines."""
    # A count that is not a number becomes null, like a missing one.
    count = pl.col("count").cast(pl.Float64, strict=False) if "count" in table.columns else pl.lit(1.0)
    return counted(table.select(pl.col("user", "item").cast(pl.String), count.alias("count")))


def _objects(lines: pl.Series, columns: Columns) -> list[pl.DataFrame]:
    """One row per line; a row of nulls for a line that is not such an object.

    polars only says whether all lines are right. If not, the lines are halved until the wrong ones are found.
    """
    names = {name: role for role, name in columns.roles.items()}
    schema = {"user": pl.String, "item": pl.String, "count": pl.Float64}
    keys = dict(zip(names, schema.values(), strict=True))
    try:
        with silent_native_errors():
            table = pl.read_ndjson(io.BytesIO("\n".join(lines.to_list()).encode()), schema=keys)
        if table.height == len(lines):
            return [table.rename(names).with_columns(pl.col("count").fill_null(1.0))]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        pass
    if len(lines) == 1:
        return [pl.DataFrame({"user": [None], "item": [None], "count": [None]}, schema=schema)]
    middle = len(lines) // 2
    return _objects(lines[:middle], columns) + _objects(lines[middle:], columns)
