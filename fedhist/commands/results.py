"""`fedhist report`, `figure` and `trace`: what a run left behind, as a page, a chart and a timeline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedhist.commands.options import PATH, Command, Group, options
from fedhist.commands.terminal import echo, echo_as_it_is, line
from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from fedhist.protocol.events import Event, Viewed
    from fedhist.server.trace import Trace

_COLOURS = {"state": "cyan", "charge": "yellow", "drop-out": "red", "scores": "magenta", "view": "magenta"}
_MARGIN = " " * 14


@click.command(cls=Command, examples=("fedhist report fedhist-run-20260102-150405 --out report.html",))
@click.argument("folder", type=PATH)
@options(
    *("plugin", "out", "force", "quiet"),
    out={"metavar": "FILE", "help": "A new file. [default: FOLDER/report.html]"},
    quiet={"help": "Print nothing but errors."},
)
def report(folder: Path, out: Path | None, force: bool, quiet: bool) -> None:
    """Write a result folder as one self-contained HTML page.

    FOLDER is that of a run, or of 'fedhist compare' or 'fedhist paper'. The page needs no network. Values that a
    simulation computed from the exact data are marked. The page of a deployment shows only the release and its cost.
    """
    from fedhist.commands.progress import progress_on
    from fedhist.simulations.workbench.reporting import write_page

    with progress_on(sys.stderr, quiet=quiet) as progress:
        progress.phase("report")
        written = write_page(folder, folder / "report.html" if out is None else out, force=force)
    if not quiet:
        echo(f"written: {written} ({written.stat().st_size:,} bytes)")


@click.command(
    cls=Command, examples=("fedhist figure fedhist-run-20260102-150405 released --out released.svg",)
)
@click.argument("folder", type=PATH)
@click.argument("name")
@options(
    *("plugin", "out", "force"), out={"metavar": "FILE", "required": True, "help": "A new .svg or .png file."}
)
def figure(folder: Path, name: str, out: Path, force: bool) -> None:
    """Draw one chart of a run as SVG or PNG, for a paper.

    NAME is released, curve, scores, chances, users, budget, bytes or seconds. Only an evaluated run has the charts
    curve, scores, chances, users and seconds and, over an open domain without masking, bytes.
    """
    from fedhist.server.disk import check_new_file
    from fedhist.simulations.report.plot import FORMATS, draw, write_figure

    check_new_file(out, suffixes=FORMATS, force=force)
    write_figure(draw(folder, name), out, force=force)
    echo(f"written: {out}")


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
@click.argument("run", type=PATH)
@options("plugin", "round_", "participant", "every_message")
def show(run: Path, round_: str | None, participant: str | None, every_message: bool) -> None:
    """Print the timeline of a run that was traced with --trace.

    RUN is a result folder, or a trace file. Messages of more than 4 participants are said together: who answered, and
    who dropped out why.
    """
    from fedhist.protocol.events import Viewed
    from fedhist.server.trace import TRACE_FILE, read_trace
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
    from fedhist.display.text import visible
    from fedhist.simulations.report.charts import number
    from fedhist.simulations.report.timeline import VIEW_WORDS

    heads = (["the user has"] if view.data is not None else []) + [*VIEW_WORDS[view.masked][1:]]
    yield " " * 24 + "".join(f"{head:>28}" for head in heads)
    for place, name in enumerate(view.places):
        columns = (view.had, view.seen) if view.data is None else (view.data, view.had, view.seen)
        yield f"{visible(name, 24):24}" + "".join(f"{number(column[place]):>28}" for column in columns)
