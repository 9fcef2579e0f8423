"""Lines on a terminal. All of what others wrote in them is shown as visible text."""

from __future__ import annotations

import click

from fedhist.display.visible_text import block, line

__all__ = ["block", "echo", "line"]


def echo(text: str, *, err: bool = False) -> None:
    """Print one line: a name of a file or of an item in it can't move the cursor, colour text or begin a line."""
    click.echo(line(text), err=err)
