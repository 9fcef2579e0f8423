"""Prints the description of a population, with bar charts made of characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedhist.commands.summary import print_notes
from fedhist.commands.terminal import line
from fedhist.display.visible_text import visible
from fedhist.simulations.datasets.description import Description

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN = ("p0", "p25", "p50", "p75", "p90", "p99", "p99.9", "p100", "mean")
_MEASURES = ("total m_i", "different items", "l2 norm", "rate r_i")
_BAR = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL = 32
NOTE = "exact statistics of the data, which are not private: for simulation only"


def print_description(console: Console, found: Description) -> None:
    """Print sizes, quantiles, users by total, and the most frequent items."""
    from rich.markup import escape
    from rich.table import Table

    sizes = Table(show_header=False, box=None, pad_edge=False)
    sizes.add_column(style="bold")
    sizes.add_column()
    sizes.add_row(
        "population",
        f"{found.users:,} users x {found.items:,} items, {found.items_used:,} of them used "
        f"({escape(line(found.name))})",
    )
    sizes.add_row(
        "counts", f"{found.total:,} in all, {found.largest_count:,} at most of one item of one user"
    )
    sizes.add_row("pairs", f"{found.nonzeros:,} of a user and an item, {found.density:.3g} of the table")
    sizes.add_row("empty users", f"{found.empty_users:,}")
    quantiles = _table("over users", "", *_SHOWN)
    measures = (found.totals, found.distinct, found.norms, found.rates)
    for name, values in zip(_MEASURES, measures, strict=True):
        quantiles.add_row(name, *(_number(values[one]) for one in _SHOWN))
    bins = _table("users by total", "total", "users", "of counts", "", box=None, pad_edge=False)
    most = max(one.users for one in found.bins)
    for one in found.bins:
        span = f"{one.low:,}" if one.low >= one.high else f"{one.low:,} to {one.high:,}"
        share = one.counts / max(found.total, 1)
        bins.add_row(span, f"{one.users:,}", f"{share:.1%}", bar(one.users / most))
    head = _table("most frequent items", "item", "count", "users", "", box=None, pad_edge=False)
    for item in found.head:
        name = escape(visible(item.item, _LABEL))
        head.add_row(name, f"{item.total:,}", f"{item.users:,}", bar(item.total / found.head[0].total))
    console.print(sizes, quantiles, bins, *([head] if found.head else []), sep="\n")
    print_notes(console, [NOTE])


def _table(title: str, *headings: str, **style: Any) -> Table:
    """A table with numbers at the right, names and bars at the left."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", **style)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("", "item") else "right")
    return table


def bar(share: float, width: int = _BAR) -> str:
    """A bar of this share of the width, to an eighth of a character; a positive share is never empty."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
