"""What options are made of: those that are fields of a plan come from their declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedhist.protocol.item_lists import read_items
from fedhist.protocol.plan.fields import FIELDS, Field

Command = Callable[..., Any]


class _FilePath(click.Path):
    """A path. An empty one, of a shell's variable that is not set, would be the folder that one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as a path."""
        if value == "":
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


PATH = _FilePath(path_type=Path)
"""A file or folder."""


def plan_options(
    *names: str, several: Mapping[str, Any] | None = None, **changes: Mapping[str, Any]
) -> Callable[[Command], Command]:
    """Add the options of these fields to a command.

    Args:
        names: fields of a plan, in the order of the help.
        several: click types of lists, by fields that take several values.
        changes: arguments of `click.option` by field, in the place of those that are made.
    """

    def add(command: Command) -> Command:
        for name in reversed(names):
            made = _arguments(FIELDS[name], (several or {}).get(name))
            flag = f"--{name.replace('_', '-')}"
            command = click.option(flag, **{**made, **changes.get(name, {})})(command)
        return command

    return add


def _arguments(declared: Field, listed: Any) -> dict[str, Any]:
    """What `click.option` wants to know of a field; `listed` is the type of a list, None for one value."""
    arguments: dict[str, Any] = {
        "type": click.Choice(declared.choices) if declared.choices else declared.kind,
        "default": declared.default,
        "show_default": True,
        "metavar": declared.symbol or None,
        "help": declared.meaning + (f" [default: {declared.filled_in}]" if declared.filled_in else ""),
    }
    if declared.name == "known_items":
        arguments |= {"type": PATH, "callback": _names_in}
    if listed is not None:
        arguments["type"] = listed
        arguments["default"] = None if declared.default is None else (declared.default,)
        arguments["metavar"] = f"{declared.symbol or '|'.join(declared.choices)},..."
    return arguments


TOTALS = {
    "total_epsilon": (
        "E",
        "Privacy budget of all rounds together, in the place of --epsilon. The histogram gets what their tight "
        "composition leaves beside --epsilon-select, which is a share of the total if it is left out.",
    ),
    "total_delta": ("D", "Delta of all rounds together, shared among those that spend delta."),
}
"""The symbol and the help of what may stand in the place of the rounds' own budgets."""


def total_options(**several: Any) -> Callable[[Command], Command]:
    """Add the options of a total to a command; `several` has the click types of lists by name."""

    def add(command: Command) -> Command:
        for name, (symbol, text) in reversed(TOTALS.items()):
            listed = several.get(name)
            command = click.option(
                f"--{name.replace('_', '-')}",
                type=listed or float,
                metavar=f"{symbol},..." if listed else symbol,
                help=text,
            )(command)
        return command

    return add


def meant_budget(context: click.Context, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags without the defaults of budgets that a total takes the place of."""
    if flags["total_epsilon"] is None:
        return dict(flags)
    parts = {"epsilon", "epsilon_select", "delta", "delta_select"} & set(flags)
    defaults = {
        name
        for name in parts
        if context.get_parameter_source(name) in {ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP}
    }
    return {name: None if name in defaults else value for name, value in flags.items()}


def _names_in(context: click.Context, parameter: click.Parameter, path: Path | None) -> str | None:
    """The names in a file, one a line, as a plan has them."""
    return None if path is None else "\n".join(read_items(path))


def mechanism_for(mechanism: str | None, *, domain: str, no_delta: bool) -> str | None:
    """The mechanism that was named; --delta 0 alone asks for the one that needs no delta."""
    return "laplace" if mechanism is None and domain == "closed" and no_delta else mechanism
