"""The options of masking, for commands that run a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import TABLE_TRUST

DEFAULT_PARTICIPANTS = 100

_OPTIONS = (
    click.option(
        "--masking",
        type=click.Choice(["none", "secagg", "secagg-signed"]),
        default="none",
        help="secagg: participants mask what they send, and the server learns sums only; signed: also if it lies.",
    ),
    click.option(
        "--noise-from",
        type=click.Choice(["server", "devices"]),
        default="server",
        help="With masking over a closed domain: participants add the noise in shares, so nobody sees an exact sum.",
    ),
    click.option(
        "--corrupt-share",
        type=float,
        default=0.05,
        metavar="S",
        help="With masking: which share of the participants may collude with the server.",
    ),
    click.option(
        "--dropout-share",
        type=float,
        default=0.10,
        metavar="S",
        help="With masking: which share of the participants may vanish in a round.",
    ),
    click.option(
        "--dropout",
        type=float,
        default=0.0,
        metavar="S",
        help="With masking: let this share of the participants vanish in each round, at every stage in turn.",
    ),
    click.option(
        "--table-capacity",
        type=int,
        default=16_384,
        metavar="N",
        help=f"Open domain with masking: how many distinct items surely fit into round 2. Note: {TABLE_TRUST}.",
    ),
    click.option(
        "--label-bytes",
        type=int,
        default=32,
        metavar="N",
        help="Open domain with masking: the longest item's bytes.",
    ),
)


def masking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def masking_settings(flags: dict[str, Any], *, nodes: int | None, users: int) -> dict[str, Any]:
    """The plan's fields; the number of participants is that of the nodes, or 100, or as many as there are users."""
    if flags["masking"] == "none":
        return flags
    return flags | {"participants": min(DEFAULT_PARTICIPANTS, users) if nodes is None else nodes}


def check_dropout(dropout: float, *, masking: str) -> None:
    """Refuse injected drop-outs that make no sense."""
    if not 0 <= dropout < 1:
        raise InvalidInput(f"--dropout is {dropout:g}", allowed="a number from 0 to below 1")
    if dropout and masking == "none":
        raise InvalidInput(
            "--dropout without masking", allowed="--dropout with --masking secagg or secagg-signed"
        )
