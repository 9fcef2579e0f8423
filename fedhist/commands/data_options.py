"""The options that say which columns of a table are read, and how."""

from __future__ import annotations

from typing import Any

import click

from fedhist.client.files.columns import Columns, column_number
from fedhist.commands.plan_options import Command
from fedhist.protocol.item_lists import edges_of

_OPTIONS = {
    "user_column": ("NAME", "The column of the user, spelled as in the file. [default: user, in any case]"),
    "item_column": ("NAME", "The column of the item, spelled as in the file. [default: item, in any case]"),
    "count_column": (
        "NAME",
        "The column that says how many observations a row stands for. [default: count, in any case; without such a "
        "column a row is one]",
    ),
    "separator": (
        "CHARACTER",
        "What stands between the fields of a text file; tab or \\t for a tab. A file with it may have any suffix. "
        "[default: a comma, a tab in .tsv files]",
    ),
    "no_header": (
        None,
        "The text file has no line of names: columns are given by number, from 1, as in --user-column 1.",
    ),
    "bins": (
        "EDGES",
        "Count the values of the item column, numbers, in bins between these edges: 0,10,20 or 0:20:10 gives [0, 10) "
        "and [10, 20). Values outside are left out; -inf and inf as end edges take them in. The edges are public: no "
        "--items-file is needed.",
    ),
}
COLUMN_OPTIONS = tuple(_OPTIONS)


def memory_option(command: Command) -> Command:
    """Add the option that says how much memory reading may use."""
    return click.option(
        "--memory",
        metavar="SIZE",
        help="How much memory reading a table may use, such as 1GB or 512MiB. What does not fit goes to a temporary "
        "file in TMPDIR that is gone afterwards. The result is the same. [default: half of what is available]",
    )(command)


def normalise_option(command: Command) -> Command:
    """Add the option that says which spellings of a name are one item."""
    return click.option(
        "--normalise",
        type=click.Choice(["nfc", "casefold"]),
        default=None,
        help="Write items' names alike before counting: Unicode NFC, or NFKC and case folding. Without it, names stay "
        "as they are.",
    )(command)


def column_options(command: Command) -> Command:
    """Add the options of columns, the separator and bins to a command."""
    for name, (metavar, text) in reversed(_OPTIONS.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, metavar=metavar, is_flag=metavar is None, help=text)(command)
    return command


def time_option(command: Command) -> Command:
    """Add the option of the time column, for a command that reads windows."""
    return click.option(
        "--time-column",
        metavar="NAME",
        help="The column of the time, for --window: a date or a date with a time of day, as in 2026-11-18 or "
        "2026-11-18T09:30:00+01:00. Without a zone it is UTC.",
    )(command)


def columns_of(flags: dict[str, Any]) -> Columns:
    """Take these options out of the flags. A window stays: it is the plan's, too."""
    user, item, count, separator, no_header, bins = (flags.pop(name, None) for name in COLUMN_OPTIONS)
    name = column_number if no_header else str
    time = flags.pop("time_column", None)
    return Columns(
        name("user" if user is None else user),
        name("item" if item is None else item),
        None if count is None else name(count),
        separator,
        None if bins is None else edges_of(bins),
        time=None if time is None else name(time),
        window=flags.get("window"),
    )
