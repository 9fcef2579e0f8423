"""`fedhist plan`: what a run will be like, before any budget is spent."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from fedhist.commands.data_options import columns_of
from fedhist.commands.plan_options import mechanism_for
from fedhist.commands.plan_summary import print_answer, print_curve
from fedhist.commands.progress import progress_on
from fedhist.commands.summary import print_notes, stdout_console
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.server.disk import check_new_file
from fedhist.server.words import method, users_words
from fedhist.simulations.datasets import DEFAULT_POINTS
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.experiments.tables import write_csv
from fedhist.simulations.predict import (
    FLATNESS,
    PUBLIC_ONLY,
    Split,
    Target,
    row_of,
    split_words,
    target_words,
)
from fedhist.simulations.report.plot import FORMATS, painted, plan_ahead_charts, write_figure
from fedhist.simulations.workbench.checks import check_population
from fedhist.simulations.workbench.predict import GUESSES, MAX_POINTS, Answers, Question, answer, spread

_ASKED = ("best_split", "target_error", "total_epsilon", "total_delta", "seed")


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
    sizes: str | None
    seed: int
    figure: Path | None
    csv: Path | None
    force: bool
    as_json: bool


def plan_here(flags: dict[str, Any], given: set[str]) -> None:
    """Check everything, predict, write and print; `given` are the options that the command line names."""
    own = {f.name: flags.pop(f.name) for f in fields(Options) if f.name in flags}
    options = Options(columns=columns_of(flags), open_domain=flags["domain"] == "open", **own)
    epsilons = _epsilons(options.epsilon)
    _check(options)
    flags["mechanism"] = mechanism_for(
        flags["mechanism"], domain=flags["domain"], no_delta=flags["delta"] == 0
    )
    question = Question(
        wanted=options,
        guesses=_guesses(options),
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
            drawn = plan_ahead_charts(
                epsilons,
                document["rows"],
                totals=options.best_split,
                target=answers.target,
                split=answers.split,
            )
            write_figure(painted(drawn), options.figure, force=True)
    if options.as_json:
        click.echo(json.dumps(document, allow_nan=False))
    else:
        _print(options, answers, document["notes"])


def _guesses(options: Options) -> dict[str, Any]:
    guesses = {name: value for name in GUESSES if (value := getattr(options, name)) is not None}
    if options.sizes is not None:
        try:
            pairs = [part.split(":") for part in options.sizes.split(",")]
            guesses["sizes"] = tuple((float(percent), float(total)) for percent, total in pairs)
        except ValueError:
            raise InvalidInput(
                f"--sizes is {options.sizes!r}",
                allowed="pairs PERCENT:TOTAL with commas",
                advice="such as 50:8,99:106",
            ) from None
    return guesses


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
        check_new_file(path, suffixes=suffixes, force=options.force)
        if path.resolve() in [
            read.resolve() for read in (options.path, options.items_file) if read is not None
        ]:
            raise InvalidInput(f"{flag} names a file that is read", allowed="another file")


def _document(answers: Answers) -> dict[str, Any]:
    totals = answers.question.best_split
    plan = {
        name: value
        for name, value in answers.first.to_json().items()
        if name not in ("epsilon", "epsilon_select")
    }
    return {
        "private": False,
        "population": {
            "name": answers.name,
            "users": answers.users,
            "items": answers.items,
        },
        "plan": plan,
        "epsilon_is": "total" if totals else "histogram",
        "rows": [row_of(row) for row in answers.rows],
        "target": None if answers.target is None else _target(answers.target, totals=totals),
        "default_split_losses": answers.usual or None,
        "split": None if answers.split is None else _split(answers.split),
        "notes": [*answers.notes, PUBLIC_ONLY],
    }


def _target(target: Target, *, totals: bool) -> dict[str, Any]:
    """The answer to: which epsilon gives this error. Out of reach, the row is that of the least error."""
    reached = target.advice is None
    found = {"at_start_of_range": target.at_start}
    least = {"least_error": target.prediction.relative_loss, "least_at_epsilon": target.epsilon}
    return {
        "error": target.error,
        "reached": reached,
        "epsilon": target.epsilon if reached else None,
        "epsilon_is": "total" if totals else "histogram",
        **(found if reached else least),
        "row": row_of(target.prediction),
        "words": target_words(target, totals=totals),
    }


def _split(split: Split) -> dict[str, Any]:
    """The answer to: how to split a budget between the rounds."""
    return {
        "total_epsilon": split.total,
        "best_share": split.best_share,
        "flat_from": split.flat_low,
        "flat_to": split.flat_high,
        "flat_within": FLATNESS,
        "tried": [
            {"share": share, "relative_loss": loss}
            for share, loss in zip(split.shares.tolist(), split.losses.tolist(), strict=True)
        ],
        "row": row_of(split.best),
        "usual_row": row_of(split.usual),
        "words": split_words(split),
    }


def _print(options: Options, answers: Answers, notes: list[str]) -> None:
    console = stdout_console()
    first = answers.first
    items = f"{answers.items:,} items" + (" of an open domain" if first.items is None else "")
    chosen = "fixed" if first.selector == "fixed" else f"chosen by {first.selector}"
    facts = (
        f"population  {users_words(first)} x {items} ({line(answers.name)})\n"
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
