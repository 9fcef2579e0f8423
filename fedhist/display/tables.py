"""Tables as text, as HTML for notebooks, in which everything is escaped, and as frames of the kind that came in."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from fedhist.display.text import line, visible

# A small HTML table for notebooks; everything in it is escaped.

_CELL = "padding:2px 12px 2px 0;text-align:left;border:none;vertical-align:top"
_SHORT = 60
_LINE, _LINES = "white-space:nowrap", "max-width:44em;overflow-wrap:anywhere"
_WIDTH, _HEIGHT = 180, 14
_BAR, _GROUND = "#5b9bc8", "#8884"


def html_table(title: str, rows: Iterable[Sequence[object]], *, headings: Sequence[str] = ()) -> str:
    """A table with a title; rows of any values."""
    head = "".join(f'<th style="{_CELL}">{_text(name)}</th>' for name in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if headings else ""
    return (
        f'<div class="fedhist"><b>{_text(title)}</b><table style="border-collapse:collapse">{top}'
        f"<tbody>{body}</tbody></table></div>"
    )


@dataclass(frozen=True)
class BarLength:
    """A length that is shown as a bar; all are shares of the full width.

    Args:
        length: of the bar.
        whole: whether to show the full width as well.
    """

    length: float
    whole: bool = False


def _cell(value: object) -> str:
    shown = _bar(value) if isinstance(value, BarLength) else _text(value)
    width = _LINE if isinstance(value, BarLength) or len(shown) <= _SHORT else _LINES
    return f'<td style="{_CELL};{width}">{shown}</td>'


def _bar(bar: BarLength) -> str:
    marks = f'<rect width="{_WIDTH}" y="3" height="8" fill="{_GROUND}"/>' if bar.whole else ""
    marks += f'<rect width="{_place(bar.length):.1f}" y="3" height="8" fill="{_BAR}"/>'
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{marks}</svg>'
    )


def _place(share: float) -> float:
    return _WIDTH * min(max(share, 0.0), 1.0)


def _text(value: object) -> str:
    return html.escape(visible(value), quote=True)


# Columns as a data frame of the kind that somebody works with.

FrameKind = Literal["pandas", "polars", "pyarrow"]
DEFAULT_KIND: FrameKind = "polars"
"""The kind of frame where no frame came in."""


def data_frame(
    columns: Mapping[str, Sequence[Any]], kind: str | None = None, *, texts: Collection[str] = ()
) -> Any:
    """The columns as a frame.

    Args:
        columns: values by name, all of the same length.
        kind: "pandas", "polars" or "pyarrow"; None for polars.
        texts: the columns that hold texts when there are no rows; the others hold numbers then.
    """
    import narwhals

    empty = not any(map(len, columns.values()))
    types = {name: narwhals.String() if name in texts else narwhals.Float64() for name in columns}
    frame = narwhals.from_dict(
        {name: _of_one_type(values) for name, values in columns.items()},
        schema=types if empty else None,
        backend=cast(FrameKind, kind or DEFAULT_KIND),
    )
    return frame.to_native()


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    """The values; all of them as texts where some are, with half a surrogate pair, which no frame takes, as "?"."""
    listed = list(values)
    if not any(isinstance(value, str) for value in listed):
        return listed
    return [
        None if value is None else str(value).encode("utf-8", "replace").decode("utf-8") for value in listed
    ]


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
