"""`fedhist run`: both rounds over a population on this machine."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from fedhist.commands.options import COLUMNS, Command, columns_of, options, plan_settings
from fedhist.commands.terminal import line, printing_what_is_in
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import FIELDS

if TYPE_CHECKING:
    from pathlib import Path

    from fedhist.protocol.events import Observer
    from fedhist.protocol.plan import Plan

FROM_POPULATION = ("users", "items", "participants")
"""Fields of the plan without an option of their own: the population says them, and --nodes."""

NO_DOMAIN = {
    "default": None,
    "help": f"{FIELDS['domain'].meaning} [default: open for a table without a list of items, else closed; "
    "closed without a list needs --evaluate]",
}


@click.command(
    cls=Command,
    examples=(
        "# synthetic users, to see what a run is like",
        "fedhist run",
        "# your own table, the public list of what to count, and a budget for all of it",
        "fedhist run --data visits.csv --items-file shops.txt --total-epsilon 1",
        "# one of several columns about the same people, under the limit of one ledger",
        "fedhist run --data visits.csv --item-column day --ledger people.ledger",
    ),
)
@options(
    *(
        "data",
        *COLUMNS,
        "strict",
        "time_column",
        "items_file",
        "users",
        "items",
        "top_items",
        "normalise",
        "memory",
        "seed",
    ),
    *(name for name in FIELDS if name not in FROM_POPULATION),
    *("total_epsilon", "total_delta", "set", "plan_file", "dropout", "faulty", "ledger", "engine", "nodes"),
    *("ray_address", "workers", "evaluate", "out", "plugin", "trace", "quiet", "verbose", "as_json"),
    domain=NO_DOMAIN,
)
@click.pass_context
def run(context: click.Context, /, **flags: Any) -> None:
    """Choose a contribution bound privately and release a private histogram.

    The bound is called the threshold: who has more than that is scaled down to it, so that nobody's data counts for
    much, and noise hides the rest. Without arguments: 50,000 synthetic users, a summary and a result folder.
    """
    from dataclasses import fields
    from datetime import datetime

    from fedhist.commands.progress import progress_on
    from fedhist.commands.summary import print_result, stdout_console
    from fedhist.protocol.events import ignore
    from fedhist.server.advice import plan_notes
    from fedhist.server.folder import default_folder
    from fedhist.simulations.report.timeline import narrate
    from fedhist.simulations.workbench.carrying_out import Asked, carry_out
    from fedhist.simulations.workbench.checks import fault_notes

    settings, _ = plan_settings(context, flags)
    as_json, quiet, verbose, out = (settings.pop(name) for name in ("as_json", "quiet", "verbose", "out"))
    if settings["trace"] and as_json and out is None:
        raise InvalidInput(
            "--trace has no folder to write to", allowed="--trace with --out, or without --json"
        )
    if quiet and verbose:
        raise InvalidInput("--quiet and --verbose contradict each other", allowed="one or the other")
    asked = Asked(
        columns=columns_of(settings),
        **{one.name: settings.pop(one.name) for one in fields(Asked) if one.name in settings},
    )
    started = datetime.now()

    def target() -> Path | None:
        return out if out is not None or as_json else default_folder(started)

    with progress_on(sys.stderr, quiet=quiet, as_json=as_json) as progress:

        def on_plan(plan: Plan) -> Observer:
            notes = [*plan_notes(plan), *fault_notes(asked, plan)]
            for note in [] if quiet or as_json else notes:
                progress.say(f"note: {note}")
            return narrate(plan, progress.say, simulated=asked.evaluated) if verbose else ignore

        finished = carry_out(asked, settings, target=target, watcher=progress, on_plan=on_plan)
    with printing_what_is_in(finished.folder):
        if as_json:
            click.echo(json.dumps(finished.document, allow_nan=False))
        elif not quiet:
            console = stdout_console()
            print_result(console, finished.result, source_name=finished.loaded.name)
            if finished.folder is not None:
                written = f"written: {finished.folder}/{', '.join(finished.files)}"
                console.print(line(written), markup=False, soft_wrap=True)
