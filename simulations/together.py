"""Several simulated runs over the same users: one after another, or with one masking session for the same round of all.

A run that fails leaves the others alone. What it charged stays charged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.coordinator import answered
from fedhist.simulations.engines.contract import SimulatedTransport
from fedhist.simulations.engines.in_process import InProcess, total_together
from fedhist.simulations.simulation import Result

Run = Generator[tuple[SimulatedTransport, Request], Total, Result]
"""What `simulating` makes."""


def one_by_one(
    runs: Mapping[str, Run], *, begin: Callable[[str], None] = lambda name: None
) -> dict[str, Result | RoundFailed]:
    """Each run's result, or why it failed.

    Args:
        runs: by name.
        begin: called with a run's name before it starts.
    """
    outcomes: dict[str, Result | RoundFailed] = {}
    for name, run in runs.items():
        begin(name)
        try:
            outcomes[name] = answered(run, lambda asked: asked[0].total(asked[1]))
        except RoundFailed as failure:
            outcomes[name] = failure
    return outcomes


def in_joint_sessions(runs: Mapping[str, Run]) -> dict[str, Result | RoundFailed]:
    """Each masked run's result, or why it failed; all that are asked for the same round share its masking session."""
    together = _Together(runs)
    try:
        together.start()
        while together.waiting:
            # A run that finds its items first has a round more: the others wait for it.
            due = min((request.round for _, request in together.waiting.values()), key=[*Round].index)
            together.ask(due)
    finally:
        for run in runs.values():
            run.close()
    return {name: together.outcomes[name] for name in runs}


class _Together:
    """Runs that go on side by side."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs
        self.waiting: dict[str, tuple[InProcess, Request]] = {}
        self.outcomes: dict[str, Result | RoundFailed] = {}

    def start(self) -> None:
        """Every run up to its first request."""
        for name, run in self._runs.items():
            self._go_on(name, partial(next, run))

    def ask(self, round_: Round) -> None:
        """One masking session for all that wait for this round."""
        due = {name: asked for name, asked in self.waiting.items() if asked[1].round is round_}
        try:
            totals = total_together(list(due.values()))
        except RoundFailed as failure:
            # There is no sum of anything.
            totals = [partial(_raised, failure)] * len(due)
        for name, total in zip(due, totals, strict=True):
            del self.waiting[name]
            self._go_on(name, partial(_sent, self._runs[name], total))

    def _go_on(self, name: str, step: Callable[[], tuple[SimulatedTransport, Request]]) -> None:
        try:
            transport, request = step()
        except StopIteration as end:
            self.outcomes[name] = end.value
        except RoundFailed as failure:
            self.outcomes[name] = failure
        else:
            assert isinstance(transport, InProcess)  # noqa: S101 - what the caller opened
            self.waiting[name] = (transport, request)


def _sent(run: Run, total: Callable[[], Total]) -> tuple[SimulatedTransport, Request]:
    """The run's next request after this total, or after the error in its place."""
    try:
        found = total()
    except RoundFailed as failure:
        return run.throw(failure)
    return run.send(found)


def _raised(failure: RoundFailed) -> Total:
    raise failure
