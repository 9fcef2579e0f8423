"""Help: every option has a group and a meaning, every command an example that its own parser takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from tests.builders import Fedhist
from tests.support.api import GROUPS, Command, cli
from tests.support.api import OptionGroup as Group

PLACES = {flag: place for place, one in enumerate(GROUPS) for flag in f"{one.few} {one.others}".split()}


def all_commands() -> Iterator[tuple[str, Command | Group]]:
    def below(path: str, command: click.Command | None) -> Iterator[tuple[str, Command | Group]]:
        assert isinstance(command, Command | Group), f"{path} is made without cls=Command or cls=Group"
        yield path, command
        if isinstance(command, Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from below(f"{path} {name}", command.get_command(context, name))

    return below("fedhist", cli)


COMMANDS = dict(all_commands())
every_command = pytest.mark.parametrize("path", COMMANDS)


def options_of(path: str) -> list[click.Option]:
    command = COMMANDS[path]
    return [
        one
        for one in command.get_params(click.Context(command, info_name=path))
        if isinstance(one, click.Option)
    ]


def parse(line: str) -> None:
    """Read a line of a shell as the command would, without running it."""
    name, *words = shlex.split(line)
    command: click.Command = cli
    context: click.Context | None = None
    while isinstance(command, Group) and words and not words[0].startswith("-"):
        context = click.Context(command, parent=context, info_name=name)
        found = command.resolve_command(context, [words[0]])[1]
        assert found is not None
        command, name, words = found, words[0], words[1:]
    command.make_context(name, words, parent=context)


@every_command
def test_every_option_has_a_group_and_a_meaning(path: str) -> None:
    for option in options_of(path):
        assert option.opts[0] in PLACES, f"{option.opts[0]} needs an entry in option_groups.GROUPS"
        assert option.help
        assert option.help.isascii()


def test_the_table_has_every_option_once_and_none_that_no_command_has() -> None:
    flags = [flag for one in GROUPS for flag in f"{one.few} {one.others}".split()]
    assert sorted(flags) == sorted({option.opts[0] for path in COMMANDS for option in options_of(path)})


@every_command
def test_every_command_has_an_example_that_it_takes(path: str) -> None:
    lines = [line for line in COMMANDS[path].examples if not line.startswith("#")]
    assert any(line.startswith(path) for line in lines)
    for line in COMMANDS[path].examples:
        assert len(line) <= 78, "it has to fit on a terminal of 80 columns"
    for line in lines:
        parse(line)


@pytest.mark.parametrize("line", ["fedhist run --epsilom 1", "fedhist rnu", "fedhist ledger limit"])
def test_the_check_of_examples_refuses_others(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line)


@every_command
def test_help_shows_every_option_under_its_heading_and_in_the_order_of_the_table(path: str) -> None:
    command = COMMANDS[path]
    lines = command.get_help(command.context_class(command, info_name=path)).splitlines()
    headings = [line.rstrip(":") for line in lines if line.rstrip(":") in [one.heading for one in GROUPS]]
    options = options_of(path)
    assert headings == [GROUPS[place].heading for place in sorted({PLACES[one.opts[0]] for one in options})]
    below = lines[lines.index("Examples:") :]
    shown = [line.split()[0].rstrip(",") for line in below if line.startswith("  -")]
    assert not [line for line in lines if line.endswith("-")], "a flag is broken at the end of a line"
    order = list(PLACES)
    assert shown == sorted((one.opts[0] for one in options), key=order.index)


def test_the_short_help_of_a_run_has_the_few_and_says_where_the_rest_is(fedhist: Fedhist) -> None:
    few, everything = fedhist("run", "-h"), fedhist("run", "--help")
    assert few.code == everything.code == 0
    assert "--epsilon E" in few.out and "--sparsity" not in few.out and "--sparsity" in everything.out
    assert "more options: fedhist run --help" in few.out
    assert everything.out.splitlines()[0].startswith("Usage: fedhist run")
    assert (
        everything.out.index("Examples:") < everything.out.index("Data:") < everything.out.index("Privacy:")
    )


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["rnu"], "Did you mean 'run'?"),
        (["paper", "sentiment140s"], "Did you mean 'sentiment140'?"),
        (["zzzzzz"], "Commands: run, plan"),
        (["run", "--epsilom", "1"], "--epsilon"),
        (["--epsilon", "1"], "--epsilon goes after the name of a command"),
        (["run", "visits.csv"], "a file is given with --data. See 'fedhist run --help'"),
        (["run", "--epsilon"], "See 'fedhist run --help'"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(
    fedhist: Fedhist, words: list[str], answer: str
) -> None:
    outcome = fedhist(*words)
    assert outcome.code == 2
    assert answer in outcome.err
