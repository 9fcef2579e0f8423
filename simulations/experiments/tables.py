"""Rows as CSV, Parquet, JSON and as a person reads them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhist.client.files.new_files import new_file
from fedhist.display.visible_text import line

Row = dict[str, Any]
_PIPE_WIDTH = 240


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """All columns in the order in which they first appear; an empty cell is a value that there is none of."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write_whole(path, text.getvalue().encode())


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The same columns, with their types."""
    import polars as pl  # noqa: PLC0415 - loads when a table is written

    # Into memory first: for a disk that is full, polars has an error of its own and leaves half a file.
    file = io.BytesIO()
    pl.DataFrame(list(rows), infer_schema_length=None).write_parquet(file)
    _write_whole(path, file.getvalue())


def _write_whole(path: Path, content: bytes) -> None:
    with new_file(path, force=True) as file:
        file.write(content)


def print_rows(
    title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, text: Sequence[str] = ()
) -> None:
    """Some columns of the rows under headings.

    Args:
        title: above the table.
        rows: what to print.
        columns: the heading of each column that is shown.
        text: columns that are aligned to the left.
    """
    from rich.console import Console  # noqa: PLC0415 - loads when something is printed
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=Text(line(title)), title_justify="left")
    for name, heading in columns.items():
        left = name in text
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(line(cell_text(row.get(name)))) for name in columns))
    # A pipe has no width of its own, and rows that are cut in pieces can't be searched.
    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
    wide.print(table, markup=False)


def interval_text(low: float | None, high: float | None) -> str:
    """An interval in words; nothing where a single trial has none."""
    return "" if low is None or high is None else f"{cell_text(low)} to {cell_text(high)}"


def cell_text(value: object) -> str:
    """A number with four digits, text as it is, nothing for None."""
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
