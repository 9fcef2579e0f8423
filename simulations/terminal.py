"""Lines on a terminal. Whatever stands in them was written by somebody else, and all of it is shown as visible text."""

from __future__ import annotations

import click

from fedhist.protocol.visible_text import LONGEST_LINE, visible


def echo(text: str, *, err: bool = False) -> None:
    """Print one line: a name of a file or of an item in it can't move the cursor, colour text or begin a line."""
    click.echo(line(text), err=err)


def line(text: object) -> str:
    """One line with nothing invisible in it."""
    return visible(text, LONGEST_LINE)


def block(text: str) -> str:
    """Several lines, such as the end of a log, each of them with nothing invisible in it."""
    return "\n".join(line(one.expandtabs()) for one in text.splitlines())
