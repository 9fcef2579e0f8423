"""`fedhist new`: a Flower app to start from."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import click

from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH
from fedhist.commands.terminal import echo
from fedhist.protocol.errors import InvalidInput
from fedhist.server.disk import new_folder, write_text

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
