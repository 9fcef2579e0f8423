"""`fedhist demo-deployment`: a real Flower deployment on this machine, from example data to the release."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, plan_options
from fedhist.commands.terminal import echo, printing_what_is_in
from fedhist.display.visible_text import visible

if TYPE_CHECKING:
    from fedhist.simulations.report.run import RunData

_RUN_SECONDS = 300.0


@click.command(
    "demo-deployment",
    cls=Command,
    context_settings={"show_default": True},
    examples=(
        "# five nodes with 1000 users each, which mask what they send",
        "fedhist demo-deployment --nodes 5 --users 1000 --masking secagg --out demo",
    ),
)
@click.option("--nodes", type=click.IntRange(1, 20), default=3, help="The number of SuperNodes to start.")
@click.option(
    "--users",
    type=click.IntRange(1, 100_000),
    default=2000,
    help="The number of synthetic users on each node.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="FOLDER",
    help="A new folder for the result. Without it, the release is only printed.",
)
@click.option(
    "--keep",
    type=PATH,
    metavar="FOLDER",
    help="A new folder that keeps data and logs. Without it, they are in a temporary one and removed.",
)
@plan_options("masking", masking={"type": click.Choice(["none", "secagg"])})
def demo_deployment(nodes: int, users: int, out: Path | None, keep: Path | None, masking: str) -> None:
    """Start a SuperLink and SuperNodes on this machine, run both rounds, print the release, stop everything.

    All of it listens on the loopback interface, on free ports, and sends no telemetry. Each node reads example data
    from a file of its own.
    """
    from fedhist.server.disk import check_target
    from fedhist.server.flower import read_settings
    from fedhist.simulations.deployment import open_deployment, write_app, write_example
    from fedhist.simulations.report.run import read_run

    for target in (out, keep):
        check_target(target)
    if keep is not None:
        # It holds the nodes' secrets.
        keep.mkdir(mode=0o700)
    temporary = tempfile.TemporaryDirectory(prefix="fedhist-demo-", ignore_cleanup_errors=True)
    with temporary if keep is None else nullcontext(str(keep)) as name:
        folder = Path(name).resolve()
        result = folder / "result" if out is None else out.resolve()
        settings, configs = write_example(folder, nodes=nodes, users=users, masking=masking)
        # Both rounds have to fit into the time, also when each waits for a node that has died.
        settings |= {"timeout": _RUN_SECONDS / 3, "out": str(result)}
        read_settings(settings)
        app = write_app(folder / "app", settings)
        with open_deployment(folder, configs, tell=lambda text: echo(text, err=True)) as deployment:
            run = deployment.submit(app)
            echo(f"run {run}: two rounds over {nodes} nodes, a process for every answer", err=True)
            deployment.wait(run, seconds=_RUN_SECONDS)
        with printing_what_is_in(out):
            _print(read_run(result))


def _print(data: RunData) -> None:
    from fedhist.commands.summary import epsilon_text, stdout_console
    from fedhist.simulations.experiments.tables import print_rows

    document = data.document
    console = stdout_console()
    for name, report in document["rounds"].items():
        console.print(
            f"round {name}: {report['answered']} of {report['nodes']} nodes, "
            f"{report['users']:,} of {document['plan']['users']:,} users"
        )
    console.print(f"threshold {document['threshold']:,.4g}, chosen by {document['plan']['selector']}")
    numbers = {"estimate": "estimate", "at_least": "at least", "value": "value"}
    rows = [
        {
            "item": visible(label),
            "estimate": f"{data.estimates[row]:,.1f}",
            "at_least": f"{data.at_least[row]:,.1f}",
            "value": f"{data.values[row]:,.1f}",
        }
        for row, label in enumerate(data.labels)
    ]
    print_rows("released histogram", rows, {"item": "item", **numbers}, text=("item",))
    total = document["total"]
    console.print(f"cost: epsilon {epsilon_text(total['epsilon'])}, delta {total['delta']:.3g}")
