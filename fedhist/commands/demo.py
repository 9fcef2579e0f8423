"""`fedhist demo-deployment`: a real Flower deployment on this machine, from certificates to the release."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, plan_options, total_options
from fedhist.commands.terminal import echo, printing_what_is_in
from fedhist.display.visible_text import visible

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fedhist.simulations.report.run_data import RunData


@click.command(
    "demo-deployment",
    cls=Command,
    context_settings={"show_default": True},
    examples=(
        "# five nodes with 1000 users each, which mask what they send",
        "fedhist demo-deployment --nodes 5 --users 1000 --masking secagg --out demo",
    ),
)
@click.option("--nodes", type=int, default=3, metavar="N", help="The number of SuperNodes to start.")
@click.option(
    "--users", type=int, default=2000, metavar="N", help="The number of synthetic users on each node."
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
    help="A new folder that keeps data, keys and logs. Without it, they are in a temporary one and removed.",
)
@plan_options("masking")
@total_options()
@click.option(
    "--time-limit", type=float, default=300.0, metavar="S", help="The time that the run may take, in seconds."
)
def demo_deployment(  # noqa: PLR0917 - one for each option
    nodes: int,
    users: int,
    out: Path | None,
    keep: Path | None,
    masking: str,
    time_limit: float,
    total_epsilon: float | None,
    total_delta: float | None,
) -> None:
    """Start a SuperLink and SuperNodes on this machine, run both rounds, print the release, stop everything.

    Connections use TLS, and only nodes with registered keys are let in. All of it listens on the loopback
    interface, on free ports, and sends no telemetry. Each node reads example data from a file of its own.
    """
    from fedhist.server.result_folder import check_target
    from fedhist.simulations.deployment.demo import Demo, run_demo

    demo = Demo(
        nodes=nodes,
        users=users,
        seconds=time_limit,
        masking=masking,
        total_epsilon=total_epsilon,
        total_delta=total_delta,
    )
    # The processes that it starts begin in this folder.
    Path.cwd()
    for target in (out, keep):
        check_target(target)
    with _workspace(keep) as name:
        folder = Path(name).resolve()
        outcome = run_demo(
            demo,
            folder,
            out=folder / "result" if out is None else out.resolve(),
            tell=lambda text: echo(text, err=True),
        )
    with printing_what_is_in(out):
        _print(outcome)


def _workspace(keep: Path | None) -> AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="fedhist-demo-", ignore_cleanup_errors=True)
    # It holds private keys.
    keep.mkdir(mode=0o700)
    return nullcontext(str(keep))


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
