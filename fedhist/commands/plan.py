"""`fedhist plan`: what a run will be like, before any budget is spent."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedhist.client.files.new_files import check_new_file
from fedhist.commands.data_options import COLUMN_OPTIONS, columns_of
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, mechanism_for
from fedhist.commands.plan_summary import print_answer, print_curve
from fedhist.commands.progress import progress_on
from fedhist.commands.run_options import run
from fedhist.commands.summary import print_notes, stdout_console
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.server.words import method
from fedhist.simulations.datasets.guessed import DEFAULT_MEAN_TOTAL, DEFAULT_TAIL_INDEX
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.experiments.tables import write_csv
from fedhist.simulations.figures.painting import FORMATS, write_figure_file
from fedhist.simulations.figures.plan_ahead import draw_plan_ahead
from fedhist.simulations.prediction.words import (
    PUBLIC_ONLY,
    row_of,
    split_document,
    split_words,
    target_document,
    target_words,
)
from fedhist.simulations.workbench.checks import check_population
from fedhist.simulations.workbench.predict import (
    DEFAULT_POINTS,
    GUESSES,
    MAX_POINTS,
    Answers,
    Question,
    answer,
    spread,
)

_ASKED = ("best_split", "target_error", "total_epsilon", "total_delta", "seed")

_FROM_RUN = (
    "data", *COLUMN_OPTIONS, "items_file", "users", "items", "top_items", "normalise", "domain", "mechanism", "release",
    "discovery_share", "user_items", "known_items", "statistic", "buckets", "score_sensitivity", "selector",
    "threshold", "delta", "epsilon_select", "delta_select", "neighbours",
    "min_threshold", "max_threshold", "candidates", "sparsity", "calibration", "plugin",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(Wanted):
    """What the command line says that is not the plan."""

    epsilon: str
    best_split: bool
    target_error: float | None
    total_epsilon: float | None
    total_delta: float | None
    mean_total: float | None
    distinct_items: float | None
    tail_index: float | None
    seed: int
    figure: Path | None
    csv: Path | None
    as_json: bool


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
@click.option("--seed", type=int, default=0, metavar="S", help="The seed of synthetic and model populations.")
@click.option("--figure", type=PATH, metavar="FILE", help="Draw the curves as .svg or .png.")
@click.option("--csv", type=PATH, metavar="FILE", help="Write the rows as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
@click.pass_context
def plan(context: click.Context, /, **flags: Any) -> None:
    """Predict error and threshold of a run over a range of epsilon, before any budget is spent.

    Computed from a public population (--data), a synthetic one, or one made from your guesses (--users, --items,
    --mean-total, --distinct-items, --tail-index). Nothing is charged. Predictions are not private: the data
    must be public, or a past release.
    """
    own = {f.name: flags.pop(f.name) for f in fields(Options) if f.name in flags}
    options = Options(columns=columns_of(flags), open_domain=flags["domain"] == "open", **own)
    epsilons = _epsilons(options.epsilon)
    given = {name for name in flags if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    _check(options)
    flags["mechanism"] = mechanism_for(
        flags["mechanism"], domain=flags["domain"], no_delta=flags["delta"] == 0
    )
    question = Question(
        wanted=options,
        guesses={name: value for name in GUESSES if (value := getattr(options, name)) is not None},
        settings=flags,
        epsilons=epsilons,
        given=given,
        **{name: getattr(options, name) for name in _ASKED},
    )
    with progress_on(sys.stderr) as progress:
        answers = answer(question, on_phase=progress.phase, watch=progress.watch)
        document = _document(answers)
        if options.csv is not None:
            write_csv(options.csv, document["rows"])
        if options.figure is not None:
            progress.phase("write")
            drawn = draw_plan_ahead(
                epsilons,
                document["rows"],
                totals=options.best_split,
                target=answers.target,
                split=answers.split,
            )
            write_figure_file(drawn, options.figure, force=True)
    if options.as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        _print(options, answers, document["notes"])


# The same options as `fedhist run` has, with the same words: a plan that was predicted is run by the same flags.
plan.params += [parameter for parameter in run.params if parameter.name in _FROM_RUN]


def _epsilons(text: str) -> list[float]:
    """The values that a range stands for, rising."""
    wrong = InvalidInput(
        f"--epsilon is {text!r}",
        allowed="LOW:HIGH or LOW:HIGH:POINTS with 0 < LOW < HIGH and 2 points or more, or values above 0 with commas",
        advice="for example 0.1:10, 0.5:4:8 or 0.5,1,2",
    )
    count = 0
    try:
        if ":" not in text:
            values = sorted({float(part) for part in text.split(",")})
        else:
            low, high, *points = text.split(":")
            (count,) = map(int, points or [str(DEFAULT_POINTS)])
            if not (0 < float(low) < float(high) < math.inf and count >= 2):
                raise wrong
            values = spread(float(low), float(high), min(count, MAX_POINTS + 1))
    except ValueError:
        raise wrong from None
    if not all(0 < value < math.inf for value in values):
        raise wrong
    if max(count, len(values)) > MAX_POINTS:
        raise InvalidInput(
            f"--epsilon asks for {max(count, len(values))} points", allowed=f"up to {MAX_POINTS}"
        )
    return values


def _check(options: Options) -> None:
    check_population(options)
    # Before anything is computed: files that can't be written, or that would take the place of the data.
    for flag, path, suffixes in (("--figure", options.figure, FORMATS), ("--csv", options.csv, ())):
        if path is None:
            continue
        check_new_file(path, suffixes=suffixes, force=True)
        if path.resolve() in [
            read.resolve() for read in (options.path, options.items_file) if read is not None
        ]:
            raise InvalidInput(f"{flag} names a file that is read", allowed="another file")


def _document(answers: Answers) -> dict[str, Any]:
    totals, population = answers.question.best_split, answers.loaded.population
    plan = {
        name: value
        for name, value in answers.first.to_json().items()
        if name not in ("epsilon", "epsilon_select")
    }
    return {
        "private": False,
        "population": {
            "name": answers.loaded.name,
            "users": population.users,
            "items": population.domain_size,
        },
        "plan": plan,
        "epsilon_is": "total" if totals else "histogram",
        "rows": [row_of(row) for row in answers.rows],
        "target": None if answers.target is None else target_document(answers.target, totals=totals),
        "default_split_losses": answers.usual or None,
        "split": None if answers.split is None else split_document(answers.split),
        "notes": [*answers.notes, PUBLIC_ONLY],
    }


def _print(options: Options, answers: Answers, notes: list[str]) -> None:
    console = stdout_console()
    loaded, first = answers.loaded, answers.first
    items = f"{loaded.population.domain_size:,} items" + (" of an open domain" if first.items is None else "")
    chosen = "fixed" if first.selector == "fixed" else f"chosen by {first.selector}"
    facts = (
        f"population  {loaded.population.users:,} users x {items} ({line(loaded.name)})\n"
        f"mechanism   {method(first)}, neighbours {first.neighbours.value}, threshold {chosen} "
        f"from {first.min_threshold:g} to {first.max_threshold:g}"
    )
    console.print(facts, markup=False, soft_wrap=True)
    epsilons, totals = answers.question.epsilons, options.best_split
    print_curve(console, epsilons, answers.rows, totals=totals, target=options.target_error)
    if answers.target is not None:
        question = f"Which epsilon gives an error of {answers.target.error:g}?"
        print_answer(console, question, target_words(answers.target, totals=options.best_split))
    if answers.split is not None:
        question = f"How should epsilon {answers.split.total:g} be split between the rounds?"
        print_answer(console, question, split_words(answers.split))
    print_notes(console, notes)
    written = [str(path) for path in (options.figure, options.csv) if path is not None]
    if written:
        console.print(line(f"written: {', '.join(written)}"), markup=False, soft_wrap=True)
