"""`fedhist run`: both rounds over a population on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fedhist.commands.data_options import columns_of
from fedhist.commands.progress import progress_on
from fedhist.commands.summary import print_result, stdout_console
from fedhist.commands.terminal import line, printing_what_is_in
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.plan import Plan
from fedhist.server.advice import plan_notes
from fedhist.server.result_folder import default_folder
from fedhist.simulations.report.timeline import narrate
from fedhist.simulations.workbench.carrying_out import Asked, Finished, carry_out
from fedhist.simulations.workbench.checks import fault_notes


def run_here(flags: dict[str, Any]) -> None:
    """Run what the flags say, and print what came of it."""
    shown = {name: flags.pop(name) for name in ("as_json", "quiet", "verbose", "out")}
    if flags["trace"] and shown["as_json"] and shown["out"] is None:
        raise InvalidInput(
            "--trace has no folder to write to", allowed="--trace with --out, or without --json"
        )
    if shown["quiet"] and shown["verbose"]:
        raise InvalidInput("--quiet and --verbose contradict each other", allowed="one or the other")
    asked = Asked(
        columns=columns_of(flags),
        **{one.name: flags.pop(one.name) for one in fields(Asked) if one.name in flags},
    )
    started = datetime.now()

    def target() -> Path | None:
        return shown["out"] if shown["out"] is not None or shown["as_json"] else default_folder(started)

    with progress_on(sys.stderr, quiet=shown["quiet"], as_json=shown["as_json"]) as progress:

        def on_plan(plan: Plan) -> Observer:
            notes = [*plan_notes(plan), *fault_notes(asked, plan)]
            for note in [] if shown["quiet"] or shown["as_json"] else notes:
                progress.say(f"note: {note}")
            return narrate(plan, progress.say, simulated=asked.evaluated) if shown["verbose"] else ignore

        finished = carry_out(asked, flags, target=target, watcher=progress, on_plan=on_plan)
    with printing_what_is_in(finished.folder):
        if shown["as_json"]:
            click.echo(json.dumps(finished.document, allow_nan=False))
        elif not shown["quiet"]:
            _print(finished)


def _print(finished: Finished) -> None:
    console = stdout_console()
    result, loaded = finished.result, finished.loaded
    print_result(console, result, source_name=loaded.name)
    if finished.folder is not None:
        written = f"{finished.folder}/{', '.join(finished.files)}"
        console.print(line(f"written: {written}"), markup=False, soft_wrap=True)
