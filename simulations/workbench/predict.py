"""What a run will be like, before any budget is spent: `fedhist.predict`, and what `fedhist plan` is thin over."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhist.display.frames import data_frame
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.steps import check_runnable
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_POINTS, DEFAULT_USERS
from fedhist.simulations.datasets.guessed import GuessedPopulation
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.population_checks import check_labels
from fedhist.simulations.predict import (
    FLATNESS,
    PUBLIC_ONLY,
    Outlook,
    Prediction,
    Predictor,
    Split,
    Target,
    curve,
    epsilon_for,
    notes_of_rows,
    round_digits,
    row_of,
    split_total,
    split_words,
    target_words,
)
from fedhist.simulations.workbench.checks import check_population
from fedhist.simulations.workbench.reading import reading_of
from fedhist.simulations.workbench.spelling import in_python, python_words

MAX_POINTS = 200
DEFAULT_RANGE = (0.1, 10.0)
SAMPLE = 20_000
"""Made-up users stand for all others beyond this number."""
_HEAVY_TAILED = (
    "heavy-tailed users: lognormal totals, 20 in the median and 2,000 at 99.9 %, about total^0.75 different items a "
    "user, of popularity 1/(rank + 2). Give sizes of your own with --mean-total or --sizes"
)
GUESSES = ("mean_total", "distinct_items", "tail_index", "sizes")
"""What a model population can be guessed from."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a prediction.

    Args:
        wanted: the public population.
        guesses: of GUESSES, for a model population of the wanted size.
        settings: fields of Plan, without users, items and epsilon.
        epsilons: rising; of the histogram, or with `best_split` of all rounds.
        best_split: whether each epsilon is a total that is split between the rounds at its best.
        target_error: the error that an epsilon is looked for.
        total_epsilon: a total that is split between the rounds.
        total_delta: of all rounds together.
        given: the names of settings that are the user's own, and not defaults.
        seed: of synthetic and model populations.
    """

    wanted: Wanted
    epsilons: list[float]
    guesses: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    best_split: bool = False
    target_error: float | None = None
    total_epsilon: float | None = None
    total_delta: float | None = None
    given: Collection[str] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.guesses and (self.wanted.data is not None or self.wanted.top_items is not None):
            raise InvalidInput(
                "guesses (--mean-total, --distinct-items, --tail-index, --sizes) make a population of their own",
                allowed="guesses with --users and --items, without --data and --top-items",
            )
        if "sizes" in self.guesses and {"mean_total", "tail_index"} & set(self.guesses):
            raise InvalidInput(
                "--sizes with --mean-total or --tail-index",
                allowed="one or the other: both say how large users are",
            )
        for flag, number in (("--target-error", self.target_error), ("--total-epsilon", self.total_epsilon)):
            if number is not None and not 0 < number < math.inf:
                raise InvalidInput(f"{flag} is {number:g}", allowed="a finite number above 0")
        if self.total_delta is not None and {"delta", "delta_select"} & set(self.given):
            raise InvalidInput(
                "--total-delta with --delta or --delta-select", allowed="the total or its parts, not both"
            )
        if self.best_split and "epsilon_select" in self.given:
            raise InvalidInput(
                "--best-split with --epsilon-select",
                allowed="one or the other: --best-split chooses the budget of the threshold",
            )


@dataclass(frozen=True)
class Answers:
    """All that was predicted.

    Args:
        question: what was asked.
        name: of the population, in words.
        users, items: of the population.
        first: the plan with the smallest epsilon.
        rows: a prediction for each epsilon.
        target: the epsilon for an error, or the least error where that is out of reach.
        split: of a total between the rounds.
        usual: where rows are of the best split, the errors of the default one.
        notes: what is to be said of them, without what is true of all predictions.
        frame_kind: of the data.
    """

    question: Question
    name: str
    users: int
    items: int
    first: Plan
    rows: list[Prediction]
    target: Target | None
    split: Split | None
    usual: list[float]
    notes: list[str]
    frame_kind: str | None


def predict(
    data: Any = None,
    *,
    user: str | int = "user",
    item: str | int = "item",
    count: str | int | None = None,
    separator: str | None = None,
    bins: Collection[float] | None = None,
    items: Any = None,
    users: int | None = None,
    top_items: int | None = None,
    normalise: str | None = None,
    memory: str | int | None = None,
    epsilon: float | Sequence[float] | None = None,
    target_error: float | None = None,
    best_split: bool = False,
    total_delta: float | None = None,
    mean_total: float | None = None,
    distinct_items: float | None = None,
    tail_index: float | None = None,
    sizes: Mapping[float, float] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Any:
    """The expected error and threshold of a run for each epsilon, without running it. Charges nothing.

    NOT private: the data must be public, or a past release. `fedhist.figure` draws what this returns.

    Args:
        data: a data frame, a scipy matrix, a path, `synthetic:NAME?...` or a population that is like yours. None for
            synthetic users, or for a model made from guesses: at most 20,000 users, who stand for all.
        user: the column of users.
        item: the column of items.
        count: the column of counts, if there is one.
        separator: between the fields of a text file.
        bins: rising edges, to make items of numbers.
        items: the public list of items; for synthetic users and models the number of items.
        users: the number of users of a synthetic population or a model.
        top_items: keep this number of the most frequent items.
        normalise: nfc or casefold, to unify the spelling of names.
        memory: how much reading a table may use, such as "1GB"; half of what is available without it.
        epsilon: budgets of the histogram; with `best_split` of all rounds. None for 12 from 0.1 to 10.
        target_error: the least epsilon that reaches this relative error gets a row of its own, and the column
            `reaches_target` says which rows do. A warning says so if none does, and what would help.
        best_split: take each epsilon as a total and split it between the rounds at its best.
        total_delta: delta of all rounds together.
        mean_total: a guess, for a model: the mean of users' totals.
        distinct_items: a guess: how many different items a user has on average.
        tail_index: a guess: the share of users with a total above x falls like x to the power of minus this.
        sizes: guesses in the place of mean and tail: users' totals at some percentiles, such as `{50: 8, 99: 106}`.
        seed: of synthetic and model populations.
        settings: other fields of a plan.

    Returns:
        A data frame of the kind that came in, else of polars, with a row for each epsilon: `relative_loss`, its parts
        `clipping_error` and `noise_error`, the mean `threshold` and 9 of 10 of its choices, and the cost of all rounds.
    """
    guesses = {"mean_total": mean_total, "distinct_items": distinct_items, "tail_index": tail_index}
    guesses["sizes"] = None if sizes is None else tuple(sizes.items())  # type: ignore[assignment]  # mixed values
    with python_words():
        apart = ("users", "items", "epsilon")
        unknown = [name for name in settings if name not in FIELDS or name in apart]
        if unknown:
            allowed = ", ".join(name for name in FIELDS if name not in apart)
            raise InvalidInput(f"there is no setting {unknown[0]!r}", allowed=allowed)
        reading = reading_of(
            user=user,
            item=item,
            count=count,
            separator=separator,
            bins=bins,
            items=items,
            normalise=normalise,
            memory=memory,
            domain=settings.get("domain"),
        )
        wanted = replace(reading, data=data, users=users, top_items=top_items)
        check_population(wanted)
        answers = answer(
            Question(
                wanted=wanted,
                guesses={name: value for name, value in guesses.items() if value is not None},
                settings={name: value for name, value in settings.items() if value is not None},
                epsilons=checked_epsilons(epsilon),
                best_split=best_split,
                target_error=target_error,
                total_delta=total_delta,
                given=[name for name, value in settings.items() if value is not None],
                seed=seed,
            )
        )
    if answers.target is not None and answers.target.advice is not None:
        words = target_words(answers.target, totals=best_split)
        warnings.warn(in_python(f"which epsilon gives an error of {target_error:g}: {words}"), stacklevel=2)
    for note in notes_of_rows(answers.rows):
        warnings.warn(in_python(note), stacklevel=2)
    rows = frame_rows(answers)
    return data_frame({name: [row[name] for row in rows] for name in rows[0]}, answers.frame_kind)


def checked_epsilons(epsilon: float | Sequence[float] | None) -> list[float]:
    """The epsilons, rising, each once; None is DEFAULT_RANGE."""
    if epsilon is None:
        return spread(*DEFAULT_RANGE, DEFAULT_POINTS)
    try:
        values = sorted({float(value) for value in np.atleast_1d(np.asarray(epsilon, dtype=float))})
    except (TypeError, ValueError):
        values = []
    if not values or not all(0 < value < math.inf for value in values) or len(values) > MAX_POINTS:
        raise InvalidInput(
            "the epsilons are not a list of budgets",
            allowed=f"1 to {MAX_POINTS} finite numbers above 0",
            code="bad-epsilons",
        )
    return values


def spread(low: float, high: float, points: int) -> list[float]:
    """Values from low to high, evenly on a logarithmic scale, with three digits."""
    return sorted({round_digits(value, 3) for value in np.geomspace(low, high, points)})


def answer(
    question: Question,
    *,
    on_phase: Callable[[str], None] = lambda phase: None,
    watch: Callable[[Population], Population] = lambda population: population,
) -> Answers:
    """Predict every row, the target and the split."""
    on_phase("population")
    loaded, users = _population(question)
    population = loaded.population
    items = None if question.wanted.open_domain else population.domain_size
    settings = dict(question.settings) | {"users": users, "items": items}
    choice = question.settings.get("epsilon_select") if "epsilon_select" in question.given else None
    predictor = Predictor(watch(population), users, question.seed)
    outlook = Outlook(predictor, settings, question.total_delta, choice)
    first = outlook.plan(question.epsilons[0])
    check_runnable(first, simulated=True)
    check_labels(population, first)
    on_phase("predict")
    totals, epsilons = question.best_split, question.epsilons
    split = None if question.total_epsilon is None else split_total(outlook, question.total_epsilon)
    rows = curve(outlook, epsilons, totals=totals)
    target = None
    if question.target_error is not None:
        target = epsilon_for(outlook, question.target_error, epsilons, rows, totals=totals)
    usual = [predictor.predict(outlook.split(total)).relative_loss for total in epsilons] if totals else []
    # The notes of a file on what is not private are said of everything here.
    notes = [note for note in loaded.notes if "not private" not in note]
    if users > population.users:
        notes.append(f"{population.users:,} users of this population stand for all {users:,}")
    if rows[0].draws is not None:
        notes.append(f"what has no known law was drawn {rows[0].draws} times for each row")
    notes += notes_of_rows(rows)
    if usual:
        more = max(loss / max(row.relative_loss, 1e-12) - 1 for row, loss in zip(rows, usual, strict=True))
        notes.append(
            "a run that is given --total-epsilon alone splits it by itself: predicted to lose at most "
            f"{max(more, 0):.1%} more than the best split in any of these rows"
        )
    name, kind = loaded.name, loaded.frame_kind
    return Answers(
        question, name, users, population.domain_size, first, rows, target, split, usual, notes, kind
    )


def frame_rows(answers: Answers) -> list[dict[str, Any]]:
    """The rows of a frame: those of the curve, and that of the target at its place."""
    question, target = answers.question, answers.target
    rows = dict(zip(question.epsilons, answers.rows, strict=True))
    if target is not None and target.advice is None:
        rows[target.epsilon] = target.prediction
    found = []
    for epsilon, prediction in sorted(rows.items()):
        row = row_of(prediction)
        if question.best_split:
            row = {"best_split_of": epsilon} | row
        if question.target_error is not None:
            row["reaches_target"] = prediction.relative_loss <= question.target_error
        found.append(row)
    return found


def document_of(answers: Answers) -> dict[str, Any]:
    """All of it as one JSON document."""
    totals, target, split = answers.question.best_split, answers.target, answers.split
    split_row, found = None, None
    if target is not None:
        reached = target.advice is None
        found = {
            "error": target.error,
            "reached": reached,
            "epsilon": target.epsilon if reached else None,
            "epsilon_is": "total" if totals else "histogram",
            "at_start_of_range": target.at_start,
            "least_error": None if reached else target.prediction.relative_loss,
            "least_at_epsilon": None if reached else target.epsilon,
            "row": row_of(target.prediction),
            "words": target_words(target, totals=totals),
        }
    if split is not None:
        tried = zip(split.shares.tolist(), split.losses.tolist(), strict=True)
        split_row = {
            "total_epsilon": split.total,
            "best_share": split.best_share,
            "flat_from": split.flat_low,
            "flat_to": split.flat_high,
            "flat_within": FLATNESS,
            "tried": [{"share": share, "relative_loss": loss} for share, loss in tried],
            "row": row_of(split.best),
            "usual_row": row_of(split.usual),
            "words": split_words(split),
        }
    plan = answers.first.to_json()
    return {
        "private": False,
        "population": {"name": answers.name, "users": answers.users, "items": answers.items},
        "plan": {name: value for name, value in plan.items() if name not in ("epsilon", "epsilon_select")},
        "epsilon_is": "total" if totals else "histogram",
        "rows": [row_of(row) for row in answers.rows],
        "target": found,
        "default_split_losses": answers.usual or None,
        "split": split_row,
        "notes": [*answers.notes, PUBLIC_ONLY],
    }


def _population(question: Question) -> tuple[Loaded, int]:
    """The users to predict from, and how many they stand for: SAMPLE made-up users stand for more."""
    wanted = question.wanted
    users = wanted.users or DEFAULT_USERS
    if question.guesses:
        model = GuessedPopulation(
            users=min(users, SAMPLE),
            items=wanted.items or DEFAULT_ITEMS,
            seed=question.seed,
            **question.guesses,
        )
        made = f"model population: {model.description}. Real users differ: try other guesses"
        return Loaded(model, "model of your guesses", notes=(made,)), users
    if wanted.data is not None:
        loaded = load(wanted, question.seed)
        return loaded, loaded.population.users
    loaded = load(replace(wanted, users=min(users, SAMPLE)), question.seed)
    return replace(loaded, notes=(*loaded.notes, _HEAVY_TAILED)), users
