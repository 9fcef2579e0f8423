"""`fedhist compare`: its options, apart from what it runs, so that --help answers at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fedhist.commands.data_options import column_options, memory_option, normalise_option
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, meant_budget, plan_options, total_options
from fedhist.commands.plugin_option import plugin_option
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS, SIZED
from fedhist.simulations.experiments.choices import (
    COMPARING,
    DEFAULT_PARTICIPANTS,
    NONE,
    PAPER_DELTA,
    RANKINGS,
    SINGLE,
)


def _list_of(convert: Callable[[str], Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    """The type of an option: values with commas between them, repeats left out."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            return tuple(dict.fromkeys(convert(part.strip()) for part in value.split(",")))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not {what} with commas between them.") from None

    return read


def _delta(text: str) -> float | str:
    if text.replace(" ", "").replace("(", "").replace(")", "") == PAPER_DELTA:
        return PAPER_DELTA
    return float(text)


def _name(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


NUMBERS = _list_of(float, "numbers")
WHOLE = _list_of(int, "whole numbers")
NAMES = _list_of(_name, "names")
DELTAS = _list_of(_delta, f"numbers or {PAPER_DELTA}")


_SEVERAL = {
    "mechanism": NAMES, "release": NAMES, "debias": NAMES,
    "masking": NAMES, "noise_from": NAMES, "epsilon": NUMBERS, "delta": DELTAS, "epsilon_select": NUMBERS,
    "delta_select": DELTAS, "max_threshold": NUMBERS, "threshold": NUMBERS,
}  # fmt: skip
"""The fields of a plan that may have several values, and how they are read."""


@click.command(
    cls=Command,
    context_settings={"show_default": True},
    examples=(
        "# all selectors at three budgets, over synthetic users",
        "fedhist compare --epsilon 0.1,0.5,1 --trials 10 --out compared",
        "# which method is the best for your data?",
        "fedhist compare --data visits.csv --mechanism gaussian,laplace,auto",
    ),
)
@click.option(
    "--data",
    "data",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Population as for 'fedhist run', the same in every trial; may be given several times.",
)
@column_options
@click.option(
    "--items-file",
    type=PATH,
    metavar="FILE",
    help="The public domain of all --data with names, one per line. Without it the items are inferred from the data.",
)
@click.option(
    "--synthetic",
    multiple=True,
    type=click.Choice(SIZED),
    help="Population made from the seed, anew for each trial; may be given several times. "
    "[default: heavy-tailed, without --data]",
)
@click.option(
    "--users", type=int, metavar="N", help=f"The number of synthetic users. [default: {DEFAULT_USERS}]"
)
@click.option(
    "--items",
    type=WHOLE,
    metavar="D,...",
    help=f"The numbers of items of synthetic users. [default: {DEFAULT_ITEMS}]",
)
@click.option(
    "--top-items",
    type=WHOLE,
    metavar="D,...",
    help="Count the D most frequent items of each population only, or all if it has no more. [default: all]",
)
@normalise_option
@memory_option
@click.option(
    "--selectors",
    type=NAMES,
    metavar="NAME,...",
    help="The ways to choose the threshold, as --selector of 'fedhist run'. "
    "[default: all that fit but fixed]",
)
@plan_options(
    *_SEVERAL,
    *SINGLE,
    several=_SEVERAL,
    delta={"help": f"{FIELDS['delta'].meaning} {PAPER_DELTA} is one over twice the users."},
    debias={"help": f"{FIELDS['debias'].meaning} {NONE} in the list is the method without."},
)
@total_options(total_epsilon=NUMBERS, total_delta=DELTAS)
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    help=f"The participants of masked rounds. [default: {DEFAULT_PARTICIPANTS}, or all users if they are fewer]",
)
@click.option(
    "--best-by",
    type=click.Choice(list(RANKINGS)),
    default="loss",
    help="What the best method has least of: the loss of the released values, or that of the estimates.",
)
@plugin_option
@click.option("--trials", type=int, default=20, metavar="T", help="The number of runs of each combination.")
@click.option("--seed", type=int, default=0, metavar="S", help="The seed that all trials follow from.")
@click.option(
    "--workers", type=int, metavar="N", help="The number of processes. [default: one for each core]"
)
@click.option(
    "--engine",
    type=click.Choice(COMPARING),
    default=COMPARING[0],
    help="Where trials run: in processes on this machine, or on Ray. The rows are the same.",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="For --engine ray: join the Ray cluster at HOST:PORT, or auto for the one in RAY_ADDRESS or recorded on this "
    "machine. All its machines must see the folder of --out. Without it, Ray runs on this machine alone.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Folder of the journal, table.csv, table.parquet and the figure; the same command with the same folder goes "
    "on where it was stopped. [default: fedhist-compare-TIME; none with --json]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the rows as a JSON array on stdout and nothing else."
)
@click.pass_context
def compare(context: click.Context, /, **flags: Any) -> None:
    """Compare methods over data sets, budgets and trials, and name the best for each.

    An experiment on data that you may look at: it reads the truth, charges no ledger, and is NOT private. Every
    combination of the lists is a row; what does not go together is left out. Trial i of a row depends on --seed, the
    row and i alone.
    """  # fmt: skip
    from fedhist.commands.compare import compare_here

    compare_here(meant_budget(context, flags))
