"""`fedhist plan`: its options, apart from what it predicts, so that --help answers at once."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from fedhist.commands.data_options import COLUMN_OPTIONS
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, plan_options
from fedhist.commands.run_options import run
from fedhist.simulations.datasets import DEFAULT_MEAN_TOTAL, DEFAULT_POINTS, DEFAULT_TAIL_INDEX

_FROM_RUN = (
    "data", *COLUMN_OPTIONS, "items_file", "users", "items", "top_items", "normalise", "memory", "mechanism",
    "release", "known_items", "selector",
    "threshold", "delta", "epsilon_select", "delta_select", "neighbours",
    "min_threshold", "max_threshold", "candidates", "sparsity", "plugin",
)  # fmt: skip


@click.command(
    cls=Command,
    context_settings={"show_default": True},
    examples=(
        "# which epsilon brings the relative error down to 5 %?",
        "fedhist plan --users 20000 --items 500 --mean-total 30 --target-error 0.05",
        "# the same from a public data set like yours, with a chart",
        "fedhist plan --data public.parquet --epsilon 0.1:10 --figure plan.svg",
    ),
)
@click.option(
    "--epsilon",
    metavar="RANGE",
    default="0.1:10",
    help=f"Budgets of the histogram: LOW:HIGH, LOW:HIGH:POINTS ({DEFAULT_POINTS} points if left out, evenly on a "
    "logarithmic scale) or values with commas. With --best-split, of both rounds together.",
)
@click.option(
    "--best-split",
    is_flag=True,
    help="Take each epsilon as a total and split it between the rounds at its best.",
)
@click.option(
    "--target-error",
    type=float,
    metavar="E",
    help="Find the epsilon that gives this relative error; 0.05 is 5 percent.",
)
@click.option(
    "--total-epsilon",
    type=float,
    metavar="E",
    help="Find the best split of this budget, as 'fedhist run' takes it, between the rounds.",
)
@click.option(
    "--total-delta",
    type=float,
    metavar="D",
    help="Delta of all rounds together, for all answers; the histogram gets all of it unless others spend delta too.",
)
@click.option(
    "--mean-total",
    type=float,
    metavar="M",
    help=f"A guess, for a model population: the mean number of counts of a user. [default: {DEFAULT_MEAN_TOTAL:g}]",
)
@click.option(
    "--distinct-items",
    type=float,
    metavar="K",
    help="A guess: the mean number of different items of a user. [default: mean total to the power of 0.6]",
)
@click.option(
    "--tail-index",
    type=float,
    metavar="A",
    help="A guess: the share of users with a total above x falls like x^-A. 1.2 is very uneven, 3 tame. "
    f"[default: {DEFAULT_TAIL_INDEX:g}]",
)
@click.option(
    "--sizes",
    metavar="P:T,...",
    help="Guesses in the place of mean and tail: totals at some percentiles. 50:8,99:106 says that half of all users "
    "have at most 8 counts and 99 in 100 at most 106.",
)
@plan_options("domain")
@click.option("--seed", type=int, default=0, metavar="S", help="The seed of synthetic and model populations.")
@click.option("--figure", type=PATH, metavar="FILE", help="Draw the curves as .svg or .png.")
@click.option("--csv", type=PATH, metavar="FILE", help="Write the rows as CSV.")
@click.option("--force", is_flag=True, help="Replace a figure or CSV file that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
@click.pass_context
def plan(context: click.Context, /, **flags: Any) -> None:
    """Predict error and threshold of a run over a range of epsilon, before any budget is spent.

    Computed from a public population (--data), a synthetic one, or one made from your guesses (--users, --items,
    --mean-total, --distinct-items, --tail-index). Nothing is charged. Predictions are not private: the data
    must be public, or a past release.
    """
    from fedhist.commands.plan import plan_here

    given = {name for name in flags if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    plan_here(flags, given)


# The same options as `fedhist run` has, with the same words: a plan that was predicted is run by the same flags.
plan.params += [parameter for parameter in run.params if parameter.name in _FROM_RUN]
