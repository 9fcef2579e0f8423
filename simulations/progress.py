"""Progress on a terminal, by phase; nothing at all when the output is not one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from fedhist.protocol.histograms import Histograms, Population, labels_of

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

PHASES = {
    "population": "reading the population",
    "engine": "starting or stopping the nodes",
    "plan": "checking the plan",
    "select": "round 1: statistics, private choice of the threshold",
    "release": "round 2: clipped histograms, noise",
    "account": "composing the privacy ledger",
    "truth": "measuring against the truth",
    "write": "writing the result",
    "predict": "predicting runs",
}


class Progress:
    """Says nothing. The form for pipes and files."""

    def trial(self, number: int, trials: int) -> None:
        """One of several runs begins; the first has number 1."""

    def phase(self, name: str) -> None:
        """A phase begins."""

    def watch(self, population: Population) -> Population:
        """The population, told as it is read."""
        return population


class TerminalProgress(Progress):
    """One bar for the phase that runs, gone at the end."""

    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars, self._task = bars, task
        self._prefix = ""

    def trial(self, number: int, trials: int) -> None:
        """Put the trial before the phase."""
        self._prefix = f"trial {number} of {trials}, " if trials > 1 else ""

    def phase(self, name: str) -> None:
        """Start the bar of this phase."""
        self._bars.reset(self._task, total=None, description=self._prefix + PHASES.get(name, name))

    def watch(self, population: Population) -> Population:
        """The population, each shard moving the bar on."""
        return _Watched(population, self._bars, self._task)


@dataclass(frozen=True)
class _Watched:
    population: Population
    bars: Bars
    task: TaskID

    @property
    def users(self) -> int:
        return self.population.users

    @property
    def domain_size(self) -> int:
        return self.population.domain_size

    @property
    def labels(self) -> Sequence[str | int] | None:
        return labels_of(self.population)

    def shards(self) -> Iterator[Histograms]:
        self.bars.update(self.task, total=self.population.users, completed=0)
        for shard in self.population.shards():
            yield shard
            self.bars.advance(self.task, shard.users)


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """A bar on this stream if it is a terminal."""
    if not stream.isatty():
        yield Progress()
        return
    from rich.console import Console  # noqa: PLC0415 - loads for a terminal only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    description = TextColumn("{task.description}")
    columns = (SpinnerColumn(), description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(file=stream), transient=True) as bars:
        yield TerminalProgress(bars, bars.add_task("starting", total=None))


class Counting:
    """Counts finished pieces and says nothing. The form for pipes and files."""

    def begin(self, total: int, left: int) -> None:
        """So many pieces in all, so many of them still to do."""

    def advance(self) -> None:
        """One more is done."""


class TerminalCounting(Counting):
    """One bar with the time that is left, gone at the end."""

    def __init__(self, bars: Bars, what: str) -> None:
        self._bars, self._what = bars, what
        self._task = bars.add_task(what, total=None)

    def begin(self, total: int, left: int) -> None:
        """Show the bar from where an earlier run stopped."""
        self._bars.reset(self._task, total=total, completed=total - left)

    def advance(self) -> None:
        """Move the bar on."""
        self._bars.advance(self._task)


@contextmanager
def counting_on(stream: TextIO, what: str) -> Iterator[Counting]:
    """A counting bar on this stream if it is a terminal."""
    if not stream.isatty():
        yield Counting()
        return
    from rich.console import Console  # noqa: PLC0415 - loads for a terminal only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(file=stream), transient=True) as bars:
        yield TerminalCounting(bars, what)
