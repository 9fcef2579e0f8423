"""`fedhist trace`: what happened in a run, as a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedhist.commands.option_groups import Group
from fedhist.commands.plugin_option import plugin_option
from fedhist.commands.terminal import echo, echo_as_it_is, line
from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from fedhist.protocol.events import Event, Viewed
    from fedhist.server.trace_file import Trace

_COLOURS = {"state": "cyan", "charge": "yellow", "drop-out": "red", "scores": "magenta", "view": "magenta"}
_MARGIN = " " * 14


@click.group(cls=Group, examples=("fedhist run --trace --out traced", "fedhist trace show traced"))
def trace() -> None:
    """Show what happened in a run: states, messages, drop-outs, charges."""


@trace.command(
    examples=(
        "fedhist run --trace --out traced",
        "fedhist trace show traced",
        "# every message of many participants",
        "fedhist trace show traced --every-message",
        "# what the third node did in the first round",
        "fedhist trace show traced --round select --participant 'node 3'",
    )
)
@click.argument("run", type=click.Path(path_type=Path))
@plugin_option
@click.option(
    "--round", "round_", type=click.Choice(["discover", "select", "release"]), help="This round only."
)
@click.option("--participant", metavar="ID", help="This participant only, such as 'node 3', or just 3.")
@click.option(
    "--every-message", is_flag=True, help="A line for each message and drop-out of many participants too."
)
def show(run: Path, round_: str | None, participant: str | None, every_message: bool) -> None:
    """Print the timeline of a run that was traced with --trace.

    RUN is a result folder, or a trace file. Messages of more than 4 participants are said together: who answered, and
    who dropped out why.
    """
    from fedhist.protocol.events import Viewed
    from fedhist.server.trace_file import TRACE_FILE, read_trace
    from fedhist.simulations.report.timeline import TraceLine, timeline

    read = read_trace(run / TRACE_FILE if run.is_dir() else run)
    wanted = None if participant is None else _participant(read, participant)
    plan = read.plan
    echo(
        f"{run}: plan {plan.digest.hex()[:16]}, {plan.users:,} users, engine {read.engine}, "
        f"{'simulation' if read.simulated else 'nothing but what is released'}"
    )
    asked_for = [
        TraceLine(number, at, event)
        for number, (at, event) in enumerate(read.lines, start=1)
        if _is_asked_for(event, round_, wanted)
    ]
    lines = list(timeline(asked_for, plan, every_message=every_message or wanted is not None))
    for (number, at, event), words in lines:
        when = f"{number:10,}.   " if at is None else f"{at:10.4f} s  "
        echo_as_it_is(when + click.style(line(words), fg=_COLOURS.get(event.kind)))
        for row in _view_lines(event) if isinstance(event, Viewed) else ():
            echo_as_it_is(_MARGIN + row)
    fewer = "" if len(lines) == len(asked_for) else f" in {len(lines):,} lines; --every-message prints each"
    click.echo(f"{len(asked_for):,} of {len(read.lines):,} events{fewer}")


def _is_asked_for(event: Event, round_: str | None, participant: str | None) -> bool:
    from fedhist.protocol.events import Charged

    of_round = event.charge["round"] if isinstance(event, Charged) else getattr(event, "round", None)
    if participant is not None and getattr(event, "participant", None) != participant:
        return False
    return round_ is None or of_round == round_


def _participant(read: Trace, name: str) -> str:
    """The participant of this name, or of this number."""
    found = (getattr(event, "participant", None) for event in read.events)
    known = list(dict.fromkeys(one for one in found if one is not None))
    for one in known:
        if name in (one, one.partition(" ")[2]):
            return str(one)
    asked = [one for one in known if not one.endswith(" user")]
    allowed = f"'{asked[0]}' to '{asked[-1]}'" if asked else "none, since this trace names no participant"
    raise InvalidInput(
        f"the trace has no participant {name!r}",
        allowed=allowed,
        advice="a trace of many participants names only the first few",
    )


def _view_lines(view: Viewed) -> Iterator[str]:
    """What the device had and what the server saw, side by side."""
    from fedhist.display.visible_text import visible
    from fedhist.simulations.report.charts import number
    from fedhist.simulations.report.timeline import VIEW_WORDS

    heads = (["the user has"] if view.data is not None else []) + [*VIEW_WORDS[view.masked][1:]]
    yield " " * 24 + "".join(f"{head:>28}" for head in heads)
    for place, name in enumerate(view.places):
        columns = (view.had, view.seen) if view.data is None else (view.data, view.had, view.seen)
        yield f"{visible(name, 24):24}" + "".join(f"{number(column[place]):>28}" for column in columns)
