"""Rows as a table for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedhist.display.visible_text import line

_PIPE_WIDTH = 240


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
