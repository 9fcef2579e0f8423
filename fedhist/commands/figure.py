"""`fedhist figure`: a chart of a report as SVG or PNG, for papers."""

from __future__ import annotations

from pathlib import Path

import click

from fedhist.client.files.new_files import check_new_file
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH
from fedhist.commands.terminal import echo
from fedhist.protocol.errors import InvalidInput

_WITHHELD = {
    "bytes": "over an open domain sizes depend on the data, and only a simulation with the truth has them",
    "seconds": "times depend on the data, and only a simulation with the truth has them",
}


@click.command(
    cls=Command, examples=("fedhist figure fedhist-run-20260102-150405 released --out released.svg",)
)
@click.argument("folder", type=PATH)
@click.argument("name")
@click.option("--out", type=PATH, required=True, metavar="FILE", help="A new .svg or .png file.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def figure(folder: Path, name: str, out: Path, force: bool) -> None:
    """Draw one chart of a run as SVG or PNG, for a paper.

    NAME is released, curve, scores, users, budget, bytes or seconds. Only a simulation with the truth has the charts
    curve, scores, users and seconds and, over an open domain without masking, bytes.
    """
    from fedhist.simulations.figures.painting import FORMATS, write_figure_file
    from fedhist.simulations.report.charts import CHART_NAMES, run_charts
    from fedhist.simulations.report.run_data import read_run

    check_new_file(out, suffixes=FORMATS, force=force)
    if name not in CHART_NAMES:
        raise InvalidInput(f"there is no chart {name!r}", allowed=", ".join(CHART_NAMES))
    charts = run_charts(read_run(folder))
    if name not in charts:
        raise InvalidInput(
            f"this run has nothing to show in the chart {name!r}",
            allowed=", ".join(charts),
            advice=_WITHHELD.get(
                name, "curve, scores and users need a simulation with the truth and its simulation.json"
            ),
        )
    write_figure_file([charts[name]], out, force=force)
    echo(f"written: {out}")
