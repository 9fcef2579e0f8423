"""One run with all that it leaves behind: charges in a ledger, a result folder, a trace; or only why it failed.

    with recorded_run(plan, target=..., ledger=..., ...) as run:
        release = ...                                   # charges run.journal, reports to run.recorder
        run.write(target, document, release, labels)

Before the block there is room on the disk and the run's cost is reserved in the ledger. When it ends well, the ledger
says released. When it fails, the charges so far stay, the ledger says failed, nothing is half written, and the trace
that was asked for lies beside where the folder would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhist.protocol.events import RunEnded
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.rounds import Labels
from fedhist.server.disk import first_free, held_off, new_folder
from fedhist.server.ledger.runs import charged
from fedhist.server.releases.contract import Release
from fedhist.server.result_folder import check_room, write_results
from fedhist.server.trace import TRACE_FILE, Recorder, write_trace


@dataclass(frozen=True)
class RecordedRun:
    """A run under way.

    Args:
        recorder: an observer that keeps what happens.
        journal: charges the ledger, before a mechanism draws noise; None without a ledger.
        engine: where the devices are.
        trace: whether the folder gets a trace.
    """

    recorder: Recorder
    journal: Callable[[Charge], None] | None
    engine: str
    trace: bool

    def write(
        self,
        target: Path,
        document: dict[str, Any],
        release: Release,
        labels: Labels | None,
        *,
        also: Iterable[Callable[[Path], list[str]]] = (),
    ) -> list[str]:
        """Write the result folder, all of it or none of it; the names of its files.

        Args:
            target: the new folder.
            document: what result.json holds.
            release: what was released.
            labels: what the items are called; None for numbers.
            also: each writes more files into the folder that it is given, and returns their names.
        """
        written = ["result.json", "histogram.csv", "plan.json"]
        with new_folder(target) as folder:
            write_results(folder, document, release, labels)
            if self.trace:
                self.recorder(RunEnded(outcome="released", reason=None))
                write_trace(folder / TRACE_FILE, self.recorder, engine=self.engine)
                written.append(TRACE_FILE)
            for write_more in also:
                written += write_more(folder)
        return written


@contextmanager
def recorded_run(
    plan: Plan,
    *,
    target: Path | None,
    labels: Labels | None,
    ledger: Path | None,
    label: str,
    trace: bool,
    engine: str,
    simulated: bool,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[RecordedRun]:
    """Everything around a run. `check_target` comes earlier, before its data is read.

    Args:
        plan: what will be run.
        target: the folder to write; None writes none.
        labels: names that need room in it; None where their number would reveal data.
        ledger: the file to charge, made if missing; None charges none.
        label: what the ledger calls the data.
        trace: whether to write a trace, beside the target if the run fails.
        engine: where the devices are, for the trace.
        simulated: whether the trace may hold what only a simulation knows.
        tell: called with where the trace of a failed run lies.
    """
    if target is not None:
        check_room(target, plan, labels)
    recorder = Recorder(plan, simulated=simulated)
    try:
        with charged(ledger, plan, label=label) as journal:
            yield RecordedRun(recorder, journal, engine, trace)
    except BaseException as error:
        if trace and target is not None and recorder.lines:
            if isinstance(recorder.lines[-1][1], RunEnded):
                # It had released, and then the folder could not be written: a trace has one end.
                recorder.lines.pop()
            recorder(RunEnded(outcome="failed", reason=type(error).__name__))
            with held_off(), suppress(OSError):
                path = first_free(
                    lambda number: target.with_name(f"{target.name}.failed{number}-{TRACE_FILE}")
                )
                write_trace(path, recorder, engine=engine)
                tell(f"the trace of the failed run: {path}")
        raise
