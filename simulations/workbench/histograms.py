"""`fedhist.histograms`: several private histograms of the same people under one budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhist.client.files.columns import Columns
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.advice import plan_warnings
from fedhist.simulations.workbench.answers import Answers
from fedhist.simulations.workbench.arguments import check_names, labels_in
from fedhist.simulations.workbench.carrying_out import Asked
from fedhist.simulations.workbench.questions import OWN_FIELDS, OneQuestion, carry_out_together, in_its_place
from fedhist.simulations.workbench.spelling import in_python, python_words
from fedhist.simulations.workbench.watching import Watcher

QUESTION_SETTINGS = ("item", "count", "items", "bins", "top_items", "weight", *OWN_FIELDS)
"""What each question may say for itself."""
_NOT_HERE = ("epsilon", "delta", "delta_select", "item", "items", "bins", "top_items", "trace")


def histograms(
    data: object,
    questions: Mapping[str, Mapping[str, Any]] | Iterable[str],
    *,
    total_epsilon: float,
    total_delta: float | None = None,
    user: str = "user",
    count: str | None = None,
    time: str | None = None,
    seed: int | None = None,
    evaluate: bool | None = None,
    engine: str = "in-process",
    ledger: str | Path | None = None,
    **settings: Any,
) -> Answers:
    """Release several private histograms of the same people, which cost one total together.

    All plans are fixed before anything is read, and composed tightly. A question's `weight` is its share of the
    precision of the noise: weight 2 has half the variance of weight 1, in units of the threshold squared.

    With masking on the engine in-process, all questions share one masking session in every round.

    Args:
        data: a table, as in `histogram`: one row an observation, with a column for each question.
        questions: what to count, by a name of the question's: `item`, the column, which is the name if it is left out;
            `items`, `bins`, `count` and `top_items` as in `histogram`; `weight`, 1 if left out; and most fields of
            `Plan`. Or the names of columns alone. Where neither `items` nor `bins` are given, items are found
            privately.
        total_epsilon: of all questions together.
        total_delta: of all questions together; 1 / (10 users) if left out, at most 1e-6.
        user: the column of the user, for all questions.
        count: the column of the count, for questions that name no other.
        time: the column that says when, for a `window`, which all questions share.
        seed: makes it repeatable, for simulation only. Each question has a seed of its own that follows from this one
            and its name: the result's `seed`.
        evaluate: also measure errors, which is NOT private.
        engine: as in `histogram`.
        ledger: a file that is charged for all questions before anything runs, or for none.
        settings: as in `histogram`, for all questions; `out` is a new folder with one folder for each question.

    Raises:
        InvalidInput: data, questions or settings that can't be used, before anything is spent.
        BudgetExceeded: the ledger has a limit, and the questions do not fit. Nothing was spent.
        RoundFailed: every question failed. If only some do, the answers say which, and what they charged is spent.
    """
    _check_settings(settings)
    with python_words():
        common = Asked(
            data=_checked(data),
            users=settings.get("users"),
            normalise=settings.get("normalise"),
            memory=settings.get("memory"),
            seed=seed,
            evaluate=evaluate,
            engine=engine,
            ledger=None if ledger is None else Path(ledger),
            nodes=settings.get("nodes"),
            dropout=settings.get("dropout") or 0.0,
            faulty=settings.get("faulty") or {},
            ray_address=settings.get("ray_address"),
            workers=settings.get("workers"),
            returned=True,
        )
        fields = {name: value for name, value in settings.items() if value is not None and name in FIELDS}
        columns = Columns(
            user=user,
            count=count,
            separator=settings.get("separator"),
            time=time,
            window=settings.get("window"),
        )
        out = settings.get("out")
        answers, folder = carry_out_together(
            [_question(name, one, common, columns, fields) for name, one in _named(questions).items()],
            total_epsilon=total_epsilon,
            total_delta=total_delta,
            target=lambda: None if out is None else Path(out),
            watcher=Watcher(),
            on_plan=_warn,
        )
    if out is not None and folder is None:
        warnings.warn(answers.notes[0], stacklevel=2)
    results = {
        name: replace(one, notes=tuple(map(in_python, one.notes))) for name, one in answers.results.items()
    }
    return replace(answers, results=results)


def _named(questions: object) -> Mapping[str, Mapping[str, Any]]:
    if isinstance(questions, Mapping):
        named = dict(questions)
    elif isinstance(questions, Iterable) and not isinstance(questions, str | bytes):
        listed = list(questions)
        if len(set(map(str, listed))) < len(listed):
            raise InvalidInput("a column is named twice in questions", allowed="different questions")
        named = {name: {} for name in listed}
    else:
        named = {}
    if not named or not all(
        isinstance(name, str) and isinstance(one, Mapping) for name, one in named.items()
    ):
        raise InvalidInput(
            "questions are no names with settings",
            allowed='{"place": {"items": [...]}, "hour": {"bins": [0, 12, 24]}}, or ["place", "category"]',
        )
    return named


def _question(
    name: str, given: Mapping[str, Any], common: Asked, columns: Columns, fields: Mapping[str, Any]
) -> OneQuestion:
    for setting in given:
        if setting not in QUESTION_SETTINGS:
            raise InvalidInput(
                f"the question {name} has the setting {setting!r}",
                allowed="item, items, bins, count, top_items, weight and fields of Plan that may differ by question",
                advice=in_its_place(setting, QUESTION_SETTINGS),
            )
    own = {setting: value for setting, value in given.items() if value is not None}
    asked = replace(
        common,
        columns=replace(
            columns, item=own.get("item", name), count=own.get("count", columns.count), bins=own.get("bins")
        ),
        item_names=labels_in(own.get("items")),
        top_items=own.get("top_items"),
    )
    chosen = {setting: own[setting] for setting in OWN_FIELDS if setting in own}
    return OneQuestion(name, asked, {**fields, **chosen}, own.get("weight", 1.0))


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name in _NOT_HERE:
        if settings.get(name) is not None:
            raise InvalidInput(
                f"{name} for several questions",
                allowed="one total_epsilon and total_delta, and bins, top_items and a weight for each question",
            )
    check_names(settings, function="histograms")


def _checked(data: object) -> object:
    if data is None:
        raise InvalidInput("data is None", allowed="a table: a data frame or a path")
    return data


def _warn(name: str, plan: Plan) -> Observer:
    """Say what a question can't achieve before anything is spent."""
    for text in plan_warnings(plan).values():
        warnings.warn(f"{name}: {in_python(text)}", stacklevel=5)
    return ignore
