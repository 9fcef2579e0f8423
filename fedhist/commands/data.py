"""`fedhist data`: the synthetic populations."""

from __future__ import annotations

import json

import click

from fedhist.commands.option_groups import Group
from fedhist.commands.terminal import echo


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
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
