"""`--plugin FILE`: methods of the user's own, for every command that takes a name of one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import click

from fedhist.commands.plan_options import PATH, Command

HELP = (
    "A Python file that registers methods of your own, which then go by their names; may be given several times. See "
    "docs/extending.md."
)


def plugin_option(command: Command) -> Command:
    """Add the option to a command. The files are run before any other option is read, so that names are known."""
    return click.option(
        "--plugin",
        multiple=True,
        type=PATH,
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_load,
        help=HELP,
    )(command)


def _load(context: click.Context, parameter: click.Parameter, paths: Sequence[Path]) -> None:
    if paths and not context.resilient_parsing:
        from fedhist.extending import load_plugin

        # What a file prints while it is loaded is no part of a command's output.
        with redirect_stdout(sys.stderr):
            for path in paths:
                load_plugin(path)
