"""Imports a published file: recognises its format, counts malformed lines, and refuses too many of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.files.memory import Memory, memory_limit
from fedhist.client.files.native_errors import aloud, aloud_again
from fedhist.client.files.record_tables import parquet_batches
from fedhist.client.files.records import NOBODY, Following
from fedhist.client.files.tabulation import Tabulation
from fedhist.client.files.unpacked import check_parquet
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.simulations.importing import MAX_MALFORMED
from fedhist.simulations.importing.contract import Format, LineReader
from fedhist.simulations.importing.movielens import MovieLens
from fedhist.simulations.importing.plain_records import PlainRecords, parse_rows
from fedhist.simulations.importing.sentiment140 import By, Sentiment140
from fedhist.simulations.importing.snap import SnapCheckins
from fedhist.simulations.importing.text_lines import CHUNK_BYTES, Encoding, Lines, line_chunks

FORMATS: dict[str, Format] = {
    one.name: one for one in (Sentiment140(), SnapCheckins(), MovieLens(), PlainRecords())
}
"""In the order of FORMAT_NAMES."""

NAMED_LINES = 10
_LOOK_LINES = 20


@dataclass
class Tally:
    """The number of lines read, and which of them were malformed.

    Args:
        unit: "line", or "row" for a table.
        lines: the number of lines, without blank ones and the header.
        malformed: the number of lines that do not follow the format.
        named: the line numbers of the first NAMED_LINES of these.
    """

    unit: str = "line"
    lines: int = 0
    malformed: int = 0
    named: list[int] = field(default_factory=list)

    def add(self, good: pl.Series, numbers: pl.Series) -> None:
        """Count lines with these numbers."""
        self.lines += len(good)
        self.malformed += len(good) - int(good.sum())
        wrong = numbers.filter(~good).head(NAMED_LINES - len(self.named))
        self.named += wrong.to_list()

    def in_words(self) -> str:
        """The malformed lines as a sentence."""
        if not self.malformed:
            return f"no malformed {self.unit}s"
        shown = ", ".join(f"{number:,}" for number in self.named)
        more = ", ..." if self.malformed > len(self.named) else ""
        verb = "is" if self.malformed == 1 else "are"
        return (
            f"{self.malformed:,} of {self.lines:,} {self.unit}s {verb} malformed ({self.unit} {shown}{more})"
        )


@dataclass(frozen=True)
class Imported:
    """A population, its format, and the tally of its lines."""

    population: SparsePopulation
    format: Format
    tally: Tally


def import_population(
    path: Path,
    *,
    format_name: str = "auto",
    by: By | None = None,
    encoding: Encoding | None = None,
    max_malformed: float = MAX_MALFORMED,
    columns: Columns = USUAL_COLUMNS,
    chunk_bytes: int = CHUNK_BYTES,
    memory: str | int | None = None,
    follow: Following = NOBODY,
) -> Imported:
    """The population in a published file.

    Args:
        path: the file.
        format_name: a name of FORMATS, or "auto" to recognise the format by the first lines.
        by: whose words a tweet of Sentiment140 is; None stands for the author's.
        encoding: of the text; None stands for the format's own.
        max_malformed: the largest share of malformed lines with which a file is imported.
        columns: the columns of the format records, and the separator of its text; without bins.
        chunk_bytes: the size of the pieces in which text is read.
        memory: what may be used, such as 1GB; None for half of what is available.
        follow: told how it goes.
    """
    if format_name not in ("auto", *FORMATS):
        raise InvalidInput(f"unknown format {format_name!r}", allowed=", ".join(("auto", *FORMATS)))
    if not 0 <= max_malformed <= 1:
        raise InvalidInput(
            f"--max-malformed is {max_malformed}",
            allowed="a share from 0 to 1",
            advice="0.001 is 0.1 percent",
        )
    if columns.given and format_name not in ("auto", PlainRecords.name):
        raise InvalidInput(
            f"{columns.in_words()} for a file of the format {format_name}",
            allowed=f"names of columns and a separator with --format {PlainRecords.name}",
        )
    limit = memory_limit(memory)
    tables: Generator[pl.DataFrame]
    if path.is_file() and (path.suffix.lower() == ".parquet" or _is_parquet(path)):
        chosen, tally = FORMATS["records"], Tally(unit="row")
        tables = _read_rows(path, format_name, columns, tally, limit)
    else:
        chosen, reader = _recognised(path, format_name, by, encoding, columns)
        tally = Tally()
        chunks = line_chunks(path, encoding or chosen.encoding, chunk_bytes=chunk_bytes)
        tables = (_read_chunk(chunk, reader, tally) for chunk in chunks)
    rows = Tabulation(memory=limit, idle=True, tell=follow.reading)
    try:
        with closing(tables):
            for table in tables:
                rows.add(table)
                with aloud():
                    follow.reading("read", rows.rows, rows.rows)
    finally:
        aloud_again()
    if by is not None and chosen.name != "sentiment140":
        raise InvalidInput(
            f"--by does not go with a file of the format {chosen.name}",
            allowed="--by with sentiment140 alone",
        )
    if tally.malformed > max_malformed * tally.lines:
        raise InvalidFile(
            f"in {path}, read as {chosen.name}, {tally.in_words()}",
            allowed=f"a share of at most {max_malformed:g} (--max-malformed) that are not {chosen.shape}",
            advice="correct them, name another --format or --encoding, or raise --max-malformed",
        )
    if rows.items == 0:
        raise InvalidFile(
            f"{path} has no records", allowed="a file with at least one", advice="check the file"
        )
    return Imported(rows.population(), chosen, tally)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _recognised(
    path: Path, format_name: str, by: By | None, encoding: Encoding | None, columns: Columns
) -> tuple[Format, LineReader]:
    """The format of a file, and how to read it."""
    for name, known in FORMATS.items():
        if format_name not in ("auto", name) or (columns.given and name != PlainRecords.name):
            continue
        one = Sentiment140(by=by) if by is not None and name == "sentiment140" else known
        one = PlainRecords(columns) if columns.given else one
        reader = one.reader(_beginning(path, encoding or one.encoding))
        if reader is not None:
            return one, reader
    if columns.given:
        missing = ", ".join(map(repr, columns.names[:2] if columns.count is None else columns.names))
        raise InvalidFile(
            f"the first line of {path} does not name the columns {missing}, each once",
            allowed="a first line with the names of the columns, spelled exactly so",
            advice="check --user-column, --item-column and --count-column, and the --separator",
        )
    others = "name another --format, or write a CSV with the columns user and item"
    if format_name == "auto":
        raise InvalidFile(
            f"the first lines of {path} are of no known format",
            allowed="; ".join(f"{name}: {one.shape}" for name, one in FORMATS.items()),
            advice=others,
        )
    raise InvalidFile(
        f"the first lines of {path} are not of the format {format_name}",
        allowed=FORMATS[format_name].shape,
        advice=others,
    )


def _beginning(path: Path, encoding: Encoding) -> pl.Series:
    """The first lines, without blank lines and lines in another encoding."""
    # A file may have nothing after its byte order mark.
    chunk = next(line_chunks(path, encoding, chunk_bytes=1 << 16), None)
    lines = pl.Series(dtype=pl.String) if chunk is None else chunk.text.drop_nulls().head(2 * _LOOK_LINES)
    return lines.filter(lines.str.strip_chars() != "").head(_LOOK_LINES)


def _read_chunk(chunk: Lines, reader: LineReader, tally: Tally) -> pl.DataFrame:
    """The records of these lines. A line in another encoding is malformed and is not parsed."""
    numbered = pl.DataFrame({"text": chunk.text}).with_row_index("number", offset=chunk.first)
    if reader.header and chunk.first == 1:
        # Blank lines may come before the header.
        header = numbered.filter(pl.col("text").str.strip_chars() != "").head(1)["number"]
        numbered = numbered.filter(~pl.col("number").is_in(header.implode()))
    numbered = numbered.filter(pl.col("text").is_null() | (pl.col("text").str.strip_chars() != ""))
    readable = numbered["text"].is_not_null()
    parsed = reader.parse(numbered["text"].filter(readable)) if readable.any() else None
    if parsed is None:
        tally.add(readable, numbered["number"])
        return pl.DataFrame(schema={"user": pl.String, "item": pl.String, "count": pl.Int64})
    good = readable.to_numpy().copy()
    good[good] = parsed.good.to_numpy()
    tally.add(pl.Series(good), numbered["number"])
    return parsed.records


def _read_rows(
    path: Path, format_name: str, columns: Columns, tally: Tally, memory: Memory
) -> Generator[pl.DataFrame]:
    """The records of a Parquet file; its rows are numbered from 1."""
    if format_name not in ("auto", "records"):
        raise InvalidFile(f"{path} is a Parquet file", allowed="--format records or auto for Parquet")
    check_parquet(path, frozenset(name.lower() for name in columns.names))
    with closing(parquet_batches(path, columns, memory=memory)) as batches:
        for batch in batches:
            parsed = parse_rows(batch)
            first = tally.lines + 1
            tally.add(parsed.good, pl.Series(np.arange(first, first + len(parsed.good))))
            yield parsed.records
