"""`--plugin FILE`: methods and populations of the user's own, for every command that takes a name of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedhist.commands.plan_options import PATH, Command
from fedhist.protocol.errors import InvalidInput

HELP = (
    "A Python file that registers methods or populations of your own, which then go by their names; may be given "
    "several times. See docs/extending.md."
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


class NameOf(click.ParamType[str] if TYPE_CHECKING else click.ParamType):  # type: ignore[misc] # generic for mypy only
    """One of the names of a registry, with those of plugins; only the project's own are in help texts.

    Args:
        own: the project's names.
        known: whether there is something of this name, plugins included.
    """

    name = "name"

    def __init__(self, own: Sequence[str], known: Callable[[str], bool], what: str) -> None:
        self.choices, self._known, self._what = tuple(own), known, what

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The names, as a list of choices shows them."""
        return f"[{'|'.join(self.choices)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name itself, if it is known."""
        if value in self.choices or self._known(value):
            return value
        raise InvalidInput(
            f"there is no {self._what} {value!r}",
            allowed=", ".join(self.choices),
            advice="load one of your own with --plugin FILE",
        )
