"""`fedhist compare`: methods side by side, over data sets, settings and trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedhist.commands.options import COLUMNS, Command, columns_of, options, plan_settings
from fedhist.commands.terminal import echo
from fedhist.protocol.errors import NotWritten
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS, SIZED
from fedhist.simulations.experiments.choices import (
    DEFAULT_PARTICIPANTS,
    NONE,
    PAPER_DELTA,
    RANKINGS,
    SINGLE,
)

if TYPE_CHECKING:
    from fedhist.simulations.experiments.comparison import Sources


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


def _listed(name: str, **more: Any) -> dict[str, Any]:
    field = FIELDS[name]
    return {
        "type": _SEVERAL[name],
        "default": None if field.default is None else (field.default,),
        "metavar": f"{field.symbol or '|'.join(field.choices)},...",
    } | more


@click.command(
    cls=Command,
    examples=(
        "# all selectors at three budgets, over synthetic users",
        "fedhist compare --epsilon 0.1,0.5,1 --trials 10 --out compared",
        "# which method is the best for your data?",
        "fedhist compare --data visits.csv --mechanism gaussian,laplace,auto",
    ),
)
@options(
    *(
        "data",
        *COLUMNS,
        "strict",
        "items_file",
        "synthetic",
        "users",
        "items",
        "top_items",
        "normalise",
        "memory",
    ),
    *(
        "selectors",
        *_SEVERAL,
        *SINGLE,
        "total_epsilon",
        "total_delta",
        "set",
        "plan_file",
        "nodes",
        "best_by",
    ),
    *("plugin", "trials", "seed", "workers", "out", "as_json"),
    **{name: _listed(name) for name in _SEVERAL if name not in ("delta", "debias")},
    delta=_listed("delta", help=f"{FIELDS['delta'].meaning} {PAPER_DELTA} is one over twice the users."),
    debias=_listed("debias", help=f"{FIELDS['debias'].meaning} {NONE} in the list is the method without."),
    total_epsilon={"type": NUMBERS, "metavar": "E,..."},
    total_delta={"type": DELTAS, "metavar": "D,..."},
    data={
        "multiple": True,
        "help": "Population as for 'fedhist run', the same in every trial; may be given several times.",
    },
    items_file={
        "help": "The public domain of all --data with names, one per line. Without it the items are inferred from the "
        "data."
    },
    synthetic={"type": click.Choice(SIZED), "metavar": None},
    users={"help": f"The number of synthetic users. [default: {DEFAULT_USERS}]"},
    items={
        "type": WHOLE,
        "metavar": "D,...",
        "help": f"The numbers of items of synthetic users. [default: {DEFAULT_ITEMS}]",
    },
    top_items={
        "type": WHOLE,
        "metavar": "D,...",
        "help": "Count the D most frequent items of each population only, or all if it has no more. [default: all]",
    },
    selectors={"type": NAMES},
    nodes={
        "help": f"The participants of masked rounds. [default: {DEFAULT_PARTICIPANTS}, or all users if they are fewer]"
    },
    best_by={"type": click.Choice(list(RANKINGS)), "default": "loss"},
    seed={"default": 0, "help": "The seed that all trials follow from."},
    workers={"help": "The number of processes. [default: one for each core]"},
    out={
        "help": "Folder of the trials, table.csv, table.parquet and the figure; the same command with the same folder "
        "goes on where it was stopped. [default: fedhist-compare-TIME; none with --json]"
    },
    as_json={"help": "Print the rows as a JSON array on stdout and nothing else."},
)
@click.pass_context
def compare(context: click.Context, /, **flags: Any) -> None:
    """Compare methods over data sets, budgets and trials, and name the best for each.

    An experiment on data that you may look at: it reads the truth, charges no ledger, and is NOT private. Every
    combination of the lists is a row; what does not go together is left out. Trial i of a row depends on --seed, the
    row and i alone.
    """
    from fedhist.commands.compare_summary import print_comparison
    from fedhist.commands.progress import progress_on
    from fedhist.simulations.workbench.compare import grid_of, run_comparison

    settings, _ = plan_settings(context, flags)
    own = {name: settings.pop(name) for name in ("trials", "seed", "workers", "best_by")}
    as_json, out, nodes = (settings.pop(name) for name in ("as_json", "out", "nodes"))
    if out is None and not as_json:
        out = Path(f"fedhist-compare-{datetime.now():%Y%m%d-%H%M%S}")
    sources = _sources(settings)
    grid = grid_of(selectors=settings.pop("selectors"), settings=settings, participants=nodes)
    with progress_on(sys.stderr) as progress:
        progress.phase("trials")
        found = run_comparison(
            sources,
            grid,
            out=out,
            counting=progress,
            tell=lambda note: progress.say(f"note: {note}"),
            running=resumable(out),
            **own,
        )
    if as_json:
        click.echo(json.dumps(found.rows, allow_nan=False))
    else:
        print_comparison(found, out)


def _sources(flags: dict[str, Any]) -> Sources:
    """The sources that the flags name; takes their flags out."""
    from fedhist.simulations.datasets.loading import Wanted
    from fedhist.simulations.experiments.comparison import Sources, names_of

    paths = list(dict.fromkeys(flags.pop("data")))
    kinds = list(dict.fromkeys(flags.pop("synthetic"))) or ([] if paths else ["heavy-tailed"])
    users, items, top_items = (flags.pop(name) for name in ("users", "items", "top_items"))
    return Sources(
        data={name: path for path, name in names_of(paths, taken=kinds).items()},
        kinds=kinds,
        users=users,
        items=items,
        top_items=top_items,
        reading=Wanted(
            columns=columns_of(flags),
            items_file=flags.pop("items_file"),
            normalise=flags.pop("normalise"),
            memory=flags.pop("memory"),
            open_domain=flags["domain"] == "open",
        ),
    )


@contextmanager
def resumable(out: Path | None) -> Iterator[None]:
    """After Ctrl-C or a full disk inside, finished trials stay in their file and the message says how to go on.

    Without a folder of the user's, the comparison itself reports what the disk refused.
    """
    from fedhist.commands.cli import EXIT_INTERRUPTED
    from fedhist.server.disk import why_refused

    try:
        yield
    except (OSError, NotWritten) as error:
        if out is None:
            raise
        if isinstance(error, NotWritten):
            raise NotWritten(f"{error}; finished trials are kept, and the same command goes on") from None
        raise NotWritten(
            f"{out} can't be written ({why_refused(error)}); finished trials are kept: make room and give the same "
            "command again, or name another folder with --out"
        ) from None
    except KeyboardInterrupt:
        kept = f"finished trials are kept: to go on, give the same command with --out {out}"
        echo(f"interrupted; {'nothing is kept without --out' if out is None else kept}", err=True)
        click.get_current_context().exit(EXIT_INTERRUPTED)
