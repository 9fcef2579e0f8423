"""Lines on a terminal, with nothing invisible in the names that users chose."""

from __future__ import annotations

import click

from fedhist.display.visible_text import block, line

__all__ = ["block", "echo", "line"]


def echo(text: str, *, err: bool = False) -> None:
    """Print one line: a file's or an item's name in it can't move the cursor, colour text or begin a new line."""
    click.echo(line(text), err=err)
