"""`fedhist.histogram`: a private histogram of a table, in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from fedhist.client.files.columns import Columns
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.report import name_notes
from fedhist.simulations.workbench.arguments import (
    USUAL_EPSILON,
    RunSettings,
    check_names,
    labels_in,
    spelled_out,
)
from fedhist.simulations.workbench.carrying_out import Asked, carry_out
from fedhist.simulations.workbench.spelling import in_python, python_words
from fedhist.simulations.workbench.watching import Watcher

if TYPE_CHECKING:
    from fedhist.simulations.simulation import Result

_TOTALS = ("total_epsilon", "total_delta")


@spelled_out
def histogram(
    data: object,
    *,
    user: str | int = "user",
    item: str | int = "item",
    count: str | int | None = None,
    time: str | int | None = None,
    items: Iterable[str | int] | None = None,
    epsilon: float = USUAL_EPSILON,
    seed: int | None = None,
    evaluate: bool | None = None,
    engine: str = "in-process",
    ledger: str | Path | None = None,
    **settings: Unpack[RunSettings],
) -> Result:
    """Choose a contribution bound privately and release a private histogram.

    Nothing of the data is in the result but the release, unless you ask to `evaluate`. Where the data alone says which
    items there are, and no `items`, `bins`, `top_items` or `domain` is given, the domain is open: the items are found
    privately first. The columns of a matrix, and a population without names, are a closed domain.

    Args:
        data: a pandas, polars or pyarrow table or anything with an Arrow stream, one row an observation; a scipy
            matrix of users by items; the path of a file, or of a folder or pattern of tables; a text
            `synthetic:NAME?key=value`; or a population.
        user: the column of a table that says whose observation a row is.
        item: the column that says what was observed.
        count: the column that says how often; without it, a column of that name if there is one.
        time: the column that says when, for a `window`.
        items: the public list of the items, all of which are released, in this order. For a matrix, the names of its
            columns.
        epsilon: budget of the histogram. `total_epsilon` in its place is that of all rounds together.
        seed: makes it repeatable, noise and all: for simulation only. None draws noise from the operating system.
        evaluate: also measure the errors against the exact data, which is NOT private: for experiments. None is True
            for synthetic users alone.
        engine: where the devices run: "in-process", "ray" or "flower-simulation".
        ledger: a file that is charged before anything runs, made if missing; `fedhist.Session` has a limit too.
        settings: every other field of `Plan` by its name; `total_epsilon` and `total_delta` as in `plan_for_total`;
            `bins`, rising edges for the numbers in the item column; `separator` of a text file; `strict`, to stop
            at a row without a value; `top_items`, the number
            of the most frequent items to keep, which is not private; `users`, the number that stands for the real one
            under `neighbours="add-or-remove-one"`, or that of synthetic users; `normalise`, "nfc" or "casefold", to
            write names alike; `memory`, how much reading a table may use, such as "1GB"; `workers`, the number of
            processes of the engine in-process; `dropout` and `faulty`, shares of the nodes that give no answer or are
            faulty, the latter by kind as in {"inflate": 0.05}, and `nodes`, their number; `ray_address` of a cluster;
            `out`, a new folder for the result and its report; `trace`, to write what happened there too.

    Raises:
        InvalidInput: data or settings that can't be used, before anything is spent.
        BudgetExceeded: the ledger has a limit, and the question does not fit. Nothing was spent.
    """
    check_names(settings)
    fields: dict[str, object] = {
        name: value
        for name, value in settings.items()
        if value is not None and (name in FIELDS or name in _TOTALS)
    }
    if "total_epsilon" not in fields or epsilon is not USUAL_EPSILON:
        fields["epsilon"] = epsilon
    with python_words():
        asked = Asked(
            data=_checked(data),
            columns=Columns(
                user=user,
                item=item,
                count=count,
                separator=settings.get("separator"),
                bins=settings.get("bins"),
                time=time,
                window=settings.get("window"),
                strict=settings.get("strict", False),
            ),
            item_names=labels_in(items),
            users=settings.get("users"),
            top_items=settings.get("top_items"),
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
            trace=settings.get("trace", False),
            returned=True,
        )
        out = settings.get("out")
        finished = carry_out(
            asked, fields, target=lambda: None if out is None else Path(out), watcher=Watcher()
        )
    result = finished.result
    if out is not None and finished.folder is None:
        warnings.warn(result.notes[0], stacklevel=2)
    if not len(result.release.histogram):
        warnings.warn(repr(result), stacklevel=2)
    # They are about a file of the folder.
    unwritten = name_notes(result.release, None) if out is None else []
    notes = (in_python(note) for note in result.notes if note not in unwritten)
    return replace(result, notes=tuple(notes))


def _checked(data: object) -> object:
    if data is None:
        raise InvalidInput(
            "data is None",
            allowed="a data frame, a scipy matrix, a path, a population, or a text synthetic:NAME",
            code="no-data",
        )
    return data
