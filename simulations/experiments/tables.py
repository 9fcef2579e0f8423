"""Writes rows as CSV and Parquet, and prints them as a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhist.display.visible_text import line
from fedhist.server.disk import new_file

Row = dict[str, Any]
_PIPE_WIDTH = 240


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all columns in the order in which they first appear; a missing value is an empty cell."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write_whole(path, text.getvalue().encode())


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the same columns, with their types."""
    import polars as pl

    # Into memory first: on a full disk polars raises an error of its own and leaves half a file.
    file = io.BytesIO()
    pl.DataFrame(list(rows), infer_schema_length=None).write_parquet(file)
    _write_whole(path, file.getvalue())


def _write_whole(path: Path, content: bytes) -> None:
    with new_file(path, force=True) as file:
        file.write(content)


def print_rows(
    title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, text: Sequence[str] = ()
) -> None:
    """Print some columns of the rows under headings.

    Args:
        title: above the table.
        rows: the rows to print.
        columns: the heading of each column to print.
        text: the columns to align to the left.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(line(title)), title_justify="left")
    for name, heading in columns.items():
        table.add_column(heading, justify="left" if name in text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(line(cell_text(row.get(name)))) for name in columns))
    # A pipe has no width, and wrapped rows can't be searched.
    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
    wide.print(table, markup=False)


def interval_text(low: float | None, high: float | None) -> str:
    """An interval as "low to high"; empty for a single trial, which has none."""
    return "" if low is None or high is None else f"{cell_text(low)} to {cell_text(high)}"


def cell_text(value: object) -> str:
    """A number with four digits, text as it is, an empty text for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value == 0 or not math.isfinite(value):
            return f"{value:g}"
        return f"{value:,.4g}" if abs(value) >= 0.001 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
