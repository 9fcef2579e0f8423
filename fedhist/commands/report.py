"""`fedhist report`: a result folder as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH
from fedhist.commands.plugin_option import plugin_option
from fedhist.commands.progress import progress_on
from fedhist.commands.terminal import echo


@click.command(cls=Command, examples=("fedhist report fedhist-run-20260102-150405 --out report.html",))
@click.argument("folder", type=PATH)
@plugin_option
@click.option("--out", type=PATH, metavar="FILE", help="A new file. [default: FOLDER/report.html]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def report(folder: Path, out: Path | None, force: bool, quiet: bool) -> None:
    """Write a result folder as one self-contained HTML page.

    FOLDER is that of a run, or of 'fedhist compare' or 'fedhist paper'. The page needs no network. Values that a
    simulation computed from the exact data are marked. The page of a deployment shows only the release and its cost.
    """
    from fedhist.simulations.workbench.reporting import write_page

    with progress_on(sys.stderr, quiet=quiet) as progress:
        progress.phase("report")
        written = write_page(folder, folder / "report.html" if out is None else out, force=force)
    if not quiet:
        echo(f"written: {written} ({written.stat().st_size:,} bytes)")
