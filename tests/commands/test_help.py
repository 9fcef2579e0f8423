"""Help: every option has a group and a meaning, every command an example that its own parser takes."""

from __future__ import annotations

import shlex

import click
import pytest

from tests.builders import Fedhist, commands, parse
from tests.support.api import MOST_SHOWN, OPTIONS, Command, option_name
from tests.support.api import OptionGroup as Group

HEADINGS = {name: heading for heading, group in OPTIONS.items() for name in group}
COMMANDS = commands()
every_command = pytest.mark.parametrize("path", COMMANDS)


def options_of(path: str) -> list[click.Option]:
    command = COMMANDS[path]
    return [
        one
        for one in command.get_params(click.Context(command, info_name=path, **command.context_settings))
        if isinstance(one, click.Option)
    ]


@every_command
def test_every_command_is_of_our_class(path: str) -> None:
    assert isinstance(COMMANDS[path], Command | Group)


@every_command
def test_every_option_stands_in_the_table_and_has_a_meaning(path: str) -> None:
    for option in options_of(path):
        assert option_name(option) in HEADINGS
        assert option.help
        assert option.help.isascii()


def test_the_table_has_none_that_no_command_has() -> None:
    assert set(HEADINGS) == {option_name(option) for path in COMMANDS for option in options_of(path)}


@every_command
def test_every_command_has_an_example_that_it_takes(path: str) -> None:
    lines = [line for line in COMMANDS[path].examples if not line.startswith("#")]
    assert any(line.startswith(path) for line in lines)
    for line in COMMANDS[path].examples:
        assert len(line) <= 78, "it has to fit on a terminal of 80 columns"
    for line in lines:
        parse(shlex.split(line)[1:])


def shown(lines: list[str]) -> list[str]:
    below = lines[lines.index("Examples:") :]
    return [line.split()[0].rstrip(",") for line in below if line.startswith("  -")]


@every_command
def test_help_shows_its_options_under_their_headings_and_in_the_order_of_the_table(path: str) -> None:
    """All of them, but of those that take many the ones that matter; --help-all shows the others."""
    command, options = COMMANDS[path], options_of(path)
    context = command.context_class(command, info_name=path, **command.context_settings)
    few = command.get_help(context).splitlines()
    context.meta["fedhist.help-all"] = True
    lines = command.get_help(context).splitlines()
    headings = [line.rstrip(":") for line in lines if line.rstrip(":") in OPTIONS]
    assert headings == [one for one in OPTIONS if one in {HEADINGS[option_name(one)] for one in options}]
    assert not [line for line in lines if line.endswith("-")], "a flag is broken at the end of a line"
    order = list(HEADINGS)
    assert shown(lines) == [
        one.opts[0] for one in sorted(options, key=lambda one: order.index(option_name(one)))
    ]
    assert len(shown(few)) <= MOST_SHOWN
    assert (few == lines) == (len(options) <= MOST_SHOWN)
    assert set(shown(few)) <= set(shown(lines))


def test_the_help_of_a_run_has_what_matters_and_says_where_the_rest_is(fedhist: Fedhist) -> None:
    few, everything = fedhist("run", "--help"), fedhist("run", "--help-all")
    assert few.code == everything.code == 0
    assert fedhist("run", "-h").out == few.out
    assert "--epsilon E" in few.out and "--sparsity" not in few.out and "--sparsity" in everything.out
    assert "more options: fedhist run --help-all" in few.out
    assert everything.out.splitlines()[0].startswith("Usage: fedhist run")
    assert (
        everything.out.index("Examples:") < everything.out.index("Data:") < everything.out.index("Privacy:")
    )


class TestSettings:
    """Fields of a plan by their names, and from the files of another run."""

    RUN = ("run", "--users", 300, "--items", 8, "--seed", 1, "--json")

    def test_a_field_that_is_set_is_the_option_of_that_name(self, fedhist: Fedhist) -> None:
        by_flags = fedhist(*self.RUN, "--candidates", 12, "--mechanism", "laplace").document()
        by_names = fedhist(*self.RUN, "--set", "candidates=12", "--set", "mechanism=laplace").document()
        assert by_names["plan"] == by_flags["plan"]
        assert by_names["relative_loss"] == by_flags["relative_loss"]
        total = fedhist(*self.RUN, "--total-epsilon", 1, "--set", "epsilon-select=0.2").document()
        assert total["plan"]["epsilon_select"] == 0.2

    def test_the_plan_of_a_run_is_that_of_another(self, fedhist: Fedhist) -> None:
        assert (
            fedhist("run", *self.RUN[1:-1], "--max-threshold", 99, "--delta", 1e-7, "--out", "one").code == 0
        )
        for name in ("plan.json", "result.json"):
            again = fedhist(*self.RUN, "--plan", f"one/{name}", "--epsilon", 2).document()["plan"]
            assert (again["max_threshold"], again["delta"], again["epsilon"]) == (99, 1e-7, 2)
        rows = fedhist("plan", "--users", 300, "--items", 8, "--plan", "one/plan.json", "--json").document()
        assert [row["epsilon"] for row in rows["rows"]] == [1.0]
        total = fedhist(*self.RUN, "--plan", "one/plan.json", "--total-epsilon", 3).document()
        assert total["tight"]["epsilon"] > 2.9
