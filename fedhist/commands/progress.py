"""Progress on a terminal, by phase; nothing at all when the output is not one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from fedhist.commands.terminal import echo, line
from fedhist.protocol.events import Event, Heard, Read
from fedhist.simulations.experiments.choices import Counting
from fedhist.simulations.workbench.watching import LEFT_OUT, Watcher

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import Task

PHASES = {
    "population": "reading the population",
    "engine": "starting or stopping the nodes",
    "plan": "checking the plan",
    "select": "round 1: statistics, private choice of the threshold",
    "release": "round 2: clipped histograms, noise",
    "account": "composing the privacy ledger",
    "truth": "measuring against the truth",
    "write": "writing the result",
    "report": "writing the report",
    "predict": "predicting runs",
}


PASSES = {
    "read": "pass 1 of 2 over the table: reading rows",
    "group": "pass 2 of 2 over the table: adding up by user",
}


class Progress(Watcher, Counting):
    """Progress without a bar, for pipes and files."""

    def say(self, text: str) -> None:
        """A line of its own."""
        echo(text, err=True)

    def left_out(self, rows: int) -> None:
        """The same for rows without a value."""
        self.say(LEFT_OUT % rows)


class NoProgress(Progress):
    """Says nothing at all."""

    def say(self, text: str) -> None:
        """Not even a line."""


class TerminalProgress(Progress):
    """One bar for the phase that runs, gone at the end."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("starting", total=None, unit="")
        self._pass = ""

    def phase(self, name: str) -> None:
        """Start the bar of this phase."""
        self._pass = ""
        # A new one each time: a bar can't forget what it counted.
        self._bars.remove_task(self._task)
        self._task = self._bars.add_task(PHASES.get(name, name), total=None, unit="")

    def reading(self, stage: str, done: int, total: int) -> None:
        """Name the pass over a table, and move the bar on."""
        if self._pass != stage:
            self.phase(PASSES[stage])
            self._pass = stage
        self._bars.update(
            self._task,
            total=total,
            completed=done,
            unit="rows" if stage == "read" else "parts",
            refresh=True,
        )

    def observe(self, event: Event) -> None:
        """Nodes that have answered, and users that have been read, move the bar on."""
        if isinstance(event, Heard):
            self.count(event.answered, event.asked, unit="nodes")
        elif isinstance(event, Read):
            self.count(event.users, event.of, unit="users")

    def count(self, done: int, total: int, *, unit: str) -> None:
        """Progress as done of total; a full bar is shown before the next phase takes its place."""
        self._bars.update(self._task, total=total, completed=done, unit=unit, refresh=done == total)

    def begin(self, total: int, left: int) -> None:
        """Show the bar from where an earlier run stopped."""
        self._bars.reset(self._task, total=total, completed=total - left)

    def advance(self) -> None:
        """Move the bar on."""
        self._bars.advance(self._task)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._bars.console.print(line(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_on(stream: TextIO, *, quiet: bool = False, as_json: bool = False) -> Iterator[Progress]:
    """A bar on this stream if it is a terminal, and not with `quiet`; `as_json` says nothing to a program."""
    if quiet or not stream.isatty():
        yield NoProgress() if quiet or as_json else Progress()
        return
    with _bars_on(stream) as bars:
        yield TerminalProgress(bars)


def _bars_on(stream: TextIO) -> Bars:
    """Bars that show the phase, how much of it is done, at which rate, for how long, and how much longer."""
    from rich import progress as rich_progress
    from rich.console import Console
    from rich.text import Text

    class Rate(rich_progress.ProgressColumn):
        """Pieces a second."""

        def render(self, task: Task) -> Text:
            """Nothing while there is nothing to count."""
            speed = task.finished_speed or task.speed
            return Text("" if not speed or task.total is None else f"{speed:,.4g}/s")

    console = Console(file=stream)
    return rich_progress.Progress(
        rich_progress.SpinnerColumn("dots" if console.encoding.startswith("utf") else "line"),
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=24),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[unit]}"),
        Rate(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )
