"""What a run will be like, before any budget is spent: `fedhist.predict`, and what `fedhist plan` is thin over."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedhist.display.tables import data_frame
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.steps import check_runnable
from fedhist.server.words import method
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_POINTS, DEFAULT_USERS
from fedhist.simulations.datasets.guessed import GuessedPopulation
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.population_checks import check_labels
from fedhist.simulations.predict import (
    PUBLIC_ONLY,
    Outlook,
    Predictor,
    curve,
    epsilon_for,
    notes_of_rows,
    round_digits,
    row_of,
    split_total,
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


def predict(
    data: Any = None,
    *,
    user: str | int = "user",
    item: str | int = "item",
    count: str | int | None = None,
    separator: str | None = None,
    strict: bool = False,
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
        strict: stop at the first row without a user, an item or a count, instead of leaving such rows out.
        bins: rising edges, to make items of numbers.
        items: the public list of items; for synthetic users and models the number of items.
        users: the number of users of a synthetic population or a model.
        top_items: keep this number of the most frequent items.
        normalise: nfc or casefold, to unify the spelling of names.
        memory: how much reading a table may use, such as "1GB"; half of what is available without it.
        epsilon: budgets of the histogram; with `best_split` of all rounds. None for 10 from 0.1 to 10.
        target_error: the least epsilon that reaches this relative error gets a row of its own, and the column
            `reaches_target` says which rows do. A warning says so if none does, and what would help.
        best_split: take each epsilon as a total and split it between the rounds at its best.
        total_delta: delta of all rounds together.
        mean_total: a guess, for a model: the mean of users' totals.
        distinct_items: a guess: how many different items a user has on average.
        tail_index: a guess: the share of users with a total above x falls like x to the power of minus this.
        sizes: guesses instead of mean and tail: users' totals at some percentiles, such as `{50: 8, 99: 106}`.
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
            strict=strict,
            bins=bins,
            items=items,
            normalise=normalise,
            memory=memory,
            domain=settings.get("domain"),
        )
        wanted = replace(reading, data=data, users=users, top_items=top_items)
        given = {name: value for name, value in settings.items() if value is not None}
        found = plan_ahead(
            population_for(wanted, {name: one for name, one in guesses.items() if one is not None}, seed),
            given,
            checked_epsilons(epsilon),
            best_split=best_split,
            target_error=target_error,
            total_delta=total_delta,
            given=given,
            seed=seed,
        )
    if found["target"] is not None and not found["target"]["reached"]:
        told = f"which epsilon gives an error of {target_error:g}: {found['target']['words']}"
        warnings.warn(in_python(told), stacklevel=2)
    for note in found["warnings"]:
        warnings.warn(in_python(note), stacklevel=2)
    rows = dict(zip(found["epsilons"], found["rows"], strict=True))
    if found["target"] is not None and found["target"]["reached"]:
        rows[found["target"]["epsilon"]] = found["target"]["row"]
    columns: dict[str, list[Any]] = {"best_split_of": sorted(rows)} if best_split else {}
    for name in found["rows"][0]:
        columns[name] = [rows[epsilon][name] for epsilon in sorted(rows)]
    if target_error is not None:
        columns["reaches_target"] = [loss <= target_error for loss in columns["relative_loss"]]
    return data_frame(columns, found["frame_kind"])


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


def plan_ahead(
    population: tuple[Loaded, int],
    settings: Mapping[str, Any],
    epsilons: list[float],
    *,
    best_split: bool = False,
    target_error: float | None = None,
    total_epsilon: float | None = None,
    total_delta: float | None = None,
    given: Collection[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Predict a row for each epsilon, the epsilon for a target, and the best split of a total, as one document.

    Args:
        population: see `population_for`.
        settings: fields of Plan, without users, items and epsilon.
        epsilons: rising; of the histogram, or with `best_split` of all rounds.
        best_split: whether each epsilon is a total that is split between the rounds at its best.
        target_error: the error that an epsilon is looked for.
        total_epsilon: a total that is split between the rounds.
        total_delta: of all rounds together.
        given: the names of settings that are the user's own, and not defaults.
        seed: of what is drawn.
    """
    for flag, number in (("--target-error", target_error), ("--total-epsilon", total_epsilon)):
        if number is not None and not 0 < number < math.inf:
            raise InvalidInput(f"{flag} is {number:g}", allowed="a finite number above 0")
    if total_delta is not None and {"delta", "delta_select"} & set(given):
        raise InvalidInput(
            "--total-delta with --delta or --delta-select", allowed="the total or its parts, not both"
        )
    if best_split and "epsilon_select" in given:
        raise InvalidInput(
            "--best-split with --epsilon-select",
            allowed="one or the other: --best-split chooses the budget of the threshold",
        )
    (loaded, users), data = population, population[0].population
    items = None if settings.get("domain") == "open" else data.domain_size
    choice = settings.get("epsilon_select") if "epsilon_select" in given else None
    predictor = Predictor(data, users, seed)
    outlook = Outlook(predictor, dict(settings) | {"users": users, "items": items}, total_delta, choice)
    first = outlook.plan(epsilons[0])
    check_runnable(first, simulated=True)
    check_labels(data, first)
    split = None if total_epsilon is None else split_total(outlook, total_epsilon)
    rows = curve(outlook, epsilons, totals=best_split)
    target = None
    if target_error is not None:
        target = epsilon_for(outlook, target_error, epsilons, rows, totals=best_split)
    # The notes of a file on what is not private are said of everything here.
    notes = [note for note in loaded.notes if "not private" not in note]
    if users > data.users:
        notes.append(f"{data.users:,} users of this population stand for all {users:,}")
    if rows[0].draws is not None:
        notes.append(f"what has no known law was drawn {rows[0].draws} times for each row")
    usual = None
    if best_split:
        usual = [predictor.predict(outlook.split(total)).relative_loss for total in epsilons]
        more = max(loss / max(row.relative_loss, 1e-12) - 1 for row, loss in zip(rows, usual, strict=True))
        notes.append(
            "a run that is given --total-epsilon alone splits it by itself: predicted to lose at most "
            f"{max(more, 0):.1%} more than the best split in any of these rows"
        )
    useless, fields = notes_of_rows(rows), first.to_json()
    chosen = "fixed" if first.selector == "fixed" else f"chosen by {first.selector}"
    return {
        "private": False,
        "population": {"name": loaded.name, "users": users, "items": data.domain_size},
        "mechanism": f"{method(first)}, neighbours {first.neighbours.value}, threshold {chosen} from "
        f"{first.min_threshold:g} to {first.max_threshold:g}",
        "plan": {name: value for name, value in fields.items() if name not in ("epsilon", "epsilon_select")},
        "epsilon_is": "total" if best_split else "histogram",
        "epsilons": epsilons,
        "rows": [row_of(row) for row in rows],
        "target": target,
        "default_split_losses": usual,
        "split": split,
        "warnings": useless,
        "notes": [*notes, *useless, PUBLIC_ONLY],
        "frame_kind": loaded.frame_kind,
    }


def population_for(wanted: Wanted, guesses: Mapping[str, Any], seed: int) -> tuple[Loaded, int]:
    """The users to predict from, and how many they stand for: SAMPLE made-up users stand for more."""
    if guesses and (wanted.data is not None or wanted.top_items is not None):
        raise InvalidInput(
            "guesses (--mean-total, --distinct-items, --tail-index, --sizes) make a population of their own",
            allowed="guesses with --users and --items, without --data and --top-items",
        )
    if "sizes" in guesses and {"mean_total", "tail_index"} & set(guesses):
        raise InvalidInput(
            "--sizes with --mean-total or --tail-index",
            allowed="one or the other: both say how large users are",
        )
    check_population(wanted)
    users = wanted.users or DEFAULT_USERS
    if guesses:
        items = wanted.items or DEFAULT_ITEMS
        model = GuessedPopulation(users=min(users, SAMPLE), items=items, seed=seed, **guesses)
        made = f"model population: {model.description}. Real users differ: try other guesses"
        return Loaded(model, "model of your guesses", notes=(made,)), users
    if wanted.data is not None:
        loaded = load(wanted, seed)
        return loaded, loaded.population.users
    loaded = load(replace(wanted, users=min(users, SAMPLE)), seed)
    return replace(loaded, notes=(*loaded.notes, _HEAVY_TAILED)), users
