"""`fedhist compare`: methods side by side, over data sets, settings and trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fedhist.commands.cli import EXIT_INTERRUPTED
from fedhist.commands.compare_summary import print_comparison
from fedhist.commands.data_options import columns_of
from fedhist.commands.progress import progress_on
from fedhist.commands.terminal import echo
from fedhist.protocol.errors import NotWritten
from fedhist.server.disk import why_refused
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.experiments.sources import Sources, names_of
from fedhist.simulations.workbench.compare import grid_of, run_comparison


def compare_here(flags: dict[str, Any]) -> None:
    """Check everything, run all trials, write and print."""
    own = {
        name: flags.pop(name) for name in ("trials", "seed", "workers", "engine", "ray_address", "best_by")
    }
    as_json, out = flags.pop("as_json"), flags.pop("out")
    if out is None and not as_json:
        out = Path(f"fedhist-compare-{datetime.now():%Y%m%d-%H%M%S}")
    nodes = flags.pop("nodes")
    sources = _sources(flags)
    grid = grid_of(selectors=flags.pop("selectors"), settings=flags, participants=nodes)
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
    """After Ctrl-C or a full disk inside, the journal stays as it is and the message says how to go on.

    Without a folder of the user's, `working_folder` reports what the disk refused.
    """
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
