"""Prints the description of a population, with bar charts made of characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhist.commands.summary import print_notes
from fedhist.commands.terminal import line
from fedhist.display.visible_text import visible
from fedhist.simulations.datasets.description import Description

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN = ("p0", "p25", "p50", "p75", "p90", "p99", "p99.9", "p100", "mean")
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
    console.print(sizes)
    console.print(_quantile_table(found))
    console.print(_picture(found))
    if found.head:
        console.print(_head_table(found))
    print_notes(console, [NOTE])


def _quantile_table(found: Description) -> Table:
    from rich.table import Table

    table = Table(title="over users", title_justify="left")
    table.add_column("")
    for name in _SHOWN:
        table.add_column(name, justify="right")
    rows = {
        "total m_i": found.totals,
        "different items": found.distinct,
        "l2 norm": found.norms,
        "rate r_i": found.rates,
    }
    for title, values in rows.items():
        table.add_row(title, *(_number(values[name]) for name in _SHOWN))
    return table


def _picture(found: Description) -> Table:
    from rich.table import Table

    table = Table(title="users by total", title_justify="left", box=None, pad_edge=False)
    table.add_column("total", justify="right")
    table.add_column("users", justify="right")
    table.add_column("of counts", justify="right")
    table.add_column("")
    most = max(one.users for one in found.bins)
    for one in found.bins:
        span = f"{one.low:,}" if one.low >= one.high else f"{one.low:,} to {one.high:,}"
        share = one.counts / max(found.total, 1)
        table.add_row(span, f"{one.users:,}", f"{share:.1%}", bar(one.users / most))
    return table


def _head_table(found: Description) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="most frequent items", title_justify="left", box=None, pad_edge=False)
    table.add_column("item")
    table.add_column("count", justify="right")
    table.add_column("users", justify="right")
    table.add_column("")
    most = found.head[0].total
    for one in found.head:
        table.add_row(
            Text(visible(one.item, _LABEL)), f"{one.total:,}", f"{one.users:,}", bar(one.total / most)
        )
    return table


def bar(share: float, width: int = _BAR) -> str:
    """A bar of this share of the width, to an eighth of a character; a positive share is never empty."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
