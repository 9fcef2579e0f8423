"""`fedhist campaign`: a schedule is made, run and shown; what a command needs is loaded when it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedhist.commands.options import COLUMNS, PATH, Group, columns_of, options, plan_settings
from fedhist.commands.terminal import echo, printing_what_is_in
from fedhist.protocol.item_lists import read_items
from fedhist.protocol.plan.fields import FIELDS

FOLDER = click.argument("folder", type=PATH)
NOT_HERE = ("users", "items", "participants", "window", "epsilon", "delta", "delta_select")
"""Fields of the plan that the data, the calendar or the total say."""


@click.group(
    cls=Group,
    examples=(
        "# thirteen weeks under epsilon 3; then, every Monday, what is due",
        "fedhist ledger limit a.db --epsilon 3 --delta 1e-5",
        "fedhist campaign new q4 --windows 2026-W40x13 --ledger a.db --time-column t",
        "fedhist campaign run q4 --data visits.csv",
        "fedhist campaign show q4",
    ),
)
@click.pass_context
def campaign(context: click.Context) -> None:
    """A release of every week, or of any windows, as one command: a plan, a calendar, one ledger.

    FOLDER holds schedule.toml, which says all of it and may be corrected, one result folder for each window, and
    index.html, which draws the items over time.
    """
    from fedhist.simulations.workbench.spelling import command_words

    context.with_resource(command_words())


@campaign.command(
    examples=(
        "# all that the ledger's limit leaves; items are found, and known from then on",
        "fedhist campaign new q4 --windows 2026-W40x13 --ledger a.db --time-column t",
        "# a total of its own, for nodes of Flower",
        "fedhist campaign new q4 --windows 2026-W40x13 --ledger a.db --epsilon 3",
    ),
)
@FOLDER
@options(
    *(
        "windows",
        "ledger",
        "data",
        "spare",
        "delay",
        *COLUMNS,
        "strict",
        "time_column",
        "items_file",
        "normalise",
    ),
    *("users", "nodes", *(name for name in FIELDS if name not in NOT_HERE), "epsilon", "delta"),
    *("set", "plan_file", "plugin"),
    ledger={
        "required": True,
        "help": "Charge all windows to this file, made if missing. If it has no limit, the total is its limit from now "
        "on.",
    },
    epsilon={
        "default": None,
        "help": "What all windows together may cost one user, ever. It is split evenly, so that all of them fit as the "
        "ledger counts. [default: the ledger's limit]",
    },
    delta={"help": "The same of delta. [default: 1e-6]"},
    data={"help": "The table that has the windows' rows, if it is always the same one."},
    items_file={
        "help": "The public list of the items to count, one a line; a copy is kept. Without it and --bins, items are "
        "found privately."
    },
    users={
        "help": "The number of users, if it is known: for warnings, and for nodes of Flower, which need it. With "
        "--neighbours add-or-remove-one, the number that stands for that of the users, which is hidden then."
    },
    nodes={"help": "With --masking: the number of participants."},
    domain={
        "default": None,
        "help": f"{FIELDS['domain'].meaning} [default: closed with --items-file or --bins, else open]",
    },
    epsilon_select={
        "default": None,
        "help": "Privacy budget of choosing the threshold, each time that it is chosen. [default: a share of the "
        "window's epsilon]",
    },
)
@click.pass_context
def new(context: click.Context, /, folder: Path, items_file: Path | None, **flags: Any) -> None:
    """Make a schedule: whole or not at all, and without reading any data.

    It says what one window costs and what all of them cost.
    """
    from fedhist.simulations.workbench.schedule import Schedule

    columns = vars(columns_of(flags)) | {"window": None}
    settings, _ = plan_settings(context, flags)
    given = {name: value for name, value in {**columns, **settings}.items() if value is not None}
    nodes = given.pop("nodes", None)
    if given["masking"] != "none":
        given["participants"] = nodes
    made = Schedule.new(folder, items=None if items_file is None else read_items(items_file), **given)
    _print(made.show())


@campaign.command(
    examples=(
        "# every Monday",
        "fedhist campaign run q4 --data visits.csv",
        "# charge and run once more a window whose result is lost",
        "fedhist campaign run q4 --data visits.csv --again 2026-W41",
    ),
)
@FOLDER
@options(
    *("data", "memory", "again", "until", "moved", "engine", "nodes", "ray_address", "workers", "plugin"),
    *("trace", "quiet", "as_json"),
    data={
        "help": "The table that has the windows' rows: .csv, .tsv, .jsonl or .parquet, a folder or a quoted pattern of "
        "such files. How it is read stands in schedule.toml. [default: the table that is named there]"
    },
)
def run(folder: Path, moved: bool, quiet: bool, as_json: bool, **how: Any) -> None:
    """Run what is due: windows whose last day is over, by UTC, and that have no release yet, in order.

    After a crash, call it again: a window that is released is never run twice, and one that was charged and whose
    result is lost is left alone and reported.
    """
    from fedhist.commands.progress import progress_on
    from fedhist.simulations.workbench.schedule import Schedule

    with progress_on(sys.stderr, quiet=quiet, as_json=as_json) as progress:
        schedule = Schedule(folder, moved=moved, watcher=progress)
        released = list(schedule.run(**how))
    if not quiet or as_json:
        _print(schedule.show() | {"released": released}, as_json=as_json)


@campaign.command(examples=("fedhist campaign show q4",))
@FOLDER
@options("moved", "plugin", "as_json")
def show(folder: Path, moved: bool, as_json: bool) -> None:
    """Print the calendar with what each window cost, what is spent and left, and what is due next.

    It also brings index.html up to date, for releases that nodes of Flower made.
    """
    from fedhist.simulations.workbench.schedule import Schedule

    _print(Schedule(folder, moved=moved).show(), as_json=as_json)


def _print(said: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Where a schedule stands, see `Schedule.show`."""
    if as_json:
        click.echo(json.dumps(said, allow_nan=False))
        return
    from fedhist.simulations.workbench.schedule import HEADINGS, cells_of

    rows = ("  ".join(f"{cell:<14}" for cell in row).rstrip() for row in (HEADINGS, *cells_of(said)))
    total, each, whole, spent = said["total"], said["each"], said["all"], said["spent"]
    with printing_what_is_in(Path(said["folder"])):
        for text in (
            f"schedule: {said['folder']}",
            *rows,
            f"total:    epsilon {total['epsilon']:g}, delta {total['delta']:.3g}, for one user, ever, in "
            f"{said['ledger']}",
            f"a window: epsilon {each['epsilon']:.4g}, delta {each['delta']:.3g}",
            f"all {len(said['windows'])}: epsilon {whole['epsilon']:.4g} at delta {total['delta']:.3g}, as the ledger "
            f"counts; added up it would be {whole['sum']:.4g}",
            f"spent:    epsilon {spent['epsilon']:.4g}; the ledger has {said['left']['epsilon']:.4g} left",
            *(f"note: {note}" for note in said["notes"]),
            f"page: {said['page']}",
        ):
            echo(text)
