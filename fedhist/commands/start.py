"""`fedhist new`, `demo-deployment` and `data`: what to start from."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import nullcontext
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedhist.commands.options import PATH, Command, Group, options
from fedhist.commands.terminal import echo, printing_what_is_in
from fedhist.display.text import visible
from fedhist.protocol.errors import InvalidInput
from fedhist.server.disk import new_folder, write_text

if TYPE_CHECKING:
    from fedhist.simulations.report.run import RunData

_NAME = re.compile(r"(?!(?i:flwr)$)[A-Za-z]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?", re.ASCII)
_NAME_IN_TEMPLATE = "histogram-app"
_FOLDER = "histogram_app"
_FILES = ("pyproject.toml", "README.md", "LICENSE")


@click.command(
    cls=Command,
    examples=(
        "# an app in the folder visits-app",
        "fedhist new visits-app",
    ),
)
@click.argument("folder", type=PATH)
def new(folder: Path) -> None:
    """Write a Flower app that releases a private histogram, to start from.

    FOLDER is a new folder; its name is the app's. The app runs as it is, in a simulation with 'flwr run' and in a
    deployment, and its README says how.
    """
    name = folder.name
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"the app would be called {name!r}",
            allowed="a letter, then up to 31 letters, digits and hyphens, no hyphen at the end, and not flwr",
        )
    template = files("fedhist") / "template"
    with new_folder(folder) as made:
        (made / _FOLDER).mkdir()
        sources = [*(template / place for place in _FILES), *(template / _FOLDER).iterdir()]
        for source in sources:
            if source.name in _FILES or source.name.endswith(".py"):
                text = source.read_text(encoding="utf-8").replace(_NAME_IN_TEMPLATE, name)
                write_text(made / ("" if source.name in _FILES else _FOLDER) / source.name, text)
    # Flower's programs call each other by name, and its simulations need Ray.
    activate = Path(sys.executable).with_name("activate")
    steps = {
        f". {shlex.quote(str(activate))}": activate.exists()
        and shutil.which("flwr") != str(activate.with_name("flwr")),
        "pip install 'flwr[simulation]>=1.41,<1.43'": find_spec("ray") is None,
        f"flwr run {shlex.quote(str(folder))} local --stream": True,
    }
    echo(f"written: {folder}")
    echo(f"next: {' && '.join(step for step, wanted in steps.items() if wanted)}")


_RUN_SECONDS = 300.0


@click.command(
    "demo-deployment",
    cls=Command,
    examples=(
        "# five nodes with 1000 users each, which mask what they send",
        "fedhist demo-deployment --nodes 5 --users 1000 --masking secagg --out demo",
    ),
)
@options(
    *("nodes", "users", "out", "keep", "masking"),
    nodes={"type": click.IntRange(1, 20), "default": 3, "help": "The number of SuperNodes to start."},
    users={
        "type": click.IntRange(1, 100_000),
        "default": 2000,
        "help": "The number of synthetic users on each node.",
    },
    out={
        "metavar": "FOLDER",
        "help": "A new folder for the result. Without it, the release is only printed.",
    },
    masking={"type": click.Choice(["none", "secagg"])},
)
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
            _print_run(read_run(result))


def _print_run(data: RunData) -> None:
    from fedhist.commands.summary import epsilon_text, stdout_console
    from fedhist.display.tables import print_rows

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


@click.group(cls=Group, examples=("fedhist data list",))
def data() -> None:
    """Synthetic populations, for experiments."""


@data.command(
    "list",
    examples=(
        "fedhist data list",
        "fedhist run --data 'synthetic:heavy-tailed?users=1000&items=50'",
    ),
)
@options("as_json")
def list_(as_json: bool) -> None:
    """List the synthetic populations and their parameters."""
    from fedhist.simulations.datasets.registry import DATASETS, PREFIX

    if as_json:
        document = {
            name: {"line": one.line, "parameters": dict(one.defaults)} for name, one in DATASETS.items()
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    for name, one in DATASETS.items():
        query = "&".join(f"{key}={value}" for key, value in one.defaults.items())
        echo(f"{PREFIX}{name}?{query}")
        echo(f"    {one.line}")
