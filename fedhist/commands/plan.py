"""`fedhist plan`: what a run will be like, before any budget is spent."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from fedhist.client.files.new_files import check_new_file
from fedhist.commands.data_options import COLUMN_OPTIONS, columns_of
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, mechanism_for
from fedhist.commands.plan_summary import (
    PUBLIC_ONLY,
    default_split_words,
    print_answer,
    print_curve,
    row_of,
    split_document,
    split_words,
    target_document,
    target_words,
    warnings_of_rows,
)
from fedhist.commands.progress import progress_on
from fedhist.commands.run_options import run
from fedhist.commands.summary import print_notes, stdout_console
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.server.steps import check_runnable
from fedhist.server.words import method
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS
from fedhist.simulations.datasets.guessed import DEFAULT_MEAN_TOTAL, DEFAULT_TAIL_INDEX, GuessedPopulation
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.experiments.tables import write_csv
from fedhist.simulations.figures.painting import FORMATS, write_figure_file
from fedhist.simulations.figures.plan_ahead import draw_plan_ahead
from fedhist.simulations.prediction.ahead import (
    Outlook,
    Split,
    Target,
    curve,
    epsilon_for,
    round_digits,
    split_total,
)
from fedhist.simulations.prediction.prediction import Prediction, Predictor
from fedhist.simulations.simulation import check_labels, check_not_empty
from fedhist.simulations.workbench.checks import check_population

MAX_POINTS = 200
DEFAULT_POINTS = 20

_FROM_RUN = (
    "data", *COLUMN_OPTIONS, "items_file", "users", "items", "top_items", "normalise", "domain", "mechanism", "release",
    "discovery_share", "user_items", "known_items", "statistic", "buckets", "score_sensitivity", "selector",
    "threshold", "delta", "epsilon_select", "delta_select", "neighbours",
    "min_threshold", "max_threshold", "candidates", "sparsity", "calibration",
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


@dataclass(frozen=True)
class Answers:
    """All that was predicted; `usual` are the errors of the default split, where rows are of the best one."""

    epsilons: list[float]
    rows: list[Prediction]
    target: Target | None
    split: Split | None
    usual: list[float]


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
    _check(options, given)
    flags["mechanism"] = mechanism_for(
        flags["mechanism"], domain=flags["domain"], no_delta=flags["delta"] == 0
    )
    with progress_on(sys.stderr) as progress:
        progress.phase("population")
        loaded = _population(options)
        items = None if options.open_domain else loaded.population.domain_size
        settings = flags | {"users": loaded.population.users, "items": items}
        outlook = Outlook(
            Predictor(progress.watch(loaded.population), seed=options.seed),
            settings,
            options.total_delta,
            flags["epsilon_select"] if "epsilon_select" in given else None,
        )
        first = outlook.plan(epsilons[0])
        check_runnable(first, simulated=True)
        check_labels(loaded.population, first)
        check_not_empty(loaded.population)
        progress.phase("predict")
        totals = options.best_split
        split = None if options.total_epsilon is None else split_total(outlook, options.total_epsilon)
        rows = curve(outlook, epsilons, totals=totals)
        target = None
        if options.target_error is not None:
            target = epsilon_for(outlook, options.target_error, epsilons, rows, totals=totals)
        usual = (
            [outlook.predictor.relative_loss(outlook.split(total)) for total in epsilons] if totals else []
        )
        answers = Answers(epsilons=epsilons, rows=rows, target=target, split=split, usual=usual)
        document = _document(options, loaded, first, answers)
        if options.csv is not None:
            write_csv(options.csv, document["rows"])
        if options.figure is not None:
            progress.phase("write")
            drawn = draw_plan_ahead(epsilons, rows, totals=totals, target=target, split=split)
            write_figure_file(drawn, options.figure, force=True)
    if options.as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        _print(options, loaded, first, answers, document["notes"])


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
            asked = np.geomspace(float(low), float(high), min(count, MAX_POINTS + 1))
            values = sorted({round_digits(value, 3) for value in asked})
    except ValueError:
        raise wrong from None
    if not all(0 < value < math.inf for value in values):
        raise wrong
    if max(count, len(values)) > MAX_POINTS:
        raise InvalidInput(
            f"--epsilon asks for {max(count, len(values))} points", allowed=f"up to {MAX_POINTS}"
        )
    return values


def _check(options: Options, given: set[str]) -> None:
    check_population(options)
    guesses = _guesses(options)
    if guesses and (options.data is not None or options.top_items is not None):
        raise InvalidInput(
            "guesses (--mean-total, --distinct-items, --tail-index) make a population of their own",
            allowed="guesses with --users and --items, without --data and --top-items",
        )
    for flag, number in (
        ("--target-error", options.target_error),
        ("--total-epsilon", options.total_epsilon),
    ):
        if number is not None and not 0 < number < math.inf:
            raise InvalidInput(f"{flag} is {number:g}", allowed="a finite number above 0")
    if options.total_delta is not None and given & {"delta", "delta_select"}:
        raise InvalidInput(
            "--total-delta with --delta or --delta-select", allowed="the total or its parts, not both"
        )
    if options.best_split and "epsilon_select" in given:
        raise InvalidInput(
            "--best-split with --epsilon-select",
            allowed="one or the other: --best-split chooses the budget of the threshold",
        )
    # Before anything is computed: files that can't be written, or that would take the place of the data.
    for flag, path, suffixes in (("--figure", options.figure, FORMATS), ("--csv", options.csv, ())):
        if path is None:
            continue
        check_new_file(path, suffixes=suffixes, force=True)
        if path.resolve() in [
            read.resolve() for read in (options.data, options.items_file) if read is not None
        ]:
            raise InvalidInput(f"{flag} names a file that is read", allowed="another file")


def _guesses(options: Options) -> dict[str, float]:
    named = {name: getattr(options, name) for name in ("mean_total", "distinct_items", "tail_index")}
    return {name: value for name, value in named.items() if value is not None}


def _population(options: Options) -> Loaded:
    guesses = _guesses(options)
    if not guesses:
        return load(options, options.seed)
    model = GuessedPopulation(
        users=options.users or DEFAULT_USERS,
        items=options.items or DEFAULT_ITEMS,
        seed=options.seed,
        **guesses,
    )
    made = (
        f"model population: Pareto totals of mean {model.mean_total:g} and tail index {model.tail_index:g}, "
        f"{model.wanted_items:.3g} different items a user, popularity 1/(rank + 2). Real users differ: "
        "try other guesses"
    )
    return Loaded(model, "model of your guesses", notes=(made,))


def _document(options: Options, loaded: Loaded, first: Plan, answers: Answers) -> dict[str, Any]:
    totals = options.best_split
    # The notes of a file on what is not private are said of everything here by the last one.
    kept = [note for note in loaded.notes if "not private" not in note]
    drawn = answers.rows[0].draws
    if drawn is not None:
        kept.append(
            f"the selector {first.selector} has no closed form: it was drawn {drawn} times for each row"
        )
    kept += warnings_of_rows([row.plan for row in answers.rows])
    if answers.usual:
        kept.append(default_split_words(answers.rows, answers.usual))
    return {
        "private": False,
        "population": {
            "name": loaded.name,
            "users": loaded.population.users,
            "items": loaded.population.domain_size,
        },
        "plan": {
            name: value
            for name, value in first.to_json().items()
            if name not in ("epsilon", "epsilon_select")
        },
        "epsilon_is": "total" if totals else "histogram",
        "rows": [row_of(row) for row in answers.rows],
        "target": None if answers.target is None else target_document(answers.target, totals=totals),
        "default_split_losses": answers.usual or None,
        "split": None if answers.split is None else split_document(answers.split),
        "notes": [*kept, PUBLIC_ONLY],
    }


def _print(options: Options, loaded: Loaded, first: Plan, answers: Answers, notes: list[str]) -> None:
    console = stdout_console()
    items = f"{loaded.population.domain_size:,} items" + (" of an open domain" if first.items is None else "")
    chosen = "fixed" if first.selector == "fixed" else f"chosen by {first.selector}"
    facts = (
        f"population  {loaded.population.users:,} users x {items} ({line(loaded.name)})\n"
        f"mechanism   {method(first)}, neighbours {first.neighbours.value}, threshold {chosen} "
        f"from {first.min_threshold:g} to {first.max_threshold:g}"
    )
    console.print(facts, markup=False, soft_wrap=True)
    print_curve(
        console, answers.epsilons, answers.rows, totals=options.best_split, target=options.target_error
    )
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
