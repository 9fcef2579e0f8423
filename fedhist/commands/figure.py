"""`fedhist figure`: a chart of a report as SVG or PNG, for papers."""

from __future__ import annotations

from pathlib import Path

import click

from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH
from fedhist.commands.plugin_option import plugin_option
from fedhist.commands.terminal import echo
from fedhist.server.disk import check_new_file


@click.command(
    cls=Command, examples=("fedhist figure fedhist-run-20260102-150405 released --out released.svg",)
)
@click.argument("folder", type=PATH)
@plugin_option
@click.argument("name")
@click.option("--out", type=PATH, required=True, metavar="FILE", help="A new .svg or .png file.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def figure(folder: Path, name: str, out: Path, force: bool) -> None:
    """Draw one chart of a run as SVG or PNG, for a paper.

    NAME is released, curve, scores, chances, users, budget, bytes or seconds. Only an evaluated run has the charts
    curve, scores, chances, users and seconds and, over an open domain without masking, bytes.
    """
    from fedhist.simulations.report.plot import FORMATS, draw, write_figure

    check_new_file(out, suffixes=FORMATS, force=force)
    write_figure(draw(folder, name), out, force=force)
    echo(f"written: {out}")
