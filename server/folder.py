"""One run with all that it leaves behind: charges in a ledger, a result folder, a trace; or only why it failed.

    with recorded_run(plan, target=..., ledger=..., ...) as run:
        release = ...                                   # charges run.journal, reports to run.recorder
        run.write(target, document, release, labels)

Before the block there is room on the disk and the run's cost is reserved in the ledger. When it ends well, the ledger
says released. When it fails, the charges so far stay, the ledger says failed, nothing is half written, and the trace
that was asked for lies beside where the folder would be.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.events import RunEnded
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.rounds import Labels
from fedhist.server.disk import first_free, flush, held_off, new_folder, write_text
from fedhist.server.ledger.runs import charged
from fedhist.server.releases.contract import Release
from fedhist.server.report import why_not_private
from fedhist.server.trace import TRACE_FILE, Recorder, write_trace

NOT_PRIVATE_FILE = "NOT-PRIVATE.txt"
# For result.json and plan.json, and for the rows of an open domain, whose number nobody knows beforehand.
_ROOM_FOR_DOCUMENTS = 2**18
# Separators and numbers with all their digits, of the widest table.
_ROW_BYTES = 208
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def default_folder(now: datetime) -> Path:
    """A new name in the current folder: fedhist-run-20260131-235959, or that and a number if it is taken."""
    return first_free(lambda number: Path(f"fedhist-run-{now:%Y%m%d-%H%M%S}{number}"))


def check_room(target: Path, plan: Plan, labels: Sequence[str | int] | None) -> None:
    """Refuse a disk that has no room for the result, before anything is spent on it.

    The room is allocated in a file without a name and given back at once, so a disk that others fill in the meantime
    still fails late. Where the file system can't allocate, nothing is refused.
    """
    rows = len(labels) if labels is not None else plan.items or 0
    names = sum(len(str(label)) for label in labels or ())
    needed = _ROOM_FOR_DOCUMENTS + rows * _ROW_BYTES + names
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:
        return
    made = False
    try:
        with tempfile.TemporaryFile(dir=target.absolute().parent) as probe:
            made = True
            allocate(probe.fileno(), 0, needed)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise InvalidFile(
                f"there is no room for the folder {target} ({error.strerror}; it may need {needed:,} bytes)",
                allowed="a new folder on a disk with room",
                advice="nothing was spent on it; make room, or choose another folder",
                code="no-room",
            ) from None
        if not made:
            raise InvalidFile(
                f"can't write into {target.absolute().parent} ({error.strerror})",
                allowed="a new folder in an existing, writable one",
                advice="nothing was spent on it; choose another folder",
            ) from None


def write_results(
    folder: Path, document: dict[str, Any], release: Release, labels: Sequence[str | int] | None
) -> None:
    """result.json, histogram.csv (every item's value, estimate and lower limit) and plan.json.

    Floats are written so that they read back as they were. Names in histogram.csv are as their owners wrote them,
    quoted where CSV needs it and changed nowhere: programs look them up. `name_notes` says what a spreadsheet or a
    terminal would make of them. A release that is not private says
    so in a file of its own too, because histogram.csv has no place for it.
    """
    write_text(folder / "result.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
    write_text(folder / "plan.json", json.dumps(release.plan.to_json(), indent=2, allow_nan=False) + "\n")
    reasons = why_not_private(release)
    if reasons:
        text = "\n".join([*reasons, "For simulation only; do not publish."])
        write_text(folder / NOT_PRIVATE_FILE, f"{text}\n")
    columns = release.columns(labels)
    with (folder / "histogram.csv").open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        flush(file)


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
